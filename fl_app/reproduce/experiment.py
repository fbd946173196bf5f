"""An experiment file: which federations a paper's table compares, and what it published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl_app.config import Config, parse_config
from fl_app.flower_app import installed_app, read_defaults

RELATIONS = ("above", "within")
Published = Mapping[str, Mapping[str, Mapping[str, tuple[float, float | None]]]]
_KEYS = {"title", "source", "note", "seeds", "options", "quick", "rows", "columns", "published"}


@dataclass(frozen=True)
class Claim:
    """What a paper says of two strategies, to be judged in every cell.

    Attributes
    ----------
    says : str
        In words.
    left, right : str
        Strategies.
    relation : str
        "above": left's mean accuracy exceeds right's by `points` or more; "within": they differ by
        no more than `points`.
    points : float
        Percentage points.
    """

    says: str
    left: str
    relation: str
    right: str
    points: float = 0.0

    def holds(self, means: Mapping[str, float]) -> bool:
        """Return whether it does, by each strategy's mean accuracy in percent."""
        difference = means[self.left] - means[self.right]
        return (
            difference >= self.points
            if self.relation == "above"
            else (abs(difference) <= self.points)
        )


@dataclass(frozen=True)
class Experiment:
    """A grid of federations; every row meets every column.

    Attributes
    ----------
    name : str
        The file's, without its ending.
    title, source, note : str
        What it is, where it was published, and what the paper leaves open.
    seeds : int
        How many, from 0 on.
    options, quick : mapping
        Run-config keys of all cells, and those that make a small version.
    rows, columns : mapping of mappings
        The run-config keys of each row and column, by its name.
    published : mapping
        From row, column and strategy to accuracy and its standard deviation, if any, in percent.
    claims : tuple of Claim
    """

    name: str
    title: str
    source: str
    seeds: int
    options: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, Mapping[str, Any]]
    note: str = ""
    quick: Mapping[str, Any] = field(default_factory=dict)
    published: Published = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    def given(self, row: str, column: str, seed: int, *, quick: bool = False) -> dict[str, Any]:
        """Return the run-config keys of a cell that are not the defaults: one seed, one run."""
        small = self.quick if quick else {}
        cell = {**self.options, **self.rows[row], **self.columns[column], **small}
        return {**cell, "seed": seed, "repeats": 1}

    def config(self, row: str, column: str, seed: int, *, quick: bool = False) -> Config:
        """Return a cell's configuration, checked."""
        given = self.given(row, column, seed, quick=quick)
        return parse_config({**read_defaults(installed_app()), **given})

    def strategies(self) -> tuple[str, ...]:
        """Return what is compared, in order."""
        row, column = next(iter(self.rows)), next(iter(self.columns))
        return self.config(row, column, 0).strategy


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
        claims = tuple(_claim(one) for one in read.pop("claims", ()))
        if wrong := sorted(set(read) - _KEYS):
            raise ValueError(f"{wrong[0]} is not a key: they are {', '.join(sorted(_KEYS))}.")
        published = {
            row: {column: _numbers(cell) for column, cell in columns.items()}
            for row, columns in read.pop("published", {}).items()
        }
        experiment = Experiment(
            path.stem, **{"options": {}, **read}, published=published, claims=claims
        )
        _check(experiment)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"the experiment {path}: {error}") from error
    return experiment


def _numbers(cell: Mapping[str, list[float]]) -> dict[str, tuple[float, float | None]]:
    found = {}
    for strategy, values in cell.items():
        if not 1 <= len(values) <= 2:
            raise ValueError(f"{strategy} has {len(values)} published numbers: a mean, and a std.")
        found[strategy] = (float(values[0]), float(values[1]) if len(values) > 1 else None)
    return found


def _claim(read: Mapping[str, Any]) -> Claim:
    claim = Claim(**read)
    if claim.relation not in RELATIONS:
        raise ValueError(
            f'a claim\'s relation is "{claim.relation}", but it must be {" or ".join(RELATIONS)}.'
        )
    return claim


def _check(experiment: Experiment) -> None:
    if experiment.seeds < 1 or not experiment.rows or not experiment.columns:
        raise ValueError("it needs a row, a column and a seed at least.")
    for quick in (False, True):
        for row in experiment.rows:
            for column in experiment.columns:
                experiment.config(row, column, 0, quick=quick)
    strategies = set(experiment.strategies())
    for row, columns in experiment.published.items():
        for column, cell in columns.items():
            if row not in experiment.rows or column not in experiment.columns:
                raise ValueError(f"it has published numbers for {row}, {column}, which is no cell.")
            if unknown := sorted(set(cell) - strategies):
                raise ValueError(f"{unknown[0]} has a published number, but is not compared.")
    for claim in experiment.claims:
        if unknown := sorted({claim.left, claim.right} - strategies):
            raise ValueError(f"a claim names {unknown[0]}, which is not compared.")
