"""What the benchmarks share: federations and their spectra without messages, and a command."""

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from benchmarks.writing import RESULTS, read, write
from clients.features.compute import feature_map
from clients.signatures.spectrum import Spectrum, leading_spectrum, relevance
from fl_app.plan import prepare
from fl_core.data.dataset import Dataset
from fl_core.data.folders import cache_dir
from fl_core.partitions.federation import Federation, simulate_federation
from fl_core.partitions.settings import FederationSettings, Spread

CLIENTS = 25
KINDS: tuple[Spread, ...] = ("label", "quantity")
Numbers = dict[str, Any]
Measure = Callable[..., Iterator[str]]
Tables = Callable[[Numbers], Mapping[str, str]]
Cell = TypeVar("Cell")
Found = TypeVar("Found")


def walk(measure: Callable[[Cell], Found], cells: Iterable[Cell], workers: int) -> Iterator[Found]:
    """Yield what is measured of each cell, in their order, by so many processes of one thread."""
    with multiprocessing.get_context("fork").Pool(workers, one_thread) as pool:
        yield from pool.imap(measure, cells)


def federation(dataset: str, num_tasks: int, seed: int, **options: Any) -> Federation:
    """Return 25 clients with right labels, unless the options say otherwise."""
    given = {"num_clients": CLIENTS, **options}
    settings = FederationSettings(dataset=dataset, num_tasks=num_tasks, seed=seed, **given)
    return simulate_federation(settings)


@lru_cache(maxsize=1)
def all_features(dataset: Dataset, features: str = "hog") -> NDArray[np.float32]:
    """Return the features of all training images; the process caches the last ones.

    Feature maps work image by image, so a client's features are rows of these. Which images
    mnist-5k trains on depends on the seed, so the data set is given, not its name.
    """
    return feature_map(features, cache_dir=cache_dir())(dataset.train_samples).numpy()


def spectra_of(made: Federation, count: int = 20, features: str = "hog") -> list[Spectrum]:
    """Return each client's spectrum with so many eigenvectors."""
    rows = all_features(made.dataset, features)
    return [leading_spectrum(rows[indices], count) for indices in made.partition.train]


def with_eigenvectors(spectra: Sequence[Spectrum], count: int) -> list[Spectrum]:
    """Return the spectra as if only `count` eigenvectors had been asked for."""
    return [
        replace(s, eigenvalues=s.eigenvalues[:count], eigenvectors=s.eigenvectors[:, :count])
        for s in spectra
    ]


def gram_of(spectrum: Spectrum) -> NDArray[np.float64]:
    """Return a client's Gram matrix, shape (d, d)."""
    (vectors,), (values,) = spectrum.whole.vectors.astype(np.float64), spectrum.whole.values
    values = values * (spectrum.eigenvalues[0] / values[0])  # their scale was a power of four
    return np.asarray(vectors.T * values @ vectors)


def relevance_matrix(formula: str, spectra: Sequence[Spectrum], count: int) -> NDArray[np.float64]:
    """Return r, shape (K, K), with `count` eigenvectors of each client; row i is client i's."""
    few = with_eigenvectors(spectra, count)
    return np.array([relevance(formula, s.whole, [one.eigenvectors for one in few]) for s in few])


def ari(tasks: Sequence[int] | NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of clusters and tasks."""
    return float(adjusted_rand_score(tasks, labels))


def simulated(options: Mapping[str, Any], clients: int, workers: int, folder: Path) -> Numbers:
    """Return the summary.json of a simulation by `flwr run` with its results in a folder."""
    given = {**options, "num-clients": clients, "output-dir": str(folder)}
    prepare(given, workers=workers).run()
    found: Numbers = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def summary_of(options: Mapping[str, Any], clients: int, workers: int) -> Numbers:
    """Return the summary.json of a simulation by `flwr run`."""
    with tempfile.TemporaryDirectory() as folder:
        return simulated(options, clients, workers, Path(folder))


def one_thread() -> None:
    """Let this process compute on one thread."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def command(
    doc: str | None,
    name: str,
    measure: Measure,
    tables: Tables,
    header: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Measure what a file does not have yet, write it after each part, and print the tables.

    `name` is the file's; without one, numbers are written only to `--output`. `measure` adds to the
    numbers, its first argument, and yields a line about each part; its other arguments are the
    `options` of the command line, given with their defaults. `tables` makes Markdown of the
    numbers, by title. Where a file has another `header`, all is measured again.
    """
    parser = argparse.ArgumentParser(description=doc)
    for option, default in options.items():
        several = isinstance(default, list | tuple)
        kind = type(default[0] if several else default)
        flag, count = f"--{option.replace('_', '-')}", "+" if several else None
        parser.add_argument(flag, type=kind, default=default, nargs=count)
    output = RESULTS / f"{name}.json.xz" if name else None
    parser.add_argument("--output", type=Path, default=output)
    given = vars(parser.parse_args())
    path: Path | None = given.pop("output")
    numbers = _measured_before(path, header or {})
    for line in measure(numbers, **given):
        if path:
            write(numbers, path)
        print(line, flush=True)
    for title, table in tables(numbers).items():
        print(f"\n{title}\n\n{table}")


def _measured_before(path: Path | None, header: Mapping[str, Any]) -> Numbers:
    """Return what a file has that was measured under the same header, or the header alone."""
    fresh: Numbers = json.loads(json.dumps(header))
    stored = read(path) if path else {}
    if not stored or {key: stored.get(key) for key in fresh} == fresh:
        return {**fresh, **stored}
    print(f"{path} was measured with other settings: all of it is measured again.", flush=True)
    return fresh
