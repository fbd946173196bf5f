"""`fedkin place`: into which cluster of a run a new client belongs, without asking others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fl_app.results.layout import models_folder
from fl_core.user_code import is_import_path

if TYPE_CHECKING:  # torch is imported where it is needed
    from torch import Tensor

    from fl_app.group.placement import Placement
    from fl_app.results.spectra import SpectraCard, StoredSpectra

_KEPT = re.compile(r"spectra-(?P<strategy>.+)-seed-(?P<seed>\d+)\.safetensors")
_MOST_NAMES = 20


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `place` to the command line."""
    command = commands.add_parser(
        "place",
        help="say to which cluster of a run a new client belongs, without a new run",
        description="Compare a folder of images, a table, or other samples of the run's kind, "
        "with the clusters of a run, by what the run kept in its results folder: nobody is asked "
        "and nothing leaves this machine. Says which cluster, how sure that is, or that they fit "
        "nobody: the exit status is then 1 (docs/grouping.md).",
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
        help="features of your own that the run had: their code is run",
    )
    command.add_argument("--strategy", help="whose clusters, if the run kept those of several")
    command.add_argument("--seed", type=int, help="of which seed (default: the first)")
    command.set_defaults(call=_place)


def _place(options: argparse.Namespace) -> int:
    """Place each client whose samples are named; return 1 if any fits nobody."""
    from fl_app.results.spectra import load_spectra  # noqa: PLC0415
    from fl_core.text import printable  # noqa: PLC0415

    kept = load_spectra(kept_file(options.results, options.strategy, options.seed))
    card = kept.card
    check_features(card.features, options.own_code)
    fits = True
    for name, samples in _samples(card, options.data_path, options.data):
        found, text = _placed(samples, kept)
        print(f"{printable(name)}: {text}" if name else text)
        model = model_path(options.results, card, found.cluster)
        if found.fits and model.is_file():
            print(f"its cluster's model, for fedkin classify: {printable(str(model))}")
        fits = fits and found.fits
    return 0 if fits else 1


def _placed(samples: Tensor, kept: StoredSpectra) -> tuple[Placement, str]:
    """Place a client, and describe where."""
    from clients.features.compute import feature_map  # noqa: PLC0415
    from clients.signatures.uninformative import why_little_to_compare  # noqa: PLC0415
    from fl_app.group.placement import place  # noqa: PLC0415
    from fl_core.data.folders import cache_dir  # noqa: PLC0415

    features = feature_map(kept.card.features, cache_dir=cache_dir())(samples).numpy()
    found = place(features, kept, seed=kept.card.seed)
    columns = kept.card.preparation.column_names
    why = why_little_to_compare(kept.card.features, samples.numpy(), features, columns)
    return found, describe(found, kept, len(features), why)


def model_path(results: Path, card: SpectraCard, cluster: int) -> Path:
    """Return where a run that trained keeps the model of a cluster."""
    models = models_folder(results, card.strategy, card.seed)
    return models / f"cluster-{cluster}.safetensors"


def check_features(features: str, own_code: Sequence[str]) -> None:
    """Refuse to run features that only a file names, by a ValueError."""
    if is_import_path(features) and features not in own_code:
        raise ValueError(
            f"the run's features are {features}, code of somebody's own, and a file does not "
            f"decide which code is run: if you trust it, add --own-code {features}."
        )


def kept_file(results: Path, strategy: str | None, seed: int | None) -> Path:
    """Return the file in which a run kept its clients' eigenvectors; by default the only one."""
    if not results.is_dir():
        raise ValueError(f"RESULTS is {results}, but there is no such folder.")
    kept = {
        (match["strategy"], int(match["seed"])): path
        for path in sorted(results.iterdir())
        if (match := _KEPT.fullmatch(path.name))
    }
    if not kept:
        raise ValueError(
            f"{results} holds no eigenvectors of a run: they are kept by a strategy that groups by "
            "them, such as rcc-pfl, with keep-spectra at true, of at most 2,000 clients."
        )
    names = sorted({name for name, _ in kept})
    if strategy is None and len(names) > 1:
        raise ValueError(
            f"{results} holds the clusters of {', '.join(names)}: choose one by --strategy."
        )
    wanted = names[0] if strategy is None else strategy
    seeds = sorted(number for name, number in kept if name == wanted)
    if not seeds or (seed is not None and seed not in seeds):
        there = ", ".join(f"{name} on seed {number}" for name, number in sorted(kept))
        raise ValueError(
            f"{results} holds no clusters of {wanted}"
            f"{'' if seed is None else f' on seed {seed}'}: it has {there}."
        )
    return kept[wanted, seeds[0] if seed is None else seed]


def _samples(card: SpectraCard, path: Path | None, data: str) -> list[tuple[str, Tensor]]:
    """Return each client's samples; of several tables, with their names."""
    from fl_core.data.folders import is_table  # noqa: PLC0415
    from fl_core.data.samples import described, sample_word  # noqa: PLC0415
    from fl_core.data.tables import prepared_rows, tables_in  # noqa: PLC0415
    from fl_core.data.user_data import read_user_part  # noqa: PLC0415

    of_run = described(card.sample_shape, is_float=card.is_float)
    if path is None:
        part = read_user_part("--data", data)
        own = described(part.sample_shape, is_float=part.is_float)
        if own != of_run:
            raise ValueError(
                f"--data is {data}, whose samples are {own}, but the run's were {of_run}: convert "
                "them first."
            )
        samples = part.train_samples
        return [("", card.preparation.prepare_samples(samples) if card.is_float else samples)]
    if card.preparation.columns:
        tables = tables_in(path)
        return [
            (table.name if len(tables) > 1 else "", prepared_rows(table, card.preparation))
            for table in tables
        ]
    if sample_word(card) != "image":
        raise ValueError(
            f"--data-path is {path}, but the run's samples were {of_run}, neither images nor "
            "rows of tables: name a function that returns such by --data."
        )
    if is_table(path):
        raise ValueError(
            f"--data-path is {path}, a table, but the run's samples were images: name a folder "
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


def describe(found: Placement, kept: StoredSpectra, num_samples: int, poor: str = "") -> str:
    """Describe a placement in lines of text; `poor` says why the client's features say little."""
    from fl_core.data.samples import sample_word  # noqa: PLC0415
    from fl_core.text import listed, printable  # noqa: PLC0415

    card, word = kept.card, sample_word(kept.card)
    names = [
        printable(name)
        for name, own in zip(card.names, kept.clusters.tolist(), strict=True)
        if own == found.cluster
    ]
    overlap = f"overlap {found.overlap:.2f}, needed {found.needed:.2f}"
    lines = [f"{num_samples} {word}s, the clusters of {card.strategy} on seed {card.seed}"]
    if not found.fits:
        lines.append(
            f"They fit nobody; the nearest cluster is {found.cluster} ({overlap}). Train these "
            f"{word}s alone, or run again with this client."
        )
        return "\n".join(lines)
    lines.append(f"cluster {found.cluster}, with {listed(names, _MOST_NAMES)}")
    other = f"{found.margin:.3f} more than to cluster {found.second}"
    other = "the only cluster" if found.second is None else other
    lines.append(f"relevance {found.relevance:.3f}, {other}")
    if poor:
        lines.append(f"nobody knows how sure this is: {poor}; {overlap}")
    elif found.second is None:
        lines.append(f"nobody knows how sure this is, without another cluster; {overlap}")
    else:
        share = f"{100 * found.share:.0f} % of the resamples"
        lines.append(f"sure in {share}, a fifth of the {word}s left out; {overlap}")
    return "\n".join(lines)
