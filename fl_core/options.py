"""Options: dataclass fields that say what a run configuration may set them to, and what for.

An option is declared once, on what uses it. `fl_app.config` gathers and reads them all, and
`fl_app.options` writes them into pyproject.toml and docs/options.md.

Examples
--------
>>> @dataclass
... class Walk:
...     num_steps: int = option(10, number(int, 1), "how far")
>>> Walk()
Walk(num_steps=10)
>>> options_of(Walk)["num-steps"].rule.read("num-steps", 0)
Traceback (most recent call last):
ValueError: num-steps is 0, but it must be a whole number of at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any

Scalar = str | int | float | bool
_AS_READ: Any = object()


class NotAllowedError(Exception):
    """A rule's parser does not allow a value; the rule makes the sentence."""


@dataclass(frozen=True)
class Rule:
    """What an option may be.

    Attributes
    ----------
    allowed : str
        In words, after "it must be".
    parse : callable
        From a run-config value to what it means; raises `NotAllowedError`, or `ValueError` with a
        sentence of its own. TOML's and the command line's spellings both count.
    none : str
        The word that means None, if there is one.
    """

    allowed: str
    parse: Callable[[Any], Any]
    none: str = ""

    def read(self, key: str, value: Any) -> Any:
        """Return what a value of the run-config key `key` means.

        Raises
        ------
        ValueError
            If it is not allowed: one sentence that names the key, the value and what is allowed.
        """
        try:
            return self.parse(value)
        except NotAllowedError:
            raise refusal(key, value, self.allowed) from None


@dataclass(frozen=True)
class Option:
    """A run-config key's declaration.

    Attributes
    ----------
    default : str, int, float or bool
        As pyproject.toml has it.
    rule : Rule
    help : str
        What it means, in a sentence without a full stop.
    key : str
        The run-config key; empty: the field's name.
    """

    default: Scalar
    rule: Rule
    help: str
    key: str = ""


def option(
    run_default: Scalar, rule: Rule, meaning: str, *, key: str = "", default: Any = _AS_READ
) -> Any:
    """Return a dataclass field that is an option.

    Parameters
    ----------
    run_default, rule, meaning, key
        `Option`'s attributes.
    default : optional
        What the class has where nothing is said, `dataclasses.MISSING` for nothing; usually what
        `run_default` means.
    """
    declared = Option(run_default, rule, meaning, key)
    own = rule.read(key, run_default) if default is _AS_READ else default
    made: Any = field(default=own, metadata={"option": declared})
    return made


def key_of(one: Field[Any]) -> str:
    """Return the run-config key by which a dataclass's field is set."""
    declared = one.metadata.get("option")
    return (declared.key if declared else "") or one.name.replace("_", "-")


def options_of(owner: type) -> dict[str, Option]:
    """Return the options among the fields of a dataclass by run-config key, inherited ones, too."""
    declared = fields(owner) if is_dataclass(owner) else ()
    return {key_of(one): one.metadata["option"] for one in declared if "option" in one.metadata}


def refusal(key: str, value: Any, allowed: str) -> ValueError:
    """Return the error that says what a key is and what it must be."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return ValueError(f"{key} is {shown}, but it must be {allowed}.")


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
    allowed = f"{what} {'above' if low_open else 'of at least'} {low:g}"
    if high < float("inf"):
        allowed += f" and {'below' if high_open else 'at most'} {high:g}"

    def parse(value: Any) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise NotAllowedError
        try:
            found = float(value)
        except ValueError:
            raise NotAllowedError from None
        inside = (low < found if low_open else low <= found) and (
            found < high if high_open else found <= high
        )
        if not inside or found == float("inf") or (kind is int and found != int(found)):
            raise NotAllowedError
        return kind(found)

    return Rule(allowed, parse)


def one_of(names: Collection[str]) -> Rule:
    """Allow some words."""

    def parse(value: Any) -> str:
        if value not in names:
            raise NotAllowedError
        return str(value)

    return Rule(f"one of {', '.join(name or 'nothing' for name in names)}", parse)


def or_words(rule: Rule, *words: str) -> Rule:
    """Allow some words, too."""
    choices = " or ".join(f'"{word}"' for word in words)
    return Rule(
        f"{rule.allowed}, or {choices}",
        lambda value: str(value) if value in words else rule.parse(value),
    )


def or_none(rule: Rule, word: str) -> Rule:
    """Allow a word that means None, too."""
    wider = or_words(rule, word)
    return Rule(
        wider.allowed, lambda value: None if value == word else rule.parse(value), none=word
    )


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise NotAllowedError


boolean = Rule("true or false", _parse_boolean)
text = Rule("text", str)
