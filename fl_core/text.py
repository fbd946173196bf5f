"""Make text from outside safe to show: names, classes, errors of devices."""

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
# Small letters, and signs, to those that they look like, or would as capitals.
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445"  # Cyrillic
    "\u0456\u0458\u0455\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7"  # Greek
    "\u0131\u2010\u2011\u2012\u2013\u2014\u2212\u2019",  # a dotless i, hyphens, an apostrophe
    "abekmhopctyxijsdqwabezhiknoptyxi------'",
)


def name_if_readable(value: object) -> str | None:
    """Return the name of a client, or None if it has other spaces or invisible letters."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        return None
    name = unicodedata.normalize("NFC", value)
    if name != " ".join(name.split()) or not name.isprintable() or _INVISIBLE.search(name):
        return None
    return name


def printable(text: str) -> str:
    """Escape characters that `str.isprintable` refuses: controls, bytes that are not text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def strip_and_compose(text: object) -> str:
    """Strip a name and convert it to Unicode's composed form: some systems store é as e and ´."""
    return unicodedata.normalize("NFC", str(text).strip())


def similar_names(names: Sequence[str]) -> list[list[str]]:
    """Group names that differ only in case, accents, last dots, spaces, hyphens and underscores.

    Letters that look like a Latin one count as that, and invisible signs do not. Hyphens count
    except between words: a minus before a number, or the one of A-.

    Examples
    --------
    >>> similar_names(["Night shift", "night-shift", "A+", "A-", "A", "1", "-1", "<5K", "<5K."])
    [['Night shift', 'night-shift'], ['<5K', '<5K.']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
        folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", visible)).casefold()
        latin = unicodedata.normalize("NFD", folded).translate(_LOOK_ALIKE)
        key = _joined(re.sub("(?<=[a-z])[\u0300-\u036f]+", "", latin)) or name
        groups.setdefault(key, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _joined(name: str) -> str:
    """Return a name in lower case without what joins words, and without last dots."""
    joined = re.sub(r"[\s_]+", "", name.casefold()).rstrip(".")
    return re.sub(r"(?<=[^\W\d])-+(?=[^\W\d])", "", joined)


def note_on_spellings(
    what: str, names: Sequence[str], how: str = "in pandas by column.replace({})"
) -> str:
    """Return a note that lists similar names and says how to map them; empty without any.

    `how` has a place for the mapping. Names that differ in letters that may look the same are
    escaped.
    """
    groups = [
        [*map(repr if len(set(map(_joined, group))) == 1 else ascii, group)]
        for group in similar_names(names)
    ]
    if not groups:
        return ""
    spellings = listed([listed(group, 5, ", ") for group in groups], 5, "; ")
    pairs = [f"{other}: {first}" for first, *others in groups[:5] for other in others]
    mapping = how.format(f"{{{listed(pairs, 20, ', ')}}}")
    return (
        f"{what} {spellings} count as different ones: if they are the same, give them one name at "
        f"all sites, {mapping}"
    )


def markdown_line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table; bars in cells are escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def one_line(text: str, longest: int = 300) -> str:
    """Return text on one printable line, cut off at `longest` characters."""
    line = printable(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else line[: longest - 2] + " …"


def error_line(error: BaseException) -> str:
    """Return the text of an error; of an OSError, the file and the reason without a number."""
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
    """Return a name as a cell of a CSV file that no spreadsheet takes for a formula."""
    return printable(f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text)


def listed(names: Sequence[str], most: int, between: str = " ") -> str:
    """Return the names, or the first `most` and the number of others.

    Names that contain the separator are separated by commas, or by semicolons.

    Examples
    --------
    >>> listed(["a", "b", "c"], 2, ", "), listed(["a, b", "c"], 3)
    ('a, b and 1 more', 'a, b; c')
    """
    for wider in (", ", "; "):
        if any(between in name for name in names):
            between = wider
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def rounded(number: float, digits: int) -> float:
    """Round a number half away from zero, as it is read in decimal digits.

    A mean is the same number however it was computed: 100 · 0.7235 is above 72.35 in binary.

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
