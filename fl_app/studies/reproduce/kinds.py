"""Checks of what a TOML file holds, before it is used: a sentence for each wrong key or value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fl_core.text import printable


@dataclass(frozen=True)
class Kind:
    """What a value must be: of some types, in words, and if it is a list, of what."""

    types: tuple[type, ...]
    words: str
    entries: Kind | None = None

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind; true and false are no numbers."""
        if not isinstance(value, self.types) or isinstance(value, bool):
            return False
        if self.entries is None or not isinstance(value, list):
            return True
        return all(self.entries.fits(one) for one in value)


TEXT = Kind((str,), "text")
WHOLE = Kind((int,), "a whole number")
NUMBER = Kind((int, float), "a number")
TEXT_OR_NUMBER = Kind((str, int, float), "text or a number")
TABLE = Kind((dict,), "a table")
TEXTS = Kind((list,), "a list of texts", TEXT)
NUMBERS = Kind((list,), "a list of numbers", NUMBER)
TABLES = Kind((list,), "tables, each under [[...]]", TABLE)


def check_table(
    where: str, read: Any, kinds: Mapping[str, Kind], needed: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a table whose keys and values are what they must be.

    Raises
    ------
    ValueError
        If it is no table, a key is unknown or missing, or a value is of another kind.
    """
    if not isinstance(read, dict):
        raise ValueError(f"{where} is {_shown(read)}, but it must be a table.")
    if unknown := sorted(set(read) - set(kinds)):
        raise ValueError(f"{where} has no key {unknown[0]}: it has {', '.join(sorted(kinds))}.")
    if missing := [key for key in needed if key not in read]:
        raise ValueError(f"{where} lacks the key {missing[0]}.")
    for key, value in read.items():
        check_value(f"{key} of {where}", value, kinds[key])
    return read


def check_value(where: str, value: Any, kind: Kind) -> None:
    """Raise a ValueError that names a value if it is of another kind."""
    if not kind.fits(value):
        raise ValueError(f"{where} is {_shown(value)}, but it must be {kind.words}.")


def _shown(value: Any) -> str:
    return printable(repr(value))[:60]
