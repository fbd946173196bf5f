"""Claims of a paper on its methods, and explanations of differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from fl_app.sweeps.measures import check_measure

STRICT = ConfigDict(strict=True, extra="forbid")
RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "above": lambda difference, points: difference > points,
    "at least": lambda difference, points: difference >= points,
    "below": lambda difference, points: -difference > points,
    "at most": lambda difference, points: -difference >= points,
    "within": lambda difference, points: abs(difference) <= points,
}
"""Whether a claim holds, by the difference of left and right, and the points."""
Named = tuple[Sequence[str], Sequence[str], Sequence[str]]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper on a method, judged in each cell (docs/results.md).

    "above" or "below": by more than `points`; "at least" or "at most": right plus or minus
    `points`; "within": no further apart than `points`.
    """

    __pydantic_config__ = STRICT
    says: str
    left: str  # a method, or several separated by commas: it must hold for each
    relation: Literal["above", "at least", "below", "at most", "within"]
    right: str | float  # a method, several, or a number
    points: float = 0.0  # in the measure's unit
    ahead: float = 0.0  # subtracted from left minus right, which is then compared with `points`
    measure: str = "accuracy"
    # "std": only "above" and "below" can be judged; "each seed": of every run, not of their mean.
    statistic: Literal["mean", "std", "each seed"] = "mean"
    rows: Sequence[str] = ()  # none: all
    columns: Sequence[str] = ()
    # The row, column or measure of right's number, where it is not left's.
    against: Mapping[Literal["row", "column", "measure"], str] = field(default_factory=dict)
    paper: str = ""  # if not the experiment's
    headline: bool = False  # whether the front page shows it

    def __post_init__(self) -> None:
        """Refuse unknown measures, and claims on spreads that no test can judge."""
        for measure in self.measures:
            check_measure(measure)
        if self.against and not self.rights:
            raise ValueError(
                f'the claim "{self.says}" has against, which says where the number of right is, '
                f"but right is {self.right}: leave one out."
            )
        if self.statistic == "std" and (
            self.relation not in ("above", "below") or self.points or self.ahead or not self.rights
        ):
            raise ValueError(
                f'the claim "{self.says}" is of std: a method\'s can be above or below another '
                "method's, by no number of points."
            )

    @property
    def lefts(self) -> list[str]:
        """Return the methods on the left side."""
        return _names(self.left)

    @property
    def rights(self) -> list[str]:
        """Return the methods on the right side; none if it is a number."""
        return _names(self.right) if isinstance(self.right, str) else []

    @property
    def measures(self) -> tuple[str, str]:
        """Return the measures of both sides."""
        return self.measure, self.against.get("measure", self.measure)

    @property
    def named(self) -> Named:
        """Return the methods, rows and columns that it names."""
        other = {
            key: [self.against[key]] if key in self.against else [] for key in ("row", "column")
        }
        return (
            [*self.lefts, *self.rights],
            [*self.rows, *other["row"]],
            [*self.columns, *other["column"]],
        )

    def is_of(self, row: str, column: str) -> bool:
        """Return whether the claim is about a cell."""
        in_row = not self.rows or row in self.rows
        return in_row and (not self.columns or column in self.columns)

    def is_of_all(self, low: float, high: float) -> bool | None:
        """Return whether the claim holds for all differences of an interval; None if for some."""
        is_true = RELATIONS[self.relation]
        # Rounded, since 87.3 - 87.0 is less than 0.3 in binary numbers.
        low, high = (round(one - self.ahead, 9) for one in (low, high))
        if is_true(low, self.points) and is_true(high, self.points):
            return True
        nearest = min(max(low, 0.0), high)  # to "within"
        return None if any(is_true(one, self.points) for one in (low, nearest, high)) else False


@dataclass(frozen=True)
class Explanation:
    """Why our numbers differ from the published ones; empty fields stand for all."""

    __pydantic_config__ = STRICT
    text: str
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    methods: Sequence[str] = ()
    measures: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse unknown measures."""
        for measure in self.measures:
            check_measure(measure)

    @property
    def named(self) -> Named:
        """Return the methods, rows and columns that it names."""
        return self.methods, self.rows, self.columns

    def covers(self, measure: str, row: str, column: str, method: str) -> bool:
        """Return whether the explanation is about a method's number in a cell."""
        covered = (
            (self.measures, measure),
            (self.rows, row),
            (self.columns, column),
            (self.methods, method),
        )
        return all(not names or name in names for names, name in covered)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
