"""The plan of a sweep: the product of lists of values, checked before anything starts."""

import hashlib
import itertools
import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fl_app.config.run_config import DEFAULTS, options_for, parse_config, parse_override
from fl_app.config.unused_options import unmet_condition
from fl_app.results.layout import file_name
from fl_app.sweeps.store import Key, Simulation, local_data
from fl_core.options import Rule, Scalar, key_values, typed

Values = Mapping[str, Scalar | Sequence[Scalar]]
"""By run-config key: one value, or several to sweep."""

SEED = "seed"
_STRATEGY = "strategy"
_REFUSED = {
    "output-dir": "give the sweep's folder by --output",
    "resume": "call the sweep again: what is finished is not run again",
}


@dataclass(frozen=True)
class Point(Key):
    """A simulation of a sweep: the name of its folder, and its values of the swept keys."""

    cell: str
    values: Mapping[str, Scalar]

    def __str__(self) -> str:
        """Return the values as they are typed."""
        return ", ".join(key_values(self.values))


@dataclass(frozen=True)
class Sweep:
    """The swept keys with their values, the options that all share, and all simulations."""

    swept: Mapping[str, tuple[Scalar, ...]]
    options: Mapping[str, Scalar]
    simulations: Sequence[Simulation[Point]]

    def command(self, folder: Path) -> str:
        """Return the command that runs the sweep."""
        words = key_values(self.options)
        words += [f"{key}={_typed(key, values, words)}" for key, values in self.swept.items()]
        return shlex.join(["fedkin", "sweep", *words, "--output", str(folder)])

    def folder(self) -> Path:
        """Return the default folder: the same for more or fewer values."""
        config = {key: value for key, value in self.options.items() if key != "data-dir"}
        for one in self.simulations if "data-dir" not in self.swept else ():
            config |= local_data(one.given)
        text = json.dumps([sorted(config.items()), sorted(self.swept)])
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return Path("results") / f"sweep-{'-'.join(sorted(self.swept))}-{digest}"


def read_words(words: Sequence[str]) -> dict[str, Scalar | list[Scalar]]:
    """Read KEY=VALUE, KEY=VALUE,VALUE and KEY=[VALUE, VALUE].

    A value with commas that the key itself takes, such as `tasks=0,1|2,3`, is one value; several of
    these are a TOML list of texts.

    Examples
    --------
    >>> read_words(["noise-rate=0,0.2", "strategy=rcc-pfl,single", "clients-per-task=5,3"])
    {'noise-rate': [0, 0.2], 'strategy': 'rcc-pfl,single', 'clients-per-task': '5,3'}
    """
    found: dict[str, Scalar | list[Scalar]] = {}
    pairs = [parse_override(word) for word in words]
    strategies = "".join(str(value) for key, value in pairs if key == _STRATEGY)
    options = options_for(strategies.strip("[]").replace('"', "").replace(" ", "").split(","))
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is given twice: give it once, with a list of its values.")
        if key not in options:
            parse_config({**DEFAULTS, key: value})  # says so, and what may be meant
        found[key] = _read_list(key, value, options[key].rule) if isinstance(value, str) else value
    return found


def _read_list(key: str, text: str, rule: Rule) -> Scalar | list[Scalar]:
    if text.startswith("["):
        try:
            values = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values = None
        if not isinstance(values, list) or not all(isinstance(v, Scalar) for v in values):
            raise ValueError(
                f"{key} is {text}, which is not a list of values: write it as in TOML, such as "
                f"'{key}=[1, 2]' or '{key}=[\"a\", \"b\"]', in quotes for the shell."
            )
        return values
    if key == _STRATEGY:
        return text
    if "," not in text or _takes(rule, text):
        return _number_or(text, rule)
    parts = (part.strip() for part in text.split(","))
    return [_number_or(parse_override(f"{key}={part}")[1], rule) for part in parts]


def _number_or(value: Scalar, rule: Rule) -> Scalar:
    """Return the number that a text means to a key with a default such as `auto`."""
    with suppress(ValueError):
        read = rule.read("", value)
        if isinstance(value, str) and isinstance(read, int | float):
            return read
    return value


def _takes(rule: Rule, text: str) -> bool:
    """Return whether a text with commas is one value of an option."""
    try:
        rule.read("", text)
    except ValueError:
        return False
    return True


def plan_sweep(given: Values) -> Sweep:
    """Return the sweep over the product of all lists among the values, after all checks.

    Several strategies are no list: each simulation runs all of them. A ValueError says which value
    is not allowed, or that nothing is swept.
    """
    options: dict[str, Scalar] = {}
    swept: dict[str, tuple[Scalar, ...]] = {}
    for key, value in given.items():
        if key in _REFUSED:
            raise ValueError(f"{key} cannot be given in a sweep: {_REFUSED[key]}.")
        if isinstance(value, Scalar):
            options[key] = _plain(value)
        elif key == _STRATEGY:
            options[key] = ",".join(map(str, value))
        elif len(value) == 1:
            options[key] = _plain(value[0])
        else:
            swept[key] = tuple(map(_plain, value))
    if empty := [key for key, values in swept.items() if not values]:
        raise ValueError(f"{empty[0]} has an empty list: give it values.")
    points = [
        dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())
    ]
    simulations = [Simulation.of(Point(_name(one), one), {**options, **one}) for one in points]
    if not swept:
        raise ValueError(
            "nothing is swept: give a key several values, such as num-tasks=2,3, or use fedkin run."
        )
    _check_differ(swept, simulations)
    return Sweep(swept, options, simulations)


def _plain(value: Scalar) -> Scalar:
    """Return a whole number as an int, so that 0 and 0.0 have one name."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_differ(
    swept: Mapping[str, tuple[Scalar, ...]], simulations: Sequence[Simulation[Point]]
) -> None:
    """Refuse repeated values, and keys without an effect."""
    if SEED in swept and any(one.config.repeats > 1 for one in simulations):
        raise ValueError("seed is swept, but repeats sets seeds, too: give one of them.")
    for key in swept:
        where = [unmet_condition(key, one.config) for one in simulations]
        if all(where):
            raise ValueError(f"{key} is swept, but has no effect: it is used only {where[0]}.")
    for first, other in itertools.combinations(simulations, 2):
        if first.options == other.options:
            raise ValueError(
                f"{first.key} and {other.key} are the same simulation: leave one of them out, "
                "or choose a strategy that uses what is swept."
            )


def _typed(key: str, values: Sequence[Scalar], others: Sequence[str] = ()) -> str:
    """Return a list of values as it is typed, with commas where they are read as a list.

    `others` are other words of the command: a user-defined strategy in them has more keys.

    Examples
    --------
    >>> _typed("noise-rate", [0, 0.2]), _typed("tasks", ["0,1|2", "0|1,2"])
    ('0,0.2', '["0,1|2", "0|1,2"]')
    """
    text = ",".join(map(typed, values))
    named = [word for word in others if word.startswith("strategy=")]
    if read_words([*named, f"{key}={text}"])[key] == list(values):
        return text
    return json.dumps(list(values), ensure_ascii=False)


def _name(values: Mapping[str, Scalar]) -> str:
    """Return the name of a simulation's folder, unique and independent of the order of keys."""
    return file_name(",".join(key_values(dict(sorted(values.items())))))
