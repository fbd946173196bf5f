"""The command that classifies images, or other samples, with a model that a device saved."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor, nn

from clients.training.train import as_pixels
from fl_core.data.folders import is_table
from fl_core.data.image_files import find_images
from fl_core.data.image_folder import in_words, read_each
from fl_core.data.samples import are_images, grey_or_colour
from fl_core.data.settings import SITE
from fl_core.data.tables import prepared_rows, tables_in
from fl_core.data.user_data import read_own_part
from fl_core.files import replacing
from fl_core.models.model_file import ModelCard, load_model
from fl_core.text import csv_cell, printable

COLUMNS = ("path", "class", "probability")

_MOST_SAMPLES_AT_ONCE = 1000
_MOST_NUMBERS_AT_ONCE = 8_000_000  # pixels times channels, which bounds the memory of large images

Write = Callable[[Sequence[Path | int], int, float], None]
"""Writes a row: what it is about, and the class and its probability, or the number."""


def classify_folder(
    model_path: Path, folder: Path, output: Path | None = None, own: str = ""
) -> int:
    """Classify the images of a folder, and return 1 if any could not be decoded, else 0.

    A model of one output predicts a number, whose name is its column's. One that was trained on
    tables classifies the rows of a table, or of a folder's tables.

    The CSV goes to `output`, completely or not at all; by default, to the standard output. `own` is
    the import path of the model, if it is user-defined.

    Raises
    ------
    ValueError, OSError
        If the model or the folder cannot be used, there are no images, or the CSV cannot be
        written.
    """
    model, card = load_model(model_path, own)
    if card.preparation.columns:
        return classify_tables([(model_path, path) for path in tables_in(folder)], output, own)
    if is_table(folder):
        raise ValueError(
            f"{folder} is a table, but {model_path} was not trained on tables: give it what it was "
            "trained on."
        )
    shape = card.image_shape
    if not are_images(shape, is_float=False):
        raise ValueError(
            f"{model_path} takes samples of shape {'×'.join(map(str, shape))}, but only "
            "grey and colour images lie in folders: "
            "name a function that returns such samples by --data."
        )
    paths = find_images(folder)
    size = max(1, min(_MOST_SAMPLES_AT_ONCE, _MOST_NUMBERS_AT_ONCE // prod(shape)))
    failures: dict[Path, Exception] = {}
    recoloured = 0
    with _rows(output, COLUMNS[:1], card, "images") as write:
        for start in range(0, len(paths), size):
            part = paths[start : start + size]
            images, outcomes = read_each(part, shape)
            found = zip(part, outcomes, strict=True)
            failed = {path: one for path, one in found if isinstance(one, Exception)}
            whole = [index for index, path in enumerate(part) if path not in failed]
            abouts = ((part[index],) for index in whole)
            _answer(model, card, images[whole], abouts, write)
            failures |= failed
            recoloured += outcomes.count(True)
    if recoloured:
        was, became = grey_or_colour(4 - shape[0]), grey_or_colour(shape[0])
        print(
            f"{recoloured} {was} image(s) were taken as {became}, since the model was trained on "
            f"{became} images only.",
            file=sys.stderr,
        )
    for path, error in failures.items():
        print(f"{printable(str(path))} cannot be decoded: {in_words(error)}.", file=sys.stderr)
    return 1 if failures else 0


def classify_data(model_path: Path, data: str, output: Path | None = None, own: str = "") -> int:
    """Classify the training samples that a function returns, by their number from 0; return 0.

    The other arguments are those of `classify_folder`.

    Raises
    ------
    ValueError, OSError
        As `classify_folder` and `fl_core.data.user_data.read_own_part`.
    """
    model, card = load_model(model_path, own)
    samples = read_own_part("--data", data).train_samples
    if tuple(samples.shape[1:]) != card.image_shape:
        shapes = ["×".join(map(str, one)) for one in (samples.shape[1:], card.image_shape)]
        raise ValueError(
            f"--data is {data}, whose samples have shape {shapes[0]}, but {model_path} takes "
            f"{shapes[1]}: convert them first."
        )
    if samples.dtype == torch.float32:
        samples = card.preparation.of_samples(samples)
    with _rows(output, ("sample",), card, "samples") as write:
        _answer(model, card, samples, ((number,) for number in range(len(samples))), write)
    return 0


def classify_tables(
    pairs: Sequence[tuple[Path, Path]], output: Path | None = None, own: str = ""
) -> int:
    """Classify the rows of tables, each by a model; return 0.

    Rows count from 1, below the names of columns. A label is not looked at.

    Parameters
    ----------
    pairs : sequence of model and table
        All models have the same classes.
    output, own
        As in `classify_folder`.

    Raises
    ------
    ValueError, OSError
        If a model cannot be used, a table is not such as it was trained on, or the CSV cannot be
        written.
    """
    models = {path: load_model(path, own) for path, _ in pairs}
    # All are read before anything is written.
    tables = [
        (path, table, prepared_rows(table, models[path][1].preparation)) for path, table in pairs
    ]
    _, card = models[pairs[0][0]]
    with _rows(output, (COLUMNS[0], "row"), card, "rows") as write:
        for path, table, samples in tables:
            abouts = ((table, row) for row in range(1, len(samples) + 1))
            _answer(*models[path], samples, abouts, write)
    return 0


@contextmanager
def _rows(
    output: Path | None, heading: Sequence[str], card: ModelCard, what: str
) -> Iterator[Write]:
    """Yield a function that writes a row; beside a file, print how many each class has."""
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
                writer.writerow((*cells, f"{probability:.6g}"))
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
    """Return a path that no spreadsheet takes for a formula, and a program can still open."""
    text = f"./{path}" if str(path).startswith(("=", "+", "-", "@")) else str(path)
    return printable(text) if on_terminal else text


@torch.inference_mode()
def _answer(
    model: nn.Module,
    card: ModelCard,
    samples: Tensor,
    abouts: Iterator[Sequence[Path | int]],
    write: Write,
) -> None:
    """Write each sample's most probable class and the probability; of one output, the number.

    Raises
    ------
    ValueError
        If the model answers with numbers that are not finite, or nobody knows their unit.
    """
    for part in torch.split(samples, _MOST_SAMPLES_AT_ONCE) if len(samples) else ():
        logits = model(as_pixels(part))
        if not logits.isfinite().all():
            raise ValueError(
                "the model answers with numbers that are not finite: its training failed, so take "
                "another model."
            )
        labels = logits.argmax(dim=1)
        if logits.shape[1] == 1:
            values = _in_own_unit(card, logits[:, 0])
        else:
            values = logits.double().softmax(dim=1).gather(1, labels[:, None])[:, 0]
        for label, value in zip(labels.tolist(), values.tolist(), strict=True):
            write(next(abouts), label, value)


def _in_own_unit(card: ModelCard, numbers: Tensor) -> Tensor:
    done = card.preparation
    if done.scaling is not None:
        return done.scaling.predicted(numbers)
    if done.standardise == SITE:
        raise ValueError(
            f"{card.class_names[0]} was standardised by each site's own mean and deviation, which "
            "the model of several sites does not hold: take the model that a site kept, or train "
            "with standardise=all."
        )
    return numbers


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Open the CSV file, or stdout, for text that may hold file names of any bytes."""
    if output is not None:
        if output.exists() and not output.is_file():
            raise ValueError(
                f"--output is {output}, which is not a file: name a new file, or a CSV file."
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
