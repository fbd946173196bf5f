"""`fedkin place`: finds the cluster of a new client in the results of a run."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fl_app.results.layout import models_folder
from fl_core.user_code import is_import_path

if TYPE_CHECKING:  # torch is imported where it is needed
    from torch import Tensor

    from fl_app.group.placement import Placement
    from fl_app.results.spectra import SpectraCard, StoredSpectra

_SPECTRA_FILE = re.compile(r"spectra-(?P<strategy>.+)-seed-(?P<seed>\d+)\.safetensors")
_MOST_NAMES = 20


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `place` to the command line."""
    command = commands.add_parser(
        "place",
        help="show to which cluster of a run a new client belongs, without a new run",
        description="Compare a folder of images, a table, or other samples of the run's kind, "
        "with the clusters of a run, by the eigenvectors in its results folder: no client is asked "
        "and nothing leaves this machine. Prints the cluster and its certainty. If the samples fit "
        "no cluster, the exit status is 1 (docs/grouping.md).",
    )
    command.add_argument(
        "results", type=Path, metavar="RESULTS", help="the results folder of a run"
    )
    data = command.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--data-path",
        type=Path,
        metavar="PATH",
        help="the folder of the new client's images, searched at any depth, or its table, a CSV or "
        "Parquet file, or a folder of the tables of several; labels are not looked at",
    )
    data.add_argument(
        "--data",
        default="",
        metavar="MODULE:NAME",
        help="the function that returns its samples, as a device's owner names it",
    )
    command.add_argument(
        "--own-code",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="the user-defined features of the run, whose code may be executed",
    )
    command.add_argument(
        "--strategy", help="the strategy of the clusters, if the run saved those of several"
    )
    command.add_argument("--seed", type=int, help="the seed of the clusters (default: the first)")
    command.set_defaults(call=_place)


def _place(options: argparse.Namespace) -> int:
    """Return 1 if a client fits no cluster."""
    from fl_app.results.spectra import load_spectra  # noqa: PLC0415
    from fl_core.text import printable  # noqa: PLC0415

    spectra = load_spectra(spectra_file(options.results, options.strategy, options.seed))
    card = spectra.card
    if is_import_path(card.features) and card.features not in options.own_code:
        raise ValueError(
            f"the run's features are {card.features}, user-defined code, and a file must not "
            f"decide which code is executed: if you trust it, add --own-code {card.features}."
        )
    models = models_folder(options.results, card.strategy, card.seed)
    fits = True
    for name, samples in _samples(card, options.data_path, options.data):
        found, text = _placed(samples, spectra)
        print(f"{printable(name)}: {text}" if name else text)
        model = models / f"cluster-{found.cluster}.safetensors"
        if found.fits and model.is_file():
            print(f"its cluster's model, for fedkin classify: {printable(str(model))}")
        fits = fits and found.fits
    return 0 if fits else 1


def _placed(samples: Tensor, spectra: StoredSpectra) -> tuple[Placement, str]:
    """Return a client's placement and its description."""
    from clients.features.compute import feature_map  # noqa: PLC0415
    from clients.signatures.uninformative import why_little_to_compare  # noqa: PLC0415
    from fl_app.group.placement import place  # noqa: PLC0415
    from fl_core.data.folders import cache_dir  # noqa: PLC0415

    features = feature_map(spectra.card.features, cache_dir=cache_dir())(samples).numpy()
    found = place(features, spectra, seed=spectra.card.seed)
    columns = spectra.card.preparation.column_names
    why = why_little_to_compare(spectra.card.features, samples.numpy(), features, columns)
    return found, describe(found, spectra, len(features), why)


def spectra_file(results: Path, strategy: str | None, seed: int | None) -> Path:
    """Return the file of the clients' eigenvectors of a run, by default of its first seed."""
    if not results.is_dir():
        raise ValueError(f"RESULTS is {results}, but there is no such folder.")
    files = {
        (match["strategy"], int(match["seed"])): path
        for path in sorted(results.iterdir())
        if (match := _SPECTRA_FILE.fullmatch(path.name))
    }
    if not files:
        raise ValueError(
            f"{results} has no eigenvectors of a run: a strategy that groups by them, such as "
            "rcc-pfl, saves them for at most 2,000 clients, if keep-spectra is true."
        )
    names = sorted({name for name, _ in files})
    if strategy is None and len(names) > 1:
        raise ValueError(
            f"{results} holds the clusters of {', '.join(names)}: choose one by --strategy."
        )
    chosen = names[0] if strategy is None else strategy
    seeds = sorted(number for name, number in files if name == chosen)
    if not seeds or (seed is not None and seed not in seeds):
        there = ", ".join(f"{name} on seed {number}" for name, number in sorted(files))
        of_seed = "" if seed is None else f" on seed {seed}"
        raise ValueError(f"{results} holds no clusters of {chosen}{of_seed}: it has {there}.")
    return files[chosen, seeds[0] if seed is None else seed]


def _samples(card: SpectraCard, path: Path | None, data: str) -> list[tuple[str, Tensor]]:
    """Return each client's name, if there are several, and its samples."""
    from fl_core.data.folders import is_table  # noqa: PLC0415
    from fl_core.data.samples import described, sample_word  # noqa: PLC0415
    from fl_core.data.tables import list_tables, read_prepared_rows  # noqa: PLC0415
    from fl_core.data.user_data import read_user_part  # noqa: PLC0415

    of_run = described(card.sample_shape, is_float=card.is_float)
    if path is None:
        part = read_user_part("--data", data)
        given = described(part.sample_shape, is_float=part.is_float)
        if given != of_run:
            raise ValueError(
                f"the samples of --data={data} are {given}, but the run had {of_run}: convert them "
                "first."
            )
        samples = part.train_samples
        return [("", card.preparation.prepare_samples(samples) if card.is_float else samples)]
    if card.preparation.columns:
        tables = list_tables(path)
        return [
            (table.name if len(tables) > 1 else "", read_prepared_rows(table, card.preparation))
            for table in tables
        ]
    if sample_word(card) != "image":
        raise ValueError(
            f"--data-path is {path}, but the run's samples were {of_run}, neither images nor "
            "rows of tables: give a function that returns such by --data."
        )
    if is_table(path):
        raise ValueError(
            f"--data-path is {path}, a table, but the run's samples were images: give a folder "
            "of them."
        )
    return [("", read_images(path, card.sample_shape))]


def read_images(folder: Path, sample_shape: tuple[int, ...]) -> Tensor:
    """Return all images below a folder, resized as in the run: uint8, shape (n, C, H, W)."""
    from fl_core.data.image_files import find_images  # noqa: PLC0415
    from fl_core.data.image_folder import decoding_error, read_each  # noqa: PLC0415
    from fl_core.data.samples import grey_or_colour  # noqa: PLC0415

    paths = find_images(folder)
    images, outcomes = read_each(paths, sample_shape)
    for path, outcome in zip(paths, outcomes, strict=True):
        if isinstance(outcome, Exception):
            raise ValueError(
                f"{path} cannot be decoded: {decoding_error(outcome)}. Repair or remove it."
            )
        if outcome:
            channels, height, width = sample_shape
            raise ValueError(
                f"{path} is {grey_or_colour(4 - channels)}, but the run's images were "
                f"{grey_or_colour(channels)} ones of {height}×{width} pixels: convert it first."
            )
    return images


def describe(found: Placement, spectra: StoredSpectra, num_samples: int, poor: str = "") -> str:
    """Describe a placement in lines of text; `poor` says why the client's features say little."""
    from fl_core.data.samples import sample_word  # noqa: PLC0415
    from fl_core.text import listed, printable  # noqa: PLC0415

    card, word = spectra.card, sample_word(spectra.card)
    names = [
        printable(name)
        for name, cluster in zip(card.names, spectra.clusters.tolist(), strict=True)
        if cluster == found.cluster
    ]
    overlap = f"overlap {found.overlap:.2f}, needed {found.needed:.2f}"
    lines = [f"{num_samples} {word}s, the clusters of {card.strategy} on seed {card.seed}"]
    if not found.fits:
        lines.append(
            f"They fit no cluster; the nearest is {found.cluster} ({overlap}). Train these {word}s "
            "alone, or run again with this client."
        )
        return "\n".join(lines)
    lines.append(f"cluster {found.cluster}, with {listed(names, _MOST_NAMES)}")
    other = f"{found.margin:.3f} more than to cluster {found.second}"
    other = "the only cluster" if found.second is None else other
    lines.append(f"relevance {found.relevance:.3f}, {other}")
    if poor:
        lines.append(f"certainty unknown: {poor}; {overlap}")
    elif found.second is None:
        lines.append(f"certainty unknown, since there is no other cluster; {overlap}")
    else:
        share = f"{100 * found.share:.0f} % of the resamples"
        lines.append(f"certain in {share}, each without a fifth of the {word}s; {overlap}")
    return "\n".join(lines)
