"""Make text from outside safe to show: names, classes, errors of devices."""

from __future__ import annotations

import math
import re
import unicodedata
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal

_LONGEST_NAME = 100
ALLOWED_NAME = f"at most {_LONGEST_NAME} visible characters, and single spaces between words"
"""What `name_if_readable` accepts."""
# Printable for Python, but invisible: fillers, joiners and variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def name_if_readable(value: object) -> str | None:
    """Return the name of a client if it is readable: without other spaces or invisible letters.

    Otherwise it could look like the name of another client.
    """
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        return None
    name = unicodedata.normalize("NFC", value)
    if name != " ".join(name.split()) or not name.isprintable() or _INVISIBLE.search(name):
        return None
    return name


def printable(text: str) -> str:
    r"""Escape characters that `str.isprintable` refuses.

    These are controls, line ends, marks of the direction of writing, and bytes that are not text.

    Examples
    --------
    >>> print(printable("Zoë \x1b[2J\n"))
    Zoë \x1b[2J\n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def strip_and_compose(text: object) -> str:
    """Strip a name and convert it to Unicode's composed form: some systems store é as e and ´."""
    return unicodedata.normalize("NFC", str(text).strip())


def similar_names(names: Sequence[str]) -> list[list[str]]:
    """Group names that differ only in case, a last dot, spaces, hyphens and underscores.

    Hyphens count except between words: a minus before a number, or the one of A-.

    Examples
    --------
    >>> similar_names(["Night shift", "night-shift", "A+", "A-", "A", "1", "-1", "<5K", "<5K."])
    [['Night shift', 'night-shift'], ['<5K', '<5K.']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        joined = re.sub(r"[\s_]+", "", name.casefold()).rstrip(".")
        letters = re.sub(r"(?<=[^\W\d])-+(?=[^\W\d])", "", joined)
        groups.setdefault(letters or name, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def markdown_line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table; bars in cells are escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def one_line(text: str, longest: int = 300) -> str:
    """Return text on one printable line, cut off at `longest` characters.

    Examples
    --------
    >>> one_line("the disk" + chr(10) + "is full ")
    'the disk is full'
    """
    line = printable(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else line[: longest - 2] + " …"


def error_line(error: BaseException) -> str:
    """Return the text of an error; of an OSError, the file and the reason without a number.

    Examples
    --------
    >>> error_line(FileNotFoundError(2, "No such file or directory", "my.toml"))
    'my.toml cannot be used: No such file or directory.'
    """
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename} cannot be used: {error.strerror}."
    return str(error)


def brief(value: object) -> str:
    """Shorten a value from another device to a line for a message."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else ""
    return text if 0 < len(text) <= 60 else type_name(value)


def type_name(value: object) -> str:
    """Return the type of a value with its article: `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def csv_cell(text: str) -> str:
    """Return a name as a cell of a CSV file that no spreadsheet takes for a formula.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("cat")
    ("'=1+1", 'cat')
    """
    return printable(f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text)


def listed(names: Sequence[str], most: int, between: str = " ") -> str:
    """Return the names, or the first `most` and the number of others.

    Names that contain the separator are separated by commas, or by semicolons.

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


def rounded(number: float, digits: int) -> float:
    """Round a number half away from zero, as it is read in decimal digits.

    A mean is the same number however it was computed: 100 · 0.7235 is above 72.35 in binary, and
    the mean of 72.3 and 72.4 below it.

    Examples
    --------
    >>> rounded(100 * 0.7235, 1), rounded((72.3 + 72.4) / 2, 1), rounded(-72.35, 1)
    (72.4, 72.4, -72.4)
    """
    if not math.isfinite(number):
        return number
    decimal = Decimal(repr(round(float(number), digits + 8)))
    return float(decimal.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def clock(seconds: float) -> str:
    """Return a duration in hours, minutes and seconds, such as 0:01:30."""
    return str(timedelta(seconds=max(0, round(seconds))))


def whole_number(least: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers of at least `least`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text} is not a whole number of at least {least}")
        return int(text)

    return read
