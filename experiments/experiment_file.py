"""An experiment file: the federations that a paper compares, its numbers and its claims."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from experiments.claims import STRICT, Claim, Explanation
from fl_app.config.run_config import DEFAULTS, Config, parse_config
from fl_app.sweeps.measures import check_measure
from fl_core.json_records import checker, validation_message

SHARED = ""
"""The name of the simulation of all strategies that share their options."""
OURS = "ours"
"""The `paper` of an experiment without one."""
Number = tuple[float, float | None]
"""A published mean and its standard deviation, if any."""
PublishedCell = Mapping[str, Annotated[Sequence[float], Field(min_length=1, max_length=2)]]
Published = Mapping[str, Mapping[str, PublishedCell]]
Keys = Mapping[str, Mapping[str, Any]]

_NOT_GIVEN = ("seed", "repeats", "output-dir", "data-dir")  # said by the seed, or on the way


@dataclass(frozen=True)
class Experiment:
    """A grid of federations, each row with each column (docs/results.md)."""

    __pydantic_config__ = STRICT
    name: str  # the file's, without its ending
    paper: str
    title: str
    source: str
    seeds: int  # their number, from 0 on
    rows: Keys
    columns: Keys
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # what the paper leaves open
    quick: Mapping[str, Any] = field(default_factory=dict)  # options of a small version
    variants: Keys = field(default_factory=dict)  # further methods: one strategy with options each
    measures: Sequence[str] = ("accuracy",)
    picture: Literal["table", "rounds", "tasks", "sweep", "none"] = "table"
    needs: str = ""  # such as a data set that must be there
    page: str = ""  # the experiment whose page it is part of; empty: it has its own
    deviates: str = ""  # from the paper, in a sentence for the front page
    published_runs: Annotated[int, Field(ge=0)] = 0  # behind a published mean; 0: not known
    published: Mapping[str, Published] = field(default_factory=dict)
    digits: Annotated[int, Field(ge=0, le=9)] = 1  # of accuracies, as in the paper
    # The accuracy of guessing, in percent: of a method hardly above it no claim is judged. 0 where
    # no method comes near it unless that is a result.
    chance: float = 0.0
    claims: Sequence[Claim] = ()
    explanations: Sequence[Explanation] = ()
    small: bool = False

    def __post_init__(self) -> None:
        if self.seeds < 1 or not self.rows or not self.columns or not self.measures:
            raise ValueError("it needs a row, a column, a seed and a measure at least.")
        for measure in (*self.measures, *self.published):
            check_measure(measure)
        if self.picture == "sweep":
            for column in self.columns:
                _check_number(column)
        self._check_cells()
        self._check_names()

    def runs(self) -> tuple[str, ...]:
        """Return the simulations of each cell: that of all strategies, and each variant."""
        return (SHARED, *self.variants) if "strategy" in self.options else tuple(self.variants)

    def as_small(self) -> Experiment:
        """Return a version that ends within minutes: one row, two columns, two variants, one seed.

        Its claims and published numbers are left out, since it says nothing of them.
        """
        return replace(
            self,
            rows=dict(islice(self.rows.items(), 1)),
            columns=dict(islice(self.columns.items(), 2)),
            variants=dict(islice(self.variants.items(), 2)),
            seeds=1,
            claims=(),
            published={},
            explanations=(),
            small=True,
        )

    def given(self, row: str, column: str, seed: int, variant: str = "") -> dict[str, Any]:
        """Return the run-config keys that a simulation of one seed sets."""
        special = self.variants[variant] if variant else {}
        small = self.quick if self.small else {}
        cell = {**self.options, **self.rows[row], **self.columns[column], **special, **small}
        return {**cell, "seed": seed, "repeats": 1}

    @staticmethod
    def config(given: Mapping[str, Any]) -> Config:
        """Return the configuration of a simulation, checked."""
        return parse_config({**DEFAULTS, **given})

    def methods(self) -> tuple[str, ...]:
        """Return the compared methods in order: strategies, then variants."""
        row, column = next(iter(self.rows)), next(iter(self.columns))
        if SHARED not in self.runs():
            return tuple(self.variants)
        return (*self.config(self.given(row, column, 0)).strategy, *self.variants)

    def stated(self, measure: str, row: str, column: str, method: str) -> Number | None:
        """Return the published mean and std, if there are any."""
        cell = self.published.get(measure, {}).get(row, {}).get(column, {})
        values = cell.get(method)
        if values is None:
            return None
        return float(values[0]), float(values[1]) if len(values) > 1 else None

    def _check_cells(self) -> None:
        if not self.runs():
            raise ValueError(
                "there is nothing to run: give a strategy in [options], or [variants]."
            )
        for group, never in (
            (self.options, _NOT_GIVEN),
            *((keys, (*_NOT_GIVEN, "strategy")) for keys in self.rows.values()),
            *((keys, (*_NOT_GIVEN, "strategy")) for keys in self.columns.values()),
            *((keys, _NOT_GIVEN) for keys in self.variants.values()),
        ):
            if wrong := sorted(set(group) & set(never)):
                raise ValueError(f"{wrong[0]} cannot be given there: leave it out.")
        for row in self.rows:
            for column in self.columns:
                for variant in self.runs():
                    compared = self.config(self.given(row, column, 0, variant)).strategy
                    if variant and len(compared) > 1:
                        raise ValueError(f"the variant {variant} has more than one strategy.")

    def _check_names(self) -> None:
        methods = self.methods()
        if parted := [name for name in self.variants if "," in name]:
            raise ValueError(
                f'the variant "{parted[0]}" has a comma in its name, which parts names in claims: '
                "write it without."
            )
        if len(set(methods)) < len(methods):
            raise ValueError(f"two methods have one name, of {', '.join(methods)}.")
        if unshown := sorted(set(self.published) - set(self.measures)):
            raise ValueError(f"{unshown[0]} has published numbers, but is not among the measures.")
        for by_row in self.published.values():
            _check_known(by_row, self.rows, "a published number")
            for by_column in by_row.values():
                _check_known(by_column, self.columns, "a published number")
                for cell in by_column.values():
                    _check_known(cell, methods, "a published number")
        for what, named in (
            *((f'the claim "{claim.says}"', claim.named) for claim in self.claims),
            *((f'the explanation "{one.text}"', one.named) for one in self.explanations),
        ):
            for names, known in zip(named, (methods, self.rows, self.columns), strict=True):
                _check_known(names, known, what)


def _check_known(names: Iterable[str], known: Collection[str], where: str) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"{where} names {unknown[0]}, but there are {', '.join(known)}.")


def _check_number(column: str) -> None:
    try:
        float(column)
    except ValueError:
        raise ValueError(
            f'the column "{column}" is not a number, as a sweep\'s columns must be.'
        ) from None


def list_experiments(folder: Path) -> list[Experiment]:
    """Return the experiments of a folder, by name; a ValueError if there is no such folder."""
    return [read_experiment(path) for path in _files(folder)]


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder} here: go to where fedkin's sources are, or give the path "
            "of a .toml file."
        )
    return sorted(folder.glob("*.toml"))


def find_experiment(name: str, folder: Path) -> Path:
    """Return the file that a name or a path means; a ValueError if there is none."""
    if name.endswith(".toml"):
        return Path(name)
    path = folder / f"{name}.toml"
    known = ", ".join(one.stem for one in _files(folder)) or "none"
    if not path.is_file():
        raise ValueError(
            f'there is no experiment "{name}": {folder} has {known}; or give the path of a .toml '
            "file."
        )
    return path


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file and check each of its cells; a ValueError says what is wrong."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        if never := sorted({"name", "small"} & read.keys()):
            raise ValueError(f"there is no key {never[0]}: leave it out.")
        # As JSON: its tables may be dataclasses, and its numbers are not texts.
        written = json.dumps({"name": path.stem, **read}, default=str)
        experiment: Experiment = checker(Experiment).validate_json(written)
        experiment.as_small()  # checks its cells, too
    except ValidationError as error:
        said = validation_message(error, "docs/results.md")
        raise ValueError(f"the experiment {path}: {said}") from error
    except ValueError as error:
        raise ValueError(f"the experiment {path}: {error}") from error
    return experiment
