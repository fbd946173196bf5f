"""Classify images, rows of tables, or other samples with a model that a device has saved."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor, nn

from clients.training.train import as_pixels
from fl_core.data.folders import is_table
from fl_core.data.image_files import find_images
from fl_core.data.image_folder import decoding_error, read_each
from fl_core.data.samples import are_images, grey_or_colour
from fl_core.data.settings import SITE
from fl_core.data.tables import list_tables, read_prepared_rows
from fl_core.data.user_data import read_user_part
from fl_core.files import replacing
from fl_core.models.model_file import ModelCard, load_model
from fl_core.text import csv_cell, printable

PATH = "path"
COLUMNS = (PATH, "class", "probability")

_MOST_SAMPLES_AT_ONCE = 1000
_MOST_NUMBERS_AT_ONCE = 8_000_000  # pixels times channels, which bounds the memory of large images

Batch = tuple[Sequence[Sequence[Path | int]], Tensor]
"""The first cells of each row, and its sample."""
Write = Callable[[Sequence[Path | int], int, float], None]
"""Writes a row: its first cells, and the class and its probability, or the number."""


def classify(
    model_path: Path,
    source: Path | None = None,
    data: str = "",
    output: Path | None = None,
    user_model: str = "",
) -> int:
    """Write a CSV with the class and probability of each sample; return 1 if any failed, else 0.

    A model with one output predicts a number, in a column of its name. A model that was trained on
    tables takes tables; their rows count from 1. Samples of a function count from 0.

    Parameters
    ----------
    source : Path, optional
        An image or a folder of images; or a table or a folder of tables.
    data : str
        Instead of `source`, the import path of a function that returns samples.
    output : Path, optional
        The file, which is written completely or not at all (default: standard output).
    user_model : str
        The import path of the model, if it is user-defined.

    Raises
    ------
    ValueError, OSError
        If the model or the samples cannot be used, there are none, or the CSV cannot be written.
    """
    if bool(data) == (source is not None):
        raise ValueError(
            "fedkin classify needs a folder of images, a table, or --data, one of them."
        )
    model, card = load_model(model_path, user_model)
    undecoded: list[Path] = []
    heading: tuple[str, ...]
    batches: Iterable[Batch]
    if source is None:
        heading, what = ("sample",), "samples"
        batches = _read_function(model_path, card, data)
    elif card.preparation.columns:
        heading, what = (PATH, "row"), "rows"
        batches = _read_tables(source, card)
    else:
        heading, what = (PATH,), "images"
        batches = _read_images(model_path, card, source, undecoded)
    with _rows(output, heading, card, what) as write:
        for cells, samples in batches:
            for row, label, value in zip(cells, *_predict(model, card, samples), strict=True):
                write(row, label, value)
    return 1 if undecoded else 0


def _read_images(
    model_path: Path, card: ModelCard, folder: Path, undecoded: list[Path]
) -> Iterator[Batch]:
    """Find images, and return an iterator over them; it adds the ones that cannot be read."""
    shape = card.sample_shape
    if is_table(folder):
        raise ValueError(
            f"{folder} is a table, but {model_path} was not trained on tables: give samples of the "
            "kind that it was trained on."
        )
    if not are_images(shape, is_float=False):
        raise ValueError(
            f"{model_path} takes samples of shape {_times(shape)}, but a folder has grey and "
            "colour images only: give a function that returns such samples by --data."
        )
    paths = find_images(folder)
    size = max(1, min(_MOST_SAMPLES_AT_ONCE, _MOST_NUMBERS_AT_ONCE // prod(shape)))

    def batches() -> Iterator[Batch]:
        recoloured = 0
        for start in range(0, len(paths), size):
            part = paths[start : start + size]
            images, outcomes = read_each(part, shape)
            decoded = [i for i, one in enumerate(outcomes) if not isinstance(one, Exception)]
            yield [(part[index],) for index in decoded], images[decoded]
            recoloured += outcomes.count(True)
            for path, error in zip(part, outcomes, strict=True):
                if isinstance(error, Exception):
                    undecoded.append(path)
                    reason = f"{printable(str(path))} cannot be decoded: {decoding_error(error)}."
                    print(reason, file=sys.stderr)
        if recoloured:
            was, became = grey_or_colour(4 - shape[0]), grey_or_colour(shape[0])
            print(
                f"{recoloured} {was} image(s) were converted to {became}, since the model was "
                f"trained on {became} images only.",
                file=sys.stderr,
            )

    return batches()


def _read_tables(folder: Path, card: ModelCard) -> list[Batch]:
    """Read all tables before anything is written. Labels are ignored."""
    tables = [(path, read_prepared_rows(path, card.preparation)) for path in list_tables(folder)]
    return [
        ([(path, row) for row in range(1, len(samples) + 1)], samples) for path, samples in tables
    ]


def _read_function(model_path: Path, card: ModelCard, data: str) -> list[Batch]:
    """Read the training samples that a user-defined function returns."""
    samples = read_user_part("--data", data).train_samples
    if tuple(samples.shape[1:]) != card.sample_shape:
        raise ValueError(
            f"--data is {data}, whose samples have shape {_times(samples.shape[1:])}, but "
            f"{model_path} takes {_times(card.sample_shape)}: convert them first."
        )
    if samples.is_floating_point():
        samples = card.preparation.prepare_samples(samples)
    return [([(number,) for number in range(len(samples))], samples)]


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


@contextmanager
def _rows(
    output: Path | None, heading: Sequence[str], card: ModelCard, what: str
) -> Iterator[Write]:
    """Yield a function that writes a row; with a file, print the size of each class at the end."""
    counts: Counter[int] = Counter()
    predicts_number = len(card.class_names) == 1
    on_terminal = output is None and sys.stdout.isatty()
    with _opened(output) as stream:
        writer = csv.writer(stream)
        names = [csv_cell(name) for name in card.class_names]
        writer.writerow((*heading, *(names if predicts_number else COLUMNS[1:])))

        def write(about: Sequence[Path | int], label: int, probability: float) -> None:
            cells = [
                _path_cell(one, on_terminal) if isinstance(one, Path) else one for one in about
            ]
            if predicts_number:
                writer.writerow((*cells, _number(card, probability)))
            else:
                writer.writerow((*cells, names[label], f"{probability:.6f}"))
            counts[label] += 1

        yield write
    if output is not None:
        shown = [printable(name) for name in card.class_names]
        if predicts_number:
            print(f"{counts.total()} {what} have their {shown[0]}")
        else:
            of_class = (f"{counts[label]} {shown[label]}" for label in sorted(counts))
            print(f"{counts.total()} {what}: {', '.join(of_class)}")


def _path_cell(path: Path, on_terminal: bool) -> str:
    """Return a path that no spreadsheet reads as a formula, and that programs can open."""
    text = f"./{path}" if str(path).startswith(("=", "+", "-", "@")) else str(path)
    return printable(text) if on_terminal else text


@torch.inference_mode()
def _predict(model: nn.Module, card: ModelCard, samples: Tensor) -> tuple[list[int], list[float]]:
    """Return each sample's most probable class and the probability; of one output, the number."""
    labels: list[int] = []
    values: list[float] = []
    for part in torch.split(samples, _MOST_SAMPLES_AT_ONCE) if len(samples) else ():
        logits = model(as_pixels(part))
        if not logits.isfinite().all():
            raise ValueError(
                "the outputs of the model are not finite: its training failed, so use another "
                "model."
            )
        best = logits.argmax(dim=1)
        if logits.shape[1] == 1:
            found = _in_original_unit(card, logits[:, 0])
        else:
            found = logits.double().softmax(dim=1).gather(1, best[:, None])[:, 0]
        labels += best.tolist()
        values += found.tolist()
    return labels, values


def _in_original_unit(card: ModelCard, numbers: Tensor) -> Tensor:
    preparation = card.preparation
    if preparation.scaling is not None:
        return preparation.scaling.restore_targets(numbers)
    if preparation.standardise == SITE:
        raise ValueError(
            f"{card.class_names[0]} was standardised by each site's mean and deviation, which the "
            "model of several sites does not have: use the model that a site has saved, or train "
            "with standardise=all."
        )
    return numbers


def _number(card: ModelCard, value: float) -> str:
    """Return a predicted number with six digits, of its distance from the mean if it is scaled."""
    scaling = card.preparation.scaling
    if scaling is None:
        return f"{value:.6g}"
    decimals = 5 - math.floor(math.log10(scaling.target_deviation))
    return f"{value:.{max(0, decimals)}f}"


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Open the CSV file, or stdout, for text with file names of any bytes."""
    if output is not None:
        if output.exists() and not output.is_file():
            raise ValueError(
                f"--output is {output}, which is not a file: give a new file, or a CSV file."
            )
        with (
            replacing(output) as temporary,
            temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
        ):
            yield file
        return
    sys.stdout.flush()
    stream = io.TextIOWrapper(
        sys.stdout.buffer, encoding="utf-8", errors="surrogateescape", newline=""
    )
    try:
        yield stream
    finally:
        stream.detach()  # writes what is left, and keeps stdout open
