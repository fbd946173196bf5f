"""Classify images, rows of tables, or other samples with a model that a device has saved."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from fl_core.data.preparation import Preparation
from fl_core.data.samples import are_images, described, grey_or_colour
from fl_core.data.settings import SITE
from fl_core.data.tables import list_tables, read_prepared_rows
from fl_core.data.user_data import read_user_part
from fl_core.files import replacing
from fl_core.models.model_file import ModelCard, load_model
from fl_core.text import csv_cell, printable

_MOST_SAMPLES_AT_ONCE = 1000
_MOST_NUMBERS_AT_ONCE = 8_000_000  # pixels times channels, which bounds the memory of large images

Batch = tuple[Sequence[Sequence[Path | int]], Tensor]
"""The first cells of each row, and its sample."""


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

    `source` is an image, a table or a folder of such; `data`, instead of it, the import path of a
    function. `user_model` is that of a user-defined model. The file `output` (default: standard
    output) is written completely or not at all.
    """
    if bool(data) == (source is not None):
        raise ValueError(
            "fedkin classify needs a folder of images, a table, or --data, one of them."
        )
    model, card = load_model(model_path, user_model)
    undecoded: list[Path] = []
    heading, what = ["path"], "images"
    batches: Iterable[Batch]
    if source is None:
        heading, what = ["sample"], "samples"
        samples = read_function(data, card.sample_shape, card.preparation)
        batches = [([(number,) for number in range(len(samples))], samples)]
    elif card.preparation.columns:
        heading, what = ["path", "row"], "rows"
        # All tables are read before anything is written.
        tables = {path: read_prepared_rows(path, card.preparation) for path in list_tables(source)}
        batches = [
            ([(path, row) for row in range(1, len(rows) + 1)], rows)
            for path, rows in tables.items()
        ]
    else:
        batches = _read_images(model_path, card, source, undecoded)

    counts: Counter[int] = Counter()
    names = card.class_names
    predicts_number = len(names) == 1
    with _opened(output) as stream:
        writer = csv.writer(stream)
        answer = [csv_cell(names[0])] if predicts_number else ["class", "probability"]
        writer.writerow([*heading, *answer])
        for cells, part in batches:
            for row, label, value in zip(cells, *_predict(model, card, part), strict=True):
                about = [_path_cell(one, stream) if isinstance(one, Path) else one for one in row]
                answer = [csv_cell(names[label]), f"{value:.6f}"]
                writer.writerow([*about, *([_number(card, value)] if predicts_number else answer)])
                counts[label] += 1
    if output is not None:
        end = ": " + ", ".join(f"{counts[i]} {printable(names[i])}" for i in sorted(counts))
        end = f" have their {printable(names[0])}" if predicts_number else end
        print(f"{counts.total()} {what}{end}")
    return 1 if undecoded else 0


def read_function(
    data: str, shape: tuple[int, ...], preparation: Preparation, *, is_float: bool | None = None
) -> Tensor:
    """Return the samples that a user-defined function returns for training, prepared."""
    part = read_user_part("--data", data)
    given = described(part.sample_shape, is_float=part.is_float)
    needed = described(shape, is_float=part.is_float if is_float is None else is_float)
    if given != needed:
        raise ValueError(
            f"the samples of --data={data} are {given}, but {needed} is needed: convert them first."
        )
    samples = part.train_samples
    return preparation.prepare_samples(samples) if part.is_float else samples


def _read_images(
    model_path: Path, card: ModelCard, folder: Path, undecoded: list[Path]
) -> Iterator[Batch]:
    """Find images, and return an iterator over them; it adds the ones that cannot be read."""
    shape = card.sample_shape
    are_needed = are_images(shape, is_float=False)
    if is_table(folder) or not are_needed:
        raise ValueError(
            f"{folder} cannot be classified by {model_path}, which takes "
            + ("images." if are_needed else f"samples of shape {shape} from a function (--data).")
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


def _path_cell(path: Path, stream: TextIO) -> str:
    """Return a path that no spreadsheet reads as a formula, and that programs can open."""
    text = f"./{path}" if str(path).startswith(("=", "+", "-", "@")) else str(path)
    return printable(text) if stream.isatty() else text


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
