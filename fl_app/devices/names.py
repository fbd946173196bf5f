"""A device's name belongs to a key, in every run: registered with it, or the first to say it.

The SuperLink checks at each request that a node has the key with which it was registered, and tells
the server that key. So the server needs no proof of its own, only a memory of which key has which
name: one file, in the folder in which the SuperLink was started. People can read it, and edit it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable
from unicodedata import normalize

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_public_key, ssh_key_fingerprint
from filelock import FileLock

from fl_core.files import replacing
from strategies.engine.roster import Refusal

NAMES_FILE = "device-names.json"

# After the key of a name with which that key was registered: nobody else can have had it first.
_REGISTERED = " registered"
_SHORT = 19  # of a fingerprint: "SHA256:" and 72 bits


class Key(NamedTuple):
    """A device's key, as it was registered.

    Attributes
    ----------
    fingerprint : str
    name : str
        With which it was registered, in Unicode's form NFC; empty: without one.
    """

    fingerprint: str
    name: str


@runtime_checkable
class KnowsKeys(Protocol):
    """A grid that knows with which keys its nodes are registered."""

    def key_of(self, node: int) -> Key | None:
        """Return a node's key; None: it has none that it needs to keep."""

    def keys_connected(self) -> Collection[Key]:
        """Return the keys of all nodes that are connected now, and none that was revoked."""


def fingerprint(public_key: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l -f berlin.pub` shows it; Flower gives it as PEM.

    Raises
    ------
    ValueError
        If it is no public key.
    """
    key = load_pem_public_key(public_key)
    digest = ssh_key_fingerprint(key, hashes.SHA256())  # type: ignore[arg-type]
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def short(key: str) -> str:
    """Return the beginning of a fingerprint, which no two keys of a federation share.

    Examples
    --------
    >>> short("SHA256:abcdefghijklmnop")
    'SHA256:abcdefghijkl…'
    """
    return f"{key[:_SHORT]}…"


def read_names(path: Path) -> dict[str, str]:
    """Return, from device name to its key's fingerprint, what a file says; no file: nothing.

    Raises
    ------
    ValueError
        If it is damaged.
    OSError
        If it cannot be read.
    """
    return {name: key_in(entry) for name, entry in _read_entries(path).items()}


def key_in(entry: str) -> str:
    """Return the fingerprint in an entry of the file of names.

    Examples
    --------
    >>> key_in("SHA256:abc registered")
    'SHA256:abc'
    """
    return entry.removesuffix(_REGISTERED)


def _read_entries(path: Path) -> dict[str, str]:
    """Return, from device name, what a file says of it, as it is there; no file: nothing.

    Raises
    ------
    ValueError
        If it is damaged.
    OSError
        If it cannot be read.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        names = None
    if not isinstance(names, dict) or not all(isinstance(key, str) for key in names.values()):
        raise ValueError(
            f'{path} does not say which name belongs to which key, such as {{"berlin": '
            '"SHA256:…"}: restore it from a backup, or remove it, and each name belongs to the '
            "next key that says it."
        )
    return {normalize("NFC", name): entry for name, entry in names.items()}


@contextmanager
def changed_names(path: Path) -> Iterator[dict[str, str]]:
    """Yield the entries by name, to be changed by one at a time; changes are written at last.

    An entry is a key's fingerprint, and whether it was registered with that name: see `key_in`.

    Raises
    ------
    ValueError, OSError
        If the file is damaged, or cannot be read or written.
    """
    lock = path.with_name(f".{path.stem}.lock")
    try:
        held = FileLock(lock).acquire()
    except PermissionError as error:
        raise PermissionError(
            f"{lock.absolute()} cannot be opened by this account: `fedkin devices revoke` must run "
            "as the account of the SuperLink, not as root; give the file to that account (chown), "
            "or remove it while nobody uses it."
        ) from error
    with held:
        names = _read_entries(path)
        before = dict(names)
        yield names
        if names != before:
            with replacing(path, private=True) as temporary:
                text = json.dumps(names, indent=2, sort_keys=True, ensure_ascii=False)
                temporary.write_text(text + "\n", encoding="utf-8")


class NameOwners:
    """Which names nodes may use, by their keys.

    A key has one name: the one that it was registered with, or else the first that it says. A name
    has one key: the first that is registered with it, or else the first that says it and may.

    Parameters
    ----------
    path : Path
        The file of names, which is made where it is missing.
    grid : KnowsKeys
        A node without a key may use any name.
    """

    def __init__(self, path: Path, grid: KnowsKeys) -> None:
        self._path = path
        self._grid = grid
        self._allowed: dict[int, str] = {}

    def refused(self, given: Mapping[int, str]) -> dict[int, Refusal]:
        """Return which nodes may not use the names they give; of the others, remember the keys.

        Nodes that were allowed a name before are among them, if it was another's after all: of the
        key that is registered with it, and which has come since.

        Raises
        ------
        ValueError, OSError
            If the file is damaged, or cannot be read or written.
        """
        said = {**self._allowed, **given}
        keys = {n: key for n in sorted(said) if (key := self._grid.key_of(n)) is not None}
        refusals = {}
        if keys:
            with changed_names(self._path) as names:
                # Only now that nobody else can change the file: of those who have answered, one may
                # have been revoked since, and its name freed. It counts here, but is not written.
                connected = self._grid.keys_connected()
                _reserve(connected, names)
                held = dict(names)
                _reserve([key for node, key in keys.items() if node in given], held)
                for node, key in keys.items():
                    if refusal := _refusal(key, said[node], held):
                        refusals[node] = refusal
                    elif node in given:
                        held.setdefault(given[node], key.fingerprint)
                        if key in connected:
                            names.setdefault(given[node], key.fingerprint)
        self._allowed = {node: said[node] for node in keys if node not in refusals}
        return refusals


def _reserve(keys: Collection[Key], names: dict[str, str]) -> None:
    """Note which names belong to the keys that were registered with them, whoever said them."""
    # Of two keys that were registered with one name, the one that had it keeps it.
    for key in sorted(keys, key=lambda key: key_in(names.get(key.name, "")) != key.fingerprint):
        if key.name and not names.get(key.name, "").endswith(_REGISTERED):
            names[key.name] = key.fingerprint + _REGISTERED


def _refusal(key: Key, given: str, names: Mapping[str, str]) -> Refusal | None:
    """Return why a key may not use a name."""
    said = (name for name, entry in names.items() if key_in(entry) == key.fingerprint)
    own = key.name or next(said, "")
    called = own or f"key {short(key.fingerprint)}"
    if own not in ("", given):
        return Refusal(called, f"it says that it is {given}, but its key is that of {own}")
    other = key_in(names.get(given, key.fingerprint))
    if other != key.fingerprint:
        belongs = f"but that name belongs to key {short(other)}"
        return Refusal(called, f"it says that it is {given}, {belongs}")
    return None
