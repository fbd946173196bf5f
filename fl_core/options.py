"""Options: dataclass fields with the values and the meaning of a key of a run configuration.

An option is declared once, on the class that uses it. `fl_app.config.run_config` collects and reads
them all, and `fl_app.config.options_page` writes them into pyproject.toml and docs/options.md.

Examples
--------
>>> @dataclass
... class Walk:
...     num_steps: int = option(10, number(int, 1), "how far")
>>> options_of(Walk)["num-steps"].rule.read("num-steps", 0)
Traceback (most recent call last):
ValueError: num-steps is 0, but it must be a whole number of at least 1.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

Scalar = str | int | float | bool
_TOO_LARGE = 2**63  # for TOML, and for counters
_RUN_DEFAULT: Any = object()
BY_STRATEGY = "by-strategy"
"""The default of an option that a line of the catalogue may decide, for its strategy."""


class NotAllowedError(Exception):
    """A rule's parser does not allow a value; the rule adds the message."""


class Refusals(list[str]):
    """Messages of errors; as a context manager, it collects the ValueErrors of blocks."""

    def __enter__(self) -> None:
        """Start to catch ValueErrors."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Store the message of a ValueError, and continue after the block."""
        if isinstance(error, ValueError):
            self.append(str(error))
        return isinstance(error, ValueError)

    def refuse(self) -> None:
        """Raise one ValueError with all messages, one per line, if there are any."""
        if self:
            raise ValueError("\n".join(dict.fromkeys(self)))


@dataclass(frozen=True)
class Rule:
    """The allowed values of an option.

    `parse` reads a value; it raises `NotAllowedError`, or a `ValueError` with a whole message.
    """

    allowed: str  # in words, after "it must be"
    parse: Callable[[Any], Any]
    none: str = ""  # the word that means None, if there is one
    words: tuple[str, ...] = ()  # allowed words, for suggestions

    def read(self, key: str, value: Any) -> Any:
        """Read a value of the run-config key `key`; one that is not allowed is a ValueError."""
        try:
            return self.parse(value)
        except NotAllowedError as error:
            raise refusal(key, value, str(error) or self.allowed, self.words) from None


@dataclass(frozen=True)
class Option:
    """The declaration of an option; see `option`."""

    default: Scalar
    rule: Rule
    meaning: str
    key: str
    needs: str


def option(
    run_default: Scalar,
    rule: Rule,
    meaning: str,
    *,
    key: str = "",
    needs: str = "",
    default: Any = _RUN_DEFAULT,
) -> Any:
    """Return a dataclass field that is an option.

    `run_default` is the value in pyproject.toml, `rule` has the allowed ones, and `meaning` is a
    line of help. `key` is the run-config key, if it is not the field's name, and `default` the
    default of the class, if it is not `run_default`.

    `needs` is a condition without which the option has no effect: `KEY=VALUE`, several values
    separated by `|`, or `KEY` for any value but its default.
    """
    value: Any = rule.read(key, run_default) if default is _RUN_DEFAULT else default
    return field(default=value, metadata={"option": Option(run_default, rule, meaning, key, needs)})


def key_of(one: Field[Any]) -> str:
    """Return the run-config key of a dataclass's field."""
    declared = one.metadata.get("option")
    return (declared.key if declared else "") or one.name.replace("_", "-")


def options_of(owner: type) -> dict[str, Option]:
    """Return the options among the fields of a dataclass by run-config key, inherited ones, too."""
    declared = fields(owner) if is_dataclass(owner) else ()
    return {key_of(one): one.metadata["option"] for one in declared if "option" in one.metadata}


def refusal(key: str, value: Any, allowed: str, words: Iterable[str] = ()) -> ValueError:
    """Return the error for a value that is not allowed, with a suggestion."""
    shown = f'"{value}"' if isinstance(value, str) else value
    hint = did_you_mean(value, words)
    return ValueError(f"{key} is {shown}, but it must be {allowed}.{hint and f' {hint}'}")


def at_value(value: Any) -> str:
    """Return the end of "leave it …" in a message: `empty`, or `at none`."""
    return "empty" if value == "" else f"at {value}"


SYNONYMS = {
    **dict.fromkeys(("algorithm", "method"), "strategy"),
    **dict.fromkeys(("num-rounds", "rounds"), "num-server-rounds"),
    **{"alpha": "dirichlet-alpha", "epochs": "local-epochs", "lr": "learning-rate"},
    **{"fraction-fit": "fraction-train", "num-gpus": "device", "seeds": "repeats"},
}
"""Other names of options and values, which their letters would not suggest."""


def did_you_mean(value: Any, words: Iterable[str]) -> str:
    """Return a question that names the word most like `value`, or nothing.

    Examples
    --------
    >>> did_you_mean("Singel", ["single", "random"]), did_you_mean("lr", ["learning-rate"])
    ('Did you mean single?', 'Did you mean learning-rate?')
    """
    by_letters = {word.lower(): word for word in words if word}
    given = str(value).lower()
    known = SYNONYMS.get(given)
    near = [known] if known in by_letters else get_close_matches(given, by_letters, 1)
    return f"Did you mean {by_letters[near[0]]}?" if near else ""


def typed(value: Any) -> str:
    """Return a value as typed on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_values(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of the command line, such as `weighted-mean=false`."""
    return [f"{key}={typed(value)}" for key, value in options.items()]


def number(
    kind: type[int] | type[float],
    low: float,
    high: float = float("inf"),
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> Rule:
    """Allow finite numbers within bounds; open bounds are outside."""
    what = "a whole number" if kind is int else "a number"
    written = ".0f" if kind is int else "g"
    allowed = f"{what} {'above' if low_open else 'of at least'} {low:{written}}"
    if high < float("inf"):
        allowed += f" and {'below' if high_open else 'at most'} {high:{written}}"

    def parse(value: Any) -> int | float:
        try:
            exact = Decimal(str(value))  # above 2^53, a float cannot hold most whole numbers
            as_float = float(exact)
        except (ArithmeticError, ValueError):
            raise NotAllowedError from None
        if not math.isfinite(as_float) or (kind is int and exact != int(exact)):
            raise NotAllowedError
        taken = int(exact) if kind is int else as_float
        is_low = taken <= low if low_open else taken < low
        if is_low or (taken >= high if high_open else taken > high):
            raise NotAllowedError
        if kind is int and abs(taken) >= _TOO_LARGE:
            raise NotAllowedError(f"{allowed}, below 2^63")
        return taken

    return Rule(allowed, parse)


def one_of(names: Collection[str]) -> Rule:
    """Allow some words."""
    names = tuple(names)  # a value without a hash cannot be looked up in a dict

    def parse(value: Any) -> str:
        if value not in names:
            raise NotAllowedError
        return str(value)

    words = [word for word in names if word]
    kinds = ["empty"] * ("" in names) + [f"one of {', '.join(words)}"] * bool(words)
    return Rule(" or ".join(kinds), parse, words=names)


def or_words(rule: Rule, *words: str) -> Rule:
    """Allow some words, too."""
    choices = " or ".join(f'"{word}"' for word in words)

    def parse(value: Any) -> Any:
        return str(value) if value in words else rule.parse(value)

    return Rule(f"{rule.allowed}, or {choices}", parse, words=(*rule.words, *words))


def or_none(rule: Rule, word: str) -> Rule:
    """Allow a word that means None, too."""

    def parse(value: Any) -> Any:
        return None if value == word else rule.parse(value)

    return replace(or_words(rule, word), parse=parse, none=word)


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise NotAllowedError


BOOLEAN = Rule("true or false", _parse_boolean)
TEXT = Rule("text", str)
COUNT = number(int, 1)
NATURAL = number(int, 0)
POSITIVE = number(float, 0, low_open=True)
SHARE = number(float, 0, 1, low_open=True)
