"""Who sends a request to the gate, and how much of the gate's memory one device may use.

A SuperNode signs the head of each request. Anyone can make a key, so a signature alone proves
little: a key belongs to a device once the SuperLink has answered one of its requests.
"""

import asyncio
import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from fl_app.devices.gate.pushes import RefusedError
from fl_app.devices.gate.sizes import ReplyTracker
from fl_core.flower.basics import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    now,
)
from fl_core.flower.keys import bytes_to_public_key, verify_signature

# For all bodies until the SuperLink has answered, and all long answers until they are read.
MOST_BYTES_IN_MEMORY = 512 * 2**20
MOST_BYTES_OF_DEVICE = 64 * 2**20  # a SuperNode sends eight pieces of 5 MiB at a time

_MOST_TURNS = 4
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)  # others take 6 ms to verify
_AUTHENTICATION = tuple(
    name.lower().encode("ascii")
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
)


@dataclass(eq=False)
class Device:
    """A key that the SuperLink has answered."""

    is_known: bool = True  # whether the SuperLink knew the key when it was last asked
    bytes: int = 0  # that the gate holds for the device now
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_TURNS))
    failed_pushes: int = 0  # in a row, at which the SuperLink failed
    tracker: ReplyTracker = field(default_factory=ReplyTracker)


class Callers:
    """The devices that the gate knows."""

    def __init__(self) -> None:
        self.bytes = 0  # that the gate holds for all callers now
        self._devices: dict[bytes, Device] = {}

    def device(self, key: bytes) -> Device | None:
        """Return the device with this public key; None if the SuperLink does not know it."""
        device = self._devices.get(key)
        return device if device is not None and device.is_known else None

    def add(self, key: bytes) -> Device:
        """Return the device with a key that the SuperLink has answered."""
        device = self._devices.setdefault(key, Device())
        device.is_known = True
        return device

    def mark_unknown(self, key: bytes) -> None:
        """Note that the SuperLink has refused this key.

        It also refuses a wrong node id, so the count of what the device has sent stays.
        """
        if key in self._devices:
            self._devices[key].is_known = False

    @contextmanager
    def reserve(self, device: Device | None, count: int) -> Iterator[None]:
        """Reserve `count` bytes during the block, or refuse the request."""
        holders: list[tuple[Callers | Device, int]] = [(self, MOST_BYTES_IN_MEMORY)]
        if device is not None:
            holders.append((device, MOST_BYTES_OF_DEVICE))
        if any(holder.bytes + count > most for holder, most in holders):
            raise RefusedError("too many requests: try again later", 503)
        for holder, _ in holders:
            holder.bytes += count
        try:
            yield
        finally:
            for holder, _ in holders:
                holder.bytes -= count


def signer(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the public key that signed the head of a request, or None.

    Flower's SuperLink makes the same check once it has read the whole request. The names of headers
    are in lower case.
    """
    given = [(name, value) for name, value in headers if name in _AUTHENTICATION]
    found = dict(given)
    if not len(given) == len(found) == len(_AUTHENTICATION):
        return None
    encoded_key, timestamp, encoded_signature = (found[name] for name in _AUTHENTICATION)
    try:
        age = (now() - datetime.fromisoformat(timestamp.decode("ascii"))).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        key = base64.b64decode(encoded_key, validate=True)
        signature = base64.b64decode(encoded_signature, validate=True)
        public_key = _public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if public_key is None or not verify_signature(public_key, timestamp, signature):
        return None
    return key


@lru_cache(maxsize=1024)
def _public_key(key: bytes) -> ec.EllipticCurvePublicKey | None:
    """Return a key of a curve that is quick to verify, or None."""
    public_key: object = bytes_to_public_key(key)
    if isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(public_key.curve, _CURVES):
        return public_key
    return None
