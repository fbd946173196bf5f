"""The results of runs as data frames and pictures."""

from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_app.results.layout import CELLS, CLIENTS, METRICS, SUMMARY, SWEEP, VERDICTS, similarity_path
from fl_app.results.reading import read_summary
from fl_app.results.schema import Summary
from fl_core.extras import load_extra

if TYPE_CHECKING:  # it comes by the extra simulation
    from pandas import DataFrame

_MIME_TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".pdf": "application/pdf"}


@dataclass(frozen=True)
class Picture:
    """A picture of a run, in its `figure-format`; a notebook shows it unless it is a PDF."""

    path: Path

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        kind, content = _MIME_TYPES[self.path.suffix], self.path.read_bytes()
        is_text = kind == "image/svg+xml"
        return {kind: content.decode() if is_text else b64encode(content).decode()}


def _pictures(folder: Path) -> dict[str, Picture]:
    files = [path for path in sorted(folder.glob("*.*")) if path.suffix in _MIME_TYPES]
    return {path.stem: Picture(path) for path in files}


class Results:
    """The results of a run: `simulate` and `load_results` return them.

    `summary` is summary.json, as attributes. Data frames are read when they are first used.
    """

    def __init__(self, folder: Path, summary: Summary) -> None:
        self.folder, self.summary = folder, summary

    def __repr__(self) -> str:
        """Return the strategies and the folder."""
        names = ", ".join(row["strategy"] for row in self.summary.table)
        return f"Results({names} in {self.folder})"

    @cached_property
    def table(self) -> "DataFrame":
        """A row per strategy: means over seeds, as the run printed them."""
        return _pandas().DataFrame(self.summary.table).set_index("strategy")

    @cached_property
    def accuracy(self) -> "DataFrame":
        """metrics.csv: a row per strategy, seed and round; NaN in rounds without a test."""
        return _pandas().read_csv(self.folder / METRICS)

    @cached_property
    def clients(self) -> "DataFrame":
        """clients.csv: a row per strategy, seed, tested round and client, with all its scores."""
        return _read(self.folder / CLIENTS)

    @cached_property
    def clusters(self) -> "DataFrame":
        """A row per strategy, seed and client: cluster (−1: left out), task and name if known."""
        rows = []
        for run in self.summary.runs:
            columns = {"name": run.given_names, "task": run.tasks}
            for client, cluster in enumerate(run.clusters):
                known = {name: values[client] for name, values in columns.items() if values}
                key = {"strategy": run.strategy, "seed": run.seed, "client": client}
                rows.append({**key, "cluster": cluster, **known})
        return _pandas().DataFrame(rows)

    @cached_property
    def verdicts(self) -> "DataFrame":
        """verdicts.csv: a row per client and seed; empty without verdicts."""
        path = self.folder / VERDICTS
        return _read(path) if path.is_file() else _pandas().DataFrame()

    def relevance(self, strategy: str = "", seed: int | None = None) -> "DataFrame":
        """Return the relevance of clients' data to each other, a row and a column per client.

        By default that of the first strategy that compared its clients, on the first seed.
        """
        for run in self.summary.runs:
            if strategy in ("", run.strategy) and seed in (None, run.seed):
                path = similarity_path(self.folder, run.strategy, run.seed)
                if not path.is_file():
                    continue
                with np.load(path, allow_pickle=False) as arrays:
                    if "similarity" in arrays:
                        names = _pandas().Index(arrays["clients"], name="client")
                        relevance = arrays["similarity"]
                        return _pandas().DataFrame(relevance, index=names, columns=names)
        run_name = f"{strategy or 'any strategy'}, {'any seed' if seed is None else f'seed {seed}'}"
        raise ValueError(
            f"{self.folder} has no relevance matrix of {run_name}: strategies such as rcc-pfl "
            "compute one, and it is stored for up to 2,000 clients."
        )

    def figures(self) -> dict[str, Picture]:
        """Return the pictures of the run, by name, such as `accuracy-per-round`."""
        return _pictures(self.folder)


class SweepResults:
    """The results of a sweep: `sweep` and `load_sweep` return them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        """Return the number of cells and the folder."""
        return f"SweepResults({len(self.cells)} cells in {self.folder})"

    @cached_property
    def table(self) -> "DataFrame":
        """sweep.csv: a row per cell, strategy, seed and measure."""
        path = self.folder / SWEEP
        # An option may be swept over an empty text, or one such as NA.
        return _pandas().read_csv(path, keep_default_na=False, na_values={"value": [""]})

    @cached_property
    def cells(self) -> dict[str, Results]:
        """The results of each simulation, by the cell's name; without those that were deleted."""
        names = map(str, dict.fromkeys(self.table["cell"]))
        folders = {name: self.folder / CELLS / name for name in names}
        return {
            name: load_results(folder)
            for name, folder in folders.items()
            if (folder / SUMMARY).is_file()
        }

    def figures(self) -> dict[str, Picture]:
        """Return the sweep's picture, `sweep`."""
        return _pictures(self.folder)


def load_results(folder: str | Path) -> Results:
    """Read the results folder of a run, simulated or on devices; a ValueError if there is none."""
    path = Path(folder).expanduser()
    if not (path / SUMMARY).is_file():
        raise ValueError(f"{path} has no summary.json: give the results folder of a run.")
    return Results(path, read_summary(path))


def load_sweep(folder: str | Path) -> SweepResults:
    """Read the folder of a sweep; a ValueError if there is none."""
    path = Path(folder).expanduser()
    if not (path / SWEEP).is_file():
        raise ValueError(f"{path} has no sweep.csv: give the folder of a sweep.")
    return SweepResults(path)


def _pandas() -> Any:
    return load_extra("pandas", "a data frame of results")


def _read(path: Path) -> "DataFrame":
    """Read a CSV file whose names are texts, also 001 and NA, without what `csv_cell` adds."""
    table, name = _pandas().read_csv(path), "name"
    texts = {"usecols": [name], "dtype": str, "keep_default_na": False, "na_values": [""]}
    names = _pandas().read_csv(path, **texts)[name]
    return table.assign(name=names.str.replace(r"^'(?=[=+\-@\t\r])", "", regex=True))
