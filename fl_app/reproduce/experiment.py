"""An experiment file: which federations a paper compares, and what it published and claims."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from fl_app.config import Config, parse_config
from fl_app.flower_app import installed_app, read_defaults
from fl_app.reproduce.measures import check_measure

RELATIONS = ("above", "below", "within")
STATISTICS = ("mean", "std")
PICTURES = ("table", "rounds", "tasks", "sweep", "none")
Number = tuple[float, float | None]
"""A published mean and its standard deviation, if any."""


@dataclass(frozen=True)
class Claim:
    """What a paper says of a method, to be judged in every cell.

    Attributes
    ----------
    says : str
        In words.
    left : str
        A method, or several separated by commas: then it must hold for each.
    relation : str
        "above": left's mean exceeds right's by `points` or more; "below": it is lower by so much;
        "within": they differ by no more.
    right : str or float
        A method, several, or a number.
    points : float
        In the measure's unit.
    measure : str
        What is compared.
    statistic : str
        Of its values over the seeds: "mean" or "std", which needs two seeds.
    rows, columns : sequence of str
        Where; empty: everywhere.
    against : mapping of str
        The row, the column or the measure that right's number is of, where it is not left's.
    paper : str
        Whose claim it is, if it is not the experiment's paper's.
    """

    says: str
    left: str
    relation: str
    right: str | float
    points: float = 0.0
    measure: str = "accuracy"
    statistic: str = "mean"
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    against: Mapping[str, str] = field(default_factory=dict)
    paper: str = ""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("relation", self.relation, RELATIONS),
            ("statistic", self.statistic, STATISTICS),
        ):
            if value not in allowed:
                raise ValueError(
                    f'a claim\'s {name} is "{value}", but it must be {", ".join(allowed)}.'
                )
        if wrong := sorted(set(self.against) - {"row", "column", "measure"}):
            raise ValueError(f"a claim is against a row, column or measure, not a {wrong[0]}.")
        for measure in self.measures:
            check_measure(measure)

    @property
    def lefts(self) -> list[str]:
        """Return the methods that it speaks of."""
        return _names(self.left)

    @property
    def rights(self) -> list[str]:
        """Return those that they are compared with; none where that is a number."""
        return _names(self.right)

    @property
    def measures(self) -> tuple[str, str]:
        """Return left's measure and right's."""
        return self.measure, self.against.get("measure", self.measure)

    def is_of(self, row: str, column: str) -> bool:
        """Return whether it is said of a cell."""
        in_row = not self.rows or row in self.rows
        return in_row and (not self.columns or column in self.columns)

    def holds(self, lefts: Sequence[float], rights: Sequence[float]) -> bool:
        """Return whether it does, by the numbers of left's methods and of right's."""
        return all(
            self._is_met(left - right) for left in lefts for right in rights or [float(self.right)]
        )

    def _is_met(self, difference: float) -> bool:
        if self.relation == "within":
            return abs(difference) <= self.points
        return (difference if self.relation == "above" else -difference) >= self.points


@dataclass(frozen=True)
class Explanation:
    """Why our numbers differ from the published ones, as far as an experiment found it out.

    Attributes
    ----------
    text : str
    rows, columns, methods : sequence of str
        What it explains; empty: all.
    """

    text: str
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    methods: Sequence[str] = ()

    def covers(self, row: str, column: str, method: str) -> bool:
        """Return whether it explains a cell's method."""
        wanted = ((self.rows, row), (self.columns, column), (self.methods, method))
        return all(not names or name in names for names, name in wanted)


@dataclass(frozen=True)
class Experiment:
    """A grid of federations; every row meets every column.

    Attributes
    ----------
    name : str
        The file's, without its ending.
    paper : str
        Whose claims they are.
    title, source, note : str
        What it is, where it was published, and what the paper leaves open.
    seeds : int
        How many, from 0 on.
    rows, columns : mapping of mappings
        The run-config keys of each row and column, by its name.
    options, quick : mapping
        Run-config keys of all cells, and those that make a small version of them.
    variants : mapping of mappings
        Further methods, by name: one strategy with options of its own.
    measures : sequence of str
        What is tabulated: see `fl_app.reproduce.measures`.
    picture : str
        "table": published beside measured; "rounds": curves; "tasks": curves of each task; "sweep":
        against the columns, whose names are numbers; "none".
    needs : str
        What must be there for it that is not everywhere: a data set, say.
    published : mapping
        From measure, row, column and method to a mean and its standard deviation, if any.
    claims : sequence of Claim
    explanations : sequence of Explanation
    small : bool
        Whether it is the small version.
    """

    name: str
    paper: str
    title: str
    source: str
    seeds: int
    rows: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    quick: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    measures: Sequence[str] = ("accuracy",)
    picture: str = "table"
    needs: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    explanations: Sequence[Explanation] = ()
    small: bool = False

    def __post_init__(self) -> None:
        if self.picture not in PICTURES:
            raise ValueError(f'picture is "{self.picture}", but it must be {", ".join(PICTURES)}.')
        if self.seeds < 1 or not self.rows or not self.columns or not self.measures:
            raise ValueError("it needs a row, a column, a seed and a measure at least.")
        for measure in (*self.measures, *self.published):
            check_measure(measure)
        self._check_cells()
        self._check_names()

    def runs(self) -> tuple[str, ...]:
        """Return the simulations of each cell: one of all strategies, "", and each variant."""
        return ("", *self.variants) if "strategy" in self.options else tuple(self.variants)

    def as_small(self) -> Experiment:
        """Return a version that ends within minutes: two columns of the first row, one seed.

        Its claims and published numbers are left out, since it says nothing of them.
        """
        rows = dict(islice(self.rows.items(), 1))
        columns = dict(islice(self.columns.items(), 2))
        return replace(
            self,
            rows=rows,
            columns=columns,
            seeds=1,
            claims=(),
            published={},
            explanations=(),
            small=True,
        )

    def given(self, row: str, column: str, seed: int, variant: str = "") -> dict[str, Any]:
        """Return the run-config keys of a simulation that are not the defaults: one seed."""
        own = self.variants[variant] if variant else {}
        small = self.quick if self.small else {}
        cell = {**self.options, **self.rows[row], **self.columns[column], **own, **small}
        return {**cell, "seed": seed, "repeats": 1}

    @staticmethod
    def config(given: Mapping[str, Any]) -> Config:
        """Return the configuration of a simulation, checked."""
        return parse_config({**read_defaults(installed_app()), **given})

    def methods(self) -> tuple[str, ...]:
        """Return what is compared, in order: strategies, then variants."""
        row, column = next(iter(self.rows)), next(iter(self.columns))
        shared = self.config(self.given(row, column, 0)).strategy if "" in self.runs() else ()
        return (*shared, *self.variants)

    def stated(self, measure: str, row: str, column: str, method: str) -> Number | None:
        """Return what was published, if anything."""
        cell = self.published.get(measure, {}).get(row, {}).get(column, {})
        values = cell.get(method)
        if values is None:
            return None
        return float(values[0]), float(values[1]) if len(values) > 1 else None

    def _check_cells(self) -> None:
        for row in self.rows:
            for column in self.columns:
                for variant in self.runs():
                    compared = self.config(self.given(row, column, 0, variant)).strategy
                    if variant and len(compared) > 1:
                        raise ValueError(f"the variant {variant} has more than one strategy.")

    def _check_names(self) -> None:
        methods = set(self.methods())
        for by_row in self.published.values():
            for row, by_column in by_row.items():
                for column, cell in by_column.items():
                    if row not in self.rows or column not in self.columns:
                        raise ValueError(
                            f"it has published numbers for {row}, {column}, which is no cell."
                        )
                    if unknown := sorted(set(cell) - methods):
                        raise ValueError(
                            f"{unknown[0]} has a published number, but is not compared."
                        )
                    if any(not 1 <= len(values) <= 2 for values in cell.values()):
                        raise ValueError("a published number is a mean, and a std if there is one.")
        named = {name for claim in self.claims for name in (*claim.lefts, *claim.rights)}
        named |= {name for one in self.explanations for name in one.methods}
        judged: tuple[Claim | Explanation, ...] = (*self.claims, *self.explanations)
        for names, known in (
            (named, methods),
            ({row for one in judged for row in one.rows}, set(self.rows)),
            ({column for one in judged for column in one.columns}, set(self.columns)),
            ({one.against["row"] for one in self.claims if "row" in one.against}, set(self.rows)),
            (
                {one.against["column"] for one in self.claims if "column" in one.against},
                set(self.columns),
            ),
        ):
            if unknown := sorted(names - known):
                raise ValueError(
                    f"a claim or an explanation names {unknown[0]}, which is not compared."
                )


_KEYS = {one.name for one in fields(Experiment)} - {"name", "small"}


def list_experiments(folder: Path) -> list[Experiment]:
    """Return those of a folder, by name."""
    return [read_experiment(path) for path in sorted(folder.glob("*.toml"))]


def find_experiment(name: str, folder: Path) -> Path:
    """Return the file that a name or a path means.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name.endswith(".toml"):
        return Path(name)
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.toml"))) or "none"
        raise ValueError(
            f'there is no experiment "{name}": {folder} has {known}; or give the path of a .toml '
            "file."
        )
    return path


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file and check each of its cells.

    Raises
    ------
    ValueError
        If it is not such a file, with its name and what is wrong: a key, a cell's configuration, a
        published number of no cell.
    OSError
        If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
        if wrong := sorted(set(read) - _KEYS):
            raise ValueError(f"{wrong[0]} is not a key: they are {', '.join(sorted(_KEYS))}.")
        claims = tuple(Claim(**one) for one in read.pop("claims", ()))
        explanations = tuple(Explanation(**one) for one in read.pop("explanations", ()))
        experiment = Experiment(path.stem, claims=claims, explanations=explanations, **read)
        experiment.as_small()  # checks its cells, too
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"the experiment {path}: {error}") from error
    return experiment


def _names(text: str | float) -> list[str]:
    return [name.strip() for name in text.split(",")] if isinstance(text, str) else []
