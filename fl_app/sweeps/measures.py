"""The measures of runs that tables and pictures of sweeps and experiments show."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fl_core.data.settings import TESTS, name_of_test
from fl_core.messages import protocol
from fl_core.text import rounded

Stored = Mapping[str, Any]
_WAYS = ("up", "down")
CLOSE = 0.99
"""The share of the final accuracy that counts as reached."""
ROUNDING = 1e-12  # of a number


@dataclass(frozen=True)
class Measure:
    """A number that is computed from the stored results of a run."""

    words: str  # with its unit
    value: Callable[..., float]  # of the stored results, and of its arguments
    digits: int | None = None  # after the point, or significant; None: as the experiment says
    limits: tuple[float, float] | None = None  # its range, with a little room in a picture
    num_arguments: int = 0  # such as the two tasks of `relevance:1-2`
    is_significant: bool = False  # whether digits are: the unit may be euros or nanometres

    def format(self, value: float, digits: int, sign: str = "", *, beside: float = 0) -> str:
        """Return a number with so many digits, and with its sign if `sign` is "+".

        Significant digits go as far as the first two of the spread `beside` the number, if any.
        """
        if not self.is_significant:
            return f"{rounded(value, digits):{sign}z.{digits}f}"
        if beside:
            digits = max(digits, 2 + _magnitude(value) - _magnitude(beside))
        return f"{value:{sign}z#.{digits}g}".rstrip(".")


def _magnitude(value: float) -> int:
    """Return the power of ten of the first digit of a number; of 0, 0."""
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _bytes(stored: Stored, *parts: str) -> float:
    """Return the mean megabytes of a client."""
    total = sum(stored["bytes"][f"{part}-{way}"] for part in parts for way in _WAYS)
    return float(total / 1e6 / _clients(stored))


def tested_rounds(stored: Stored, score: str = "accuracy") -> dict[int, Mapping[str, Any]]:
    """Return the rounds in which a metric was measured, ascending."""
    rounds = {int(number): one for number, one in stored["rounds"].items() if score in one}
    return dict(sorted(rounds.items()))


def arrival(stored: Stored) -> tuple[float, float]:
    """Return the first tested round with 99 % of the final accuracy, and the megabytes until then.

    Those of a client on average, for finding clusters and for training. NaN if none was tested.
    """
    tested = tested_rounds(stored)
    if not tested:
        return math.nan, math.nan
    final = tested[max(tested)]["accuracy"]
    first = min(number for number, one in tested.items() if one["accuracy"] >= CLOSE * final)
    return first, tested[first]["bytes"] / 1e6 / _clients(stored)


def _clients(stored: Stored) -> int:
    """Return the number of clients in clusters at the end, at least one."""
    return max(1, sum(int(cluster) >= 0 for cluster in stored["clusters"]))


def _gain(stored: Stored) -> float:
    """Return the accuracy that the last third of the rounds added, in percentage points."""
    tested = tested_rounds(stored)
    before = [number for number in tested if 3 * number <= 2 * max(tested)]
    if not before:
        return math.nan
    return 100 * float(tested[max(tested)]["accuracy"] - tested[before[-1]]["accuracy"])


def _task(stored: Stored, task: int) -> float:
    last = stored["rounds"][max(stored["rounds"], key=int)]
    return 100 * float(last["accuracy-per-task"][str(task - 1)])


def _relevance(stored: Stored, one: int, other: int) -> float:
    value = stored["similarity-per-task"][one - 1][other - 1]
    return math.nan if value is None else float(value)


def _other_test(name: str) -> Callable[[Stored], float]:
    return lambda stored: 100 * float(stored[name]["accuracy"])


MEASURES: dict[str, Measure] = {
    "accuracy": Measure("accuracy %", lambda stored: 100 * stored["accuracy"]),
    "balanced-accuracy": Measure(
        "balanced accuracy %", lambda stored: 100 * stored["balanced-accuracy"]
    ),
    **{
        name_of_test(test): Measure(f"accuracy % {words}", _other_test(name_of_test(test)))
        for test, words in TESTS.items()
    },
    "variance": Measure("variance over clients", lambda stored: 1e4 * stored["accuracy-variance"]),
    "rmse": Measure("RMSE", lambda stored: stored["rmse"], 4, is_significant=True),
    "mae": Measure("MAE", lambda stored: stored["mae"], 4, is_significant=True),
    "r2": Measure("R²", lambda stored: stored["r2"], 3),
    protocol.USER_METRIC: Measure(
        "user-defined metric", lambda stored: stored[protocol.USER_METRIC], 4, is_significant=True
    ),
    "ari": Measure("ARI", lambda stored: stored["ari"], 2, (-0.15, 1.05)),
    "clusters": Measure("clusters", lambda stored: len(set(stored["clusters"]) - {-1}), 1),
    "isolated": Measure("attackers alone %", lambda stored: 100 * stored["malicious-isolated"], 0),
    "megabytes": Measure("MB a client", lambda stored: _bytes(stored, "pre-round", "train"), 2),
    "pre-round": Measure(
        "MB a client for finding clusters", lambda stored: _bytes(stored, "pre-round"), 2
    ),
    "arrival-round": Measure("first round with 99 %", lambda stored: arrival(stored)[0], 1),
    "arrival-megabytes": Measure("MB a client until 99 %", lambda stored: arrival(stored)[1], 2),
    "seconds": Measure("seconds", lambda stored: stored["seconds"]["total"], 0),
    "formula": Measure(
        "MB a client by the formula", lambda stored: stored["formula-bytes"] / 1e6, 2
    ),
    "gain": Measure("points gained in the last third of the rounds", _gain),
    "at": Measure(
        "accuracy % after round",
        lambda stored, n: 100 * stored["rounds"][str(n)]["accuracy"],
        num_arguments=1,
    ),
    "task": Measure("accuracy % in task", _task, num_arguments=1),
    "relevance": Measure("relevance of tasks", _relevance, 2, (0, 1.05), num_arguments=2),
}


def check_measure(text: str) -> None:
    """Raise a ValueError for an unknown measure, or one without its arguments."""
    name, _, argument = text.partition(":")
    if name not in MEASURES:
        raise ValueError(f'there is no measure "{text}": they are {", ".join(MEASURES)}.')
    numbers = argument.split("-") if argument else []
    count = MEASURES[name].num_arguments
    if len(numbers) != count or not all(n.isdecimal() and int(n) for n in numbers):
        example = (f"write {name}.", f"write {name}:1.", f"write {name}:1-2.")[count]
        raise ValueError(f'the measure "{text}" cannot be read: {example}')


def measure(text: str, stored: Stored) -> float:
    """Return a measure of the stored results of a run; NaN if the run does not have it."""
    name, _, argument = text.partition(":")
    numbers = [int(number) for number in argument.split("-")] if argument else []
    try:
        return float(MEASURES[name].value(stored, *numbers))
    except (KeyError, IndexError):
        return math.nan


def measure_of(text: str) -> Measure:
    """Return the measure without its arguments: the same for `relevance:1-2` and `:1-1`."""
    return MEASURES[text.partition(":")[0]]


def measure_title(text: str) -> str:
    """Return the title of a measure in a table."""
    name, _, argument = text.partition(":")
    words = MEASURES[name].words
    return f"{words} {argument.replace('-', ' and ')}" if argument else words


def format_measure(
    text: str,
    value: float,
    std: float | None = None,
    half: float | None = None,
    *,
    digits: int = 1,
    sign: bool = False,
) -> str:
    """Return a number of a measure for a table; `digits` are those of accuracies.

    `half` is half the width of the interval of its mean; it is omitted if it is shown as 0.
    """
    kind = measure_of(text)
    places = digits if kind.digits is None else kind.digits
    # Of equal numbers, the mean may be off by a rounding.
    spreads = [0.0 if one and one < ROUNDING * abs(value) else one for one in (std, half)]
    known = (one for one in spreads if one and math.isfinite(one))
    number = kind.format(value, places, "+" if sign else "", beside=next(known, 0.0))
    spread, width = ("" if one is None else kind.format(one, places) for one in spreads)
    interval = f" [± {width}]" if width and float(width) else ""
    return f"{number} ± {spread}{interval}" if spread else number + interval
