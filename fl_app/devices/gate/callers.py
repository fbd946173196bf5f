"""Who calls at the gate, and how much of it each may take up.

A request to the SuperLink is signed in its head. Whoever has no key is turned away before anything
else is read. Keys cost nothing, so a signature alone proves little: a caller is a known device once
the SuperLink has answered it, and a stranger until then. Strangers share a small part of the gate,
and no device has so much of the rest that others could not be served.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from fl_app.devices.gate.sizes import Post
from fl_core.flower.basics import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    now,
)
from fl_core.flower.keys import bytes_to_public_key, verify_signature

MOST_BYTES_HELD = 512 * 2**20
"""Of all bodies, from their first byte until the SuperLink answers, and of all answers until they
are read: what callers can fill of the gate's memory, and about half of what of the SuperLink's."""
MOST_BYTES_OF_DEVICE = 64 * 2**20
"""Of these, one device's: a SuperNode sends eight pieces of 5 MiB at a time."""
MOST_BYTES_OF_STRANGERS = 2**20
MOST_BYTES_OF_STRANGER = 2**14
"""A stranger's body: a device becomes known with its first request, which is shorter."""

_MOST_REQUESTS_OF_DEVICE = 32
_MOST_TURNS = 4
_MOST_REQUESTS_OF_STRANGERS = 64
_MOST_REQUESTS_OF_ADDRESS = 16
_NO_LIMIT = 2**63
# So long after the SuperLink turned a device away, what is known of it is dropped.
_FORGOTTEN_SECONDS = 3600.0
# A device's push waits for this many times as long as its last one took: so no device keeps the
# SuperLink's database, which one request at a time can write to, for more than a fifth of the time.
_REST = 4.0
_LONGEST_REST = 20.0  # SuperNodes wait for an answer for 30 seconds
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_AUTHENTICATION = tuple(
    name.lower().encode("ascii")
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
)


class FullError(Exception):
    """The caller, or all callers together, have as much of the gate as they may."""


@dataclass(eq=False)
class Share:
    """What somebody may take up of the gate, and what they do.

    Attributes
    ----------
    most_requests, most_bytes : int
        At a time.
    requests, bytes : int
        Now.
    """

    most_requests: int
    most_bytes: int
    requests: int = 0
    bytes: int = 0


@dataclass(eq=False)
class Device:
    """A device that the SuperLink knows, or has known.

    Attributes
    ----------
    is_known : bool
        Whether the SuperLink knew it when it was asked last; otherwise it is a stranger, but what
        it did as a device still counts.
    share : Share
        Its own.
    turns : Semaphore
        What it may ask the SuperLink at a time: the rest of its requests wait for its own.
    failed_pushes : int
        How often in a row the SuperLink has failed at what it sent.
    post : Post
        The message that it was handed out last, and how much it has sent since.
    """

    is_known: bool = True
    share: Share = field(
        default_factory=lambda: Share(_MOST_REQUESTS_OF_DEVICE, MOST_BYTES_OF_DEVICE)
    )
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_TURNS))
    failed_pushes: int = 0
    post: Post = field(default_factory=Post)
    _pushing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _rests_until: float = 0.0
    _forgotten_at: float = 0.0

    @asynccontextmanager
    async def one_push(self) -> AsyncIterator[None]:
        """Let one push at a time through, once the device has rested from its last one."""
        async with self._pushing:
            await asyncio.sleep(max(0.0, self._rests_until - time.monotonic()))
            yield

    def rest_after(self, seconds: float) -> None:
        """Note how long the SuperLink took for a push."""
        self._rests_until = time.monotonic() + min(_REST * seconds, _LONGEST_REST)

    def forget(self) -> None:
        """Note that the SuperLink does not know it any more."""
        if self.is_known:
            self.is_known, self._forgotten_at = False, time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the SuperLink turned it away long ago, and nothing of it is left here."""
        long_ago = time.monotonic() > self._forgotten_at + _FORGOTTEN_SECONDS
        return not self.is_known and long_ago and not self.share.requests


class Held:
    """What one request takes up."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        self._bytes = 0

    def add(self, count: int) -> None:
        """Take up more bytes.

        Raises
        ------
        FullError
            If there is no room for them.
        """
        if any(share.bytes + count > share.most_bytes for share in self._shares):
            raise FullError
        self._bytes += count
        for share in self._shares:
            share.bytes += count

    def give_back(self) -> None:
        """Give all bytes back."""
        for share in self._shares:
            share.bytes -= self._bytes
        self._bytes = 0


class Callers:
    """All that call at a gate."""

    def __init__(self) -> None:
        self._devices: dict[bytes, Device] = {}
        self._all = Share(_NO_LIMIT, MOST_BYTES_HELD)
        self._strangers = Share(_MOST_REQUESTS_OF_STRANGERS, MOST_BYTES_OF_STRANGERS)
        self._addresses: dict[str, Share] = {}

    def device(self, key: bytes) -> Device | None:
        """Return the device with this public key; None: the SuperLink has never answered it."""
        return self._devices.get(key)

    def know(self, key: bytes) -> None:
        """Take whoever has this key for a device from now on: the SuperLink has answered it."""
        self._devices.setdefault(key, Device()).is_known = True

    def forget(self, key: bytes) -> None:
        """Take whoever has this key for a stranger: the SuperLink turned it away.

        It does so with any device that gives a wrong node id, which then is known again at once:
        so what the device has done is kept for a while.
        """
        if key in self._devices:
            self._devices[key].forget()
        for old in [old for old, device in self._devices.items() if device.is_over]:
            del self._devices[old]

    @contextmanager
    def request(self, key: bytes, address: str) -> Iterator[Held]:
        """Make room for a request, signed with `key`, for the length of the block.

        Raises
        ------
        FullError
            If there is none.
        """
        network = network_of(address)
        device = self._devices.get(key)
        if device is not None and device.is_known:
            shares = [self._all, device.share]
        else:
            of_address = self._addresses.setdefault(
                network, Share(_MOST_REQUESTS_OF_ADDRESS, MOST_BYTES_OF_STRANGERS)
            )
            shares = [self._all, self._strangers, of_address]
        if any(share.requests >= share.most_requests for share in shares):
            raise FullError
        for share in shares:
            share.requests += 1
        held = Held(shares)
        try:
            yield held
        finally:
            held.give_back()
            for share in shares:
                share.requests -= 1
            if network in self._addresses and not self._addresses[network].requests:
                del self._addresses[network]


def signer(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the public key whose owner signed the head of a request; None: nobody did.

    As Flower's SuperLink checks it, which does so once it has read the whole request. Headers are
    names, in lower case, and values.
    """
    given = [(name, value) for name, value in headers if name in _AUTHENTICATION]
    found = dict(given)
    if len(given) != len(_AUTHENTICATION) or len(found) != len(_AUTHENTICATION):
        return None
    encoded_key, timestamp, encoded_signature = (found[name] for name in _AUTHENTICATION)
    try:
        age = (now() - datetime.fromisoformat(timestamp.decode("ascii"))).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        key = base64.b64decode(encoded_key, validate=True)
        signature = base64.b64decode(encoded_signature, validate=True)
        public_key = _public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # anybody can send anything
        return None
    if public_key is None or not verify_signature(public_key, timestamp, signature):
        return None
    return key


@lru_cache(maxsize=1024)
def _public_key(key: bytes) -> ec.EllipticCurvePublicKey | None:
    """Return a key of a curve that is quick to check; None: it is of another."""
    public_key: object = bytes_to_public_key(key)
    if isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(public_key.curve, _CURVES):
        return public_key
    return None


def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def network_of(address: str) -> str:
    """Return the network that counts as one address: of IPv6, a site has 2⁶⁴ at least.

    Examples
    --------
    >>> network_of("203.0.113.5"), network_of("2001:db8::1:2")
    ('203.0.113.5', '2001:db8::/64')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), 64), strict=False))
