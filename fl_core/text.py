"""Text that others wrote, made safe to show: names, classes, what went wrong on a device."""

from __future__ import annotations

import re
import unicodedata
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

_LONGEST_NAME = 100
NAMEABLE = f"at most {_LONGEST_NAME} characters that can be seen, and single spaces between words"
"""What a client's name has, if `given_name` takes it."""
# What Python takes for printable, but nothing is seen of: fillers, joiners and variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def given_name(said: object) -> str | None:
    """Return the name by which a client wants to be called, if it is one that people can read.

    Nobody shall look like another: by blanks, or by letters that cannot be seen.
    """
    if not isinstance(said, str) or not 0 < len(said) <= _LONGEST_NAME:
        return None
    name = unicodedata.normalize("NFC", said)
    if name != " ".join(name.split()) or not name.isprintable() or _INVISIBLE.search(name):
        return None
    return name


def printable(text: str) -> str:
    r"""Return `text` with what a terminal would obey, or a reader not see, written as escapes.

    That is whatever `str.isprintable` refuses: controls, line ends, marks that turn the direction
    of writing, and bytes that are not text.

    Examples
    --------
    >>> print(printable("Zoë \x1b[2J\n"))
    Zoë \x1b[2J\n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def composed(text: object) -> str:
    """Return a name as others write it: no spaces around it, in Unicode's composed form.

    Some systems store é as e and an accent.
    """
    return unicodedata.normalize("NFC", str(text).strip())


def alike(names: Sequence[str]) -> list[list[str]]:
    """Return names that differ in nothing but case, spaces and what joins words, together.

    Other signs tell names apart: a minus before a number, A+ from A.

    Examples
    --------
    >>> alike(["Night shift", "night-shift", "A+", "A-", "A", "1", "-1"])
    [['Night shift', 'night-shift']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        joined = re.sub(r"[\s_]+", "", name.casefold())
        letters = re.sub(r"(?<=[^\W\d])-+(?=[^\W\d])", "", joined)
        groups.setdefault(letters or name, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def markdown_line(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table; a cell may hold a stroke."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def one_line(text: str, longest: int = 300) -> str:
    """Return a sentence on one printable line, cut off at `longest` characters.

    Examples
    --------
    >>> one_line("the disk" + chr(10) + "is full ")
    'the disk is full'
    """
    line = printable(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else line[: longest - 2] + " …"


def error_line(error: BaseException) -> str:
    """Return an error's text; of the system's own, with the file it is about and no number.

    Examples
    --------
    >>> error_line(FileNotFoundError(2, "No such file or directory", "own.toml"))
    'own.toml cannot be used: No such file or directory.'
    """
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename} cannot be used: {error.strerror}."
    return str(error)


def brief(value: object) -> str:
    """Shorten what another device sent to one line that fits into a message."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else ""
    return text if 0 < len(text) <= 60 else f"a {type(value).__name__}"


def csv_cell(text: str) -> str:
    """Return a name as the cell of a CSV file, which no spreadsheet takes for a formula.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("cat")
    ("'=1+1", 'cat')
    """
    return printable(f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text)


def listed(names: Sequence[str], most: int, between: str = " ") -> str:
    """Return the names, or the first ones and how many more there are.

    Names that have what is to stand between them are told apart by commas, or semicolons.

    Examples
    --------
    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 2, ", ")
    ('a b c', 'a, b and 1 more')
    >>> listed(["a b", "c"], 3), listed(["a, b", "c"], 3)
    ('a b, c', 'a, b; c')
    """
    for wider in (", ", "; "):
        if any(between in name for name in names):
            between = wider
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def clock(seconds: float) -> str:
    """Return a duration in hours, minutes and seconds, such as 0:01:30."""
    return str(timedelta(seconds=max(0, round(seconds))))


def whole_number(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers of at least so much, for a command line."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text} is not a whole number of at least {least}")
        return int(text)

    return read
