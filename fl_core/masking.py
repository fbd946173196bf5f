"""Secure aggregation, what both sides compute: fixed-point numbers, masks and thresholds.

Source: Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS
2017, where every two clients of a cluster are neighbours; SecAgg+ (Bell et al., CCS 2020) has fewer
neighbours, which saves time from some hundred clients on. Sums are modulo 2⁶⁴: masks cancel
exactly. Key agreement, encryption and Shamir's shares are Flower's, masks are not: Flower's come
from NumPy's Mersenne Twister with a seed of 32 bits, which a server can try out.
"""

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
from fl_core.messages.protocol import NDArrays, as_type, is_variance

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

FEWEST = 3
"""Clients in a sum: of a sum of two models, each client could compute the other one."""

SECRET_BYTES = 32
PUBLIC_KEY_BYTES = 215
SHARE_BYTES = 52
CIPHERTEXT_BYTES = 248
DIGEST_BYTES = hashlib.sha256().digest_size

STEP = 2.0**-28
"""The resolution of updates: about the last digit of a float32 near 0.06."""

MOST_CHANGE = 256.0
"""The largest change of a weight in a round; of a whole number, `MOST_CHANGE / STEP`."""

_LARGEST = int(MOST_CHANGE / STEP)
_HEAD = 3  # the weight, whether there is a loss, and the loss


class Total(NamedTuple):
    """The sum of clients' updates."""

    model: NDArrays  # the weighted mean of their models
    num_clients: int
    loss: float | None  # the mean of their training losses, if all have one
    norm: float  # Euclidean, of the mean update of all floating-point numbers


class CorruptedSumError(ValueError):
    """A sum is wrong because a client sent garbage."""


def threshold(num_clients: int) -> int:
    """Return how many clients of a cluster can unmask a sum, and must be in it.

    More than half: otherwise some clients could unmask a client as present, and others as absent.
    """
    return max(FEWEST, num_clients // 2 + 1)


def max_weight(num_clients: int) -> int:
    """Return the largest weight with which the sum of so many clients fits 64 bits."""
    return 2**63 // (_LARGEST * num_clients) - 1


def mask(key: bytes, size: int) -> Words:
    """Return `size` pseudorandom numbers from a key of 32 bytes, which masks one vector only."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def common_key(private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> bytes:
    """Return the key of the mask that two clients share."""
    return base64.urlsafe_b64decode(generate_shared_key(private, public))


def add_common_mask(words: Words, key: bytes, position: int, other: int) -> None:
    """Add, in place, the mask that the clients at `position` and `other` share; theirs cancel."""
    common = mask(key, len(words))
    if position < other:
        words += common
    else:
        words -= common


def private_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key on the curve of Flower's keys that belongs to a secret of 32 bytes."""
    return ec.derive_private_key(int.from_bytes(secret), ec.SECP384R1())


def is_public_key(key: bytes) -> bool:
    """Return whether bytes are a public key on Flower's curve; no key at all is a ValueError."""
    public = bytes_to_public_key(key)  # of any kind, despite Flower's types
    curve = getattr(public, "curve", None)
    return isinstance(curve, ec.SECP384R1) and public_key_to_bytes(public) == key


def digest(share: bytes) -> bytes:
    """Return a hash that identifies a share; shares are random, so it reveals nothing of them."""
    return hashlib.sha256(share).digest()


def as_rows(rows: list[bytes]) -> Bytes:
    """Return bytes of one length as an array, shape (number, length)."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def num_words(model: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of words of a model's update."""
    return _HEAD + sum(array.size for array in model.values())


def encode_update(
    trained: Mapping[str, NDArray[Any]],
    received: Mapping[str, NDArray[Any]],
    weight: int,
    loss: float | None,
    num_clients: int,
) -> Words:
    """Encode a client's weighted update in fixed point; negative numbers as two's complement.

    `received` and `trained` are the model before and after training. A loss that is not in
    [0, `MOST_CHANGE`] counts as none.
    """
    if not 0 < weight <= max_weight(num_clients):
        raise ValueError(
            f"its weight is {weight}, but in a secure sum of {num_clients} clients it must be from "
            f"1 to {max_weight(num_clients)}: train on fewer samples, or set weighted-mean=false."
        )
    known = loss is not None and 0 <= loss <= MOST_CHANGE
    head = [weight, int(known), round(loss / STEP) if known and loss is not None else 0]
    parts = [np.array(head, np.int64)]
    if trained.keys() != received.keys():
        raise ValueError("the parameters of its model are not those that it received")
    for name, before in received.items():
        after = trained[name]
        if after.shape != before.shape or after.dtype != before.dtype:
            raise ValueError(f"its {name} has another type or shape than it received")
        moved = np.subtract(after, before, dtype=np.float64) / _step(before)
        if not np.all(np.abs(moved) <= _LARGEST):  # NaN, too
            raise ValueError(
                f"its {name} changed by more than {_LARGEST * _step(before):g}, the limit of a "
                "secure sum, or is not a number: lower the learning rate."
            )
        parts.append(np.rint(moved).astype(np.int64).ravel() * weight)
    return np.concatenate(parts).view(np.uint64)


def decode_sum(
    summed: Words, received: Mapping[str, NDArray[Any]], num_clients: int, most: int
) -> Total:
    """Decode the unmasked sum of clients' updates of the model that they received.

    `most` is the largest weight of one client.
    """
    numbers = summed.view(np.int64)
    weight, num_losses, loss = numbers[:_HEAD].tolist()
    sensible = num_clients <= weight <= num_clients * most and 0 <= num_losses <= num_clients
    # Compared as floats: the absolute value of the smallest integer is no integer.
    largest = np.abs(numbers[_HEAD:].astype(np.float64)).max(initial=0)
    if not (sensible and 0 <= loss <= num_losses * _LARGEST and largest <= weight * _LARGEST):
        raise CorruptedSumError("the sum is not one of updates: a client sent garbage")
    model, start, squares = {}, _HEAD, 0.0
    for name, before in received.items():
        moved = numbers[start : start + before.size].reshape(before.shape)
        moved = moved * (_step(before) / weight)
        mean = before + moved
        squares += float((moved**2).sum()) if before.dtype.kind == "f" else 0.0
        if is_variance(name):
            if mean.min(initial=0) < -STEP:
                raise CorruptedSumError("the mean of variances is negative: a client sent garbage")
            mean = np.maximum(mean, 0)
        model[name] = as_type(before.dtype, mean)
        start += before.size
    mean_loss = loss * STEP / num_clients if num_losses == num_clients else None
    return Total(model, num_clients, mean_loss, sqrt(squares))


def scale_to_norm(total: Total, received: Mapping[str, NDArray[Any]], norm: float) -> Total:
    """Return a sum with its mean update scaled down to another norm."""
    share = norm / total.norm
    model = {}
    for name, before in received.items():
        moved = np.subtract(total.model[name], before, dtype=np.float64)
        model[name] = as_type(before.dtype, before + share * moved)
    return total._replace(model=model, norm=norm)


def _step(array: NDArray[Any]) -> float:
    return STEP if array.dtype.kind == "f" else 1.0
