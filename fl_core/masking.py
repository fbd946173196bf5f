"""Secure aggregation, what both sides compute: fixed-point numbers, masks and thresholds.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017,
with every two clients of a cluster as neighbours; SecAgg+ (Bell et al., CCS 2020) has fewer, which
saves time from some hundred clients on. All sums are modulo 2⁶⁴, in which masks cancel exactly.

Key agreement, encryption and Shamir's shares are Flower's. Its masks are not used: they come from
numpy's Mersenne Twister with a seed of 32 bits, which a server can try out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fl_core.flower.keys import bytes_to_public_key, generate_shared_key, public_key_to_bytes
from fl_core.messages.arrays import as_type, is_variance
from fl_core.messages.protocol import NDArrays

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

FEWEST = 3
"""Of a sum of two models, each of the two clients knows the other's."""

SECRET_BYTES = 32
PUBLIC_KEY_BYTES = 215
SHARE_BYTES = 52
CIPHERTEXT_BYTES = 248
DIGEST_BYTES = hashlib.sha256().digest_size

STEP = 2.0**-28
"""What updates are rounded to: about the last digit of a float32 near 0.06."""

MOST_CHANGE = 256.0
"""In a round, of a number in a model; of a whole number, `MOST_CHANGE / STEP`."""

_LARGEST = int(MOST_CHANGE / STEP)
_HEAD = 3  # the weight, whether there is a loss, and the loss


class Total(NamedTuple):
    """What a sum of clients' updates says.

    Attributes
    ----------
    model : dict of arrays
        The weighted mean of their models.
    num_clients : int
        How many they are.
    loss : float, optional
        The mean of their training losses, if all of them had one.
    norm : float
        The Euclidean norm of their mean update, over all but whole numbers.
    """

    model: NDArrays
    num_clients: int
    loss: float | None
    norm: float


class CorruptedSumError(ValueError):
    """A sum fails since a client has sent garbage, not for want of answers."""


def threshold(num_clients: int) -> int:
    """Return how many of a cluster's clients can take the masks off a sum, and must be in it.

    More than half, so that a client's masks cannot be taken off by some clients as those of one
    that is there, and by others as those of one that is not.
    """
    return max(FEWEST, num_clients // 2 + 1)


def heaviest(num_clients: int) -> int:
    """Return the largest weight with which the sum of so many clients fits 64 bits."""
    return 2**63 // (_LARGEST * num_clients) - 1


def mask(key: bytes, size: int) -> Words:
    """Return `size` numbers that nobody tells from random ones without the key of 32 bytes.

    A key masks one vector only.
    """
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def common_key(private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> bytes:
    """Return the key of the mask that two clients have in common."""
    return base64.urlsafe_b64decode(generate_shared_key(private, public))


def add_common_mask(words: Words, key: bytes, position: int, other: int) -> None:
    """Add, in place, what the client at one position adds for the one at `other`.

    Added for both of them, it cancels.

    Parameters
    ----------
    words : array of uint64
    key : bytes
        What the two have in common, see `common_key`.
    position, other : int
        Different ones.
    """
    common = mask(key, len(words))
    if position < other:
        words += common
    else:
        words -= common


def private_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key on the curve of Flower's keys that belongs to a secret of 32 bytes."""
    return ec.derive_private_key(int.from_bytes(secret), ec.SECP384R1())


def is_public_key(key: bytes) -> bool:
    """Return whether bytes are a public key as clients send it, on the curve of Flower's keys.

    Raises
    ------
    ValueError
        If they are no key at all.
    """
    found = bytes_to_public_key(key)  # of any kind, whatever Flower's types say
    curve = getattr(found, "curve", None)
    return isinstance(curve, ec.SECP384R1) and public_key_to_bytes(found) == key


def digest(share: bytes) -> bytes:
    """Return by what a share is known again; shares are random, so it says nothing of them."""
    return hashlib.sha256(share).digest()


def as_rows(rows: list[bytes]) -> Bytes:
    """Return bytes of one length as an array, shape (number, length)."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def size_of(model: Mapping[str, NDArray[Any]]) -> int:
    """Return how many words stand for a model's update."""
    return _HEAD + sum(array.size for array in model.values())


def to_words(
    trained: Mapping[str, NDArray[Any]],
    received: Mapping[str, NDArray[Any]],
    weight: int,
    loss: float | None,
    num_clients: int,
) -> Words:
    """Return a client's weighted update in fixed point; negative numbers as two's complement.

    Parameters
    ----------
    trained, received : mapping of arrays
        The model after and before training.
    weight : int
        By how much the client counts.
    loss : float, optional
        Its training loss; one that is not in [0, `MOST_CHANGE`] is as none.
    num_clients : int
        How many there are in the cluster.

    Raises
    ------
    ValueError
        If the models are not alike, or a number does not fit.
    """
    if not 0 < weight <= heaviest(num_clients):
        raise ValueError(
            f"its weight is {weight}, but in a secure sum of {num_clients} clients it must be 1 to "
            f"{heaviest(num_clients)}: let it train on fewer samples, or set weighted-mean=false."
        )
    known = loss is not None and 0 <= loss <= MOST_CHANGE
    head = [weight, int(known), round(loss / STEP) if known and loss is not None else 0]
    parts = [np.array(head, np.int64)]
    if trained.keys() != received.keys():
        raise ValueError("its model's parameters are not those it was sent")
    for name, before in received.items():
        after = trained[name]
        if after.shape != before.shape or after.dtype != before.dtype:
            raise ValueError(f"its {name} is not of the type and shape that it was sent")
        moved = np.subtract(after, before, dtype=np.float64) / _step(before)
        if not np.all(np.abs(moved) <= _LARGEST):  # NaN, too
            raise ValueError(
                f"its {name} has changed by more than {_LARGEST * _step(before):g}, or is no "
                "number: a secure sum has no room for that."
            )
        parts.append(np.rint(moved).astype(np.int64).ravel() * weight)
    return np.concatenate(parts).view(np.uint64)


def from_words(
    summed: Words, received: Mapping[str, NDArray[Any]], num_clients: int, most: int
) -> Total:
    """Read the unmasked sum of clients' updates.

    Parameters
    ----------
    summed : array of uint64
    received : mapping of arrays
        The model that all of them were sent.
    num_clients : int
        How many they are.
    most : int
        The largest weight of one.

    Raises
    ------
    CorruptedSumError
        If it cannot be the sum of so many updates.
    """
    numbers = summed.view(np.int64)
    weight, num_losses, loss = numbers[:_HEAD].tolist()
    sensible = num_clients <= weight <= num_clients * most and 0 <= num_losses <= num_clients
    # Compared as floats: the absolute value of the smallest integer is no integer.
    largest = np.abs(numbers[_HEAD:].astype(np.float64)).max(initial=0)
    if not (sensible and 0 <= loss <= num_losses * _LARGEST and largest <= weight * _LARGEST):
        raise CorruptedSumError(
            "what they sent does not add up to updates: one of them sent garbage"
        )
    model, start, squares = {}, _HEAD, 0.0
    for name, before in received.items():
        moved = numbers[start : start + before.size].reshape(before.shape)
        moved = moved * (_step(before) / weight)
        mean = before + moved
        squares += float((moved**2).sum()) if before.dtype.kind == "f" else 0.0
        if is_variance(name):
            if mean.min(initial=0) < -STEP:
                raise CorruptedSumError("the mean of their variances is negative: one sent garbage")
            mean = np.maximum(mean, 0)
        model[name] = as_type(before.dtype, mean)
        start += before.size
    mean_loss = loss * STEP / num_clients if num_losses == num_clients else None
    return Total(model, num_clients, mean_loss, sqrt(squares))


def with_norm(total: Total, received: Mapping[str, NDArray[Any]], norm: float) -> Total:
    """Return a sum whose mean update is scaled to another norm, smaller than its own.

    Parameters
    ----------
    total : Total
    received : mapping of arrays
        The model that all of its clients were sent.
    norm : float
        As `Total.norm`.
    """
    share = norm / total.norm
    model = {}
    for name, before in received.items():
        moved = np.subtract(total.model[name], before, dtype=np.float64)
        model[name] = as_type(before.dtype, before + share * moved)
    return total._replace(model=model, norm=norm)


def _step(array: NDArray[Any]) -> float:
    return STEP if array.dtype.kind == "f" else 1.0
