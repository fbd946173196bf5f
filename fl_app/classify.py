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
from typing import NamedTuple, TextIO

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text
from torch import nn

from clients.training.train import as_pixels
from fl_app.report.tables import render
from fl_core.data.folders import is_table
from fl_core.data.image_files import find_images
from fl_core.data.image_folder import in_words, read_each
from fl_core.data.samples import are_images
from fl_core.data.settings import SITE
from fl_core.data.tables import prepared_rows, tables_in
from fl_core.data.user_data import read_own_part
from fl_core.files import replacing
from fl_core.models.model_file import ModelCard, load_model
from fl_core.text import csv_cell, printable

COLUMNS = ("path", "class", "probability")

_MOST_IMAGES_AT_ONCE = 1000
_MOST_NUMBERS_AT_ONCE = 8_000_000  # pixels times channels, which bounds the memory of large images


class Prediction(NamedTuple):
    """What a model says about an image.

    Attributes
    ----------
    path : Path
        The image.
    label : int
        The most probable class, an index into the model's class names.
    probability : float
        Of that class, in [0, 1]; or the number, of a model that predicts one.
    is_recoloured : bool
        Whether the image had colours and the model knows grey images only, or the other way round.
    """

    path: Path
    label: int
    probability: float
    is_recoloured: bool


class Failure(NamedTuple):
    """An image that cannot be decoded, and why."""

    path: Path
    reason: str


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
    _check_output(output)
    model, card = load_model(model_path, own)
    if card.preparation.columns:
        return _classify_tables(model, card, tables_in(folder), output)
    if is_table(folder):
        raise ValueError(
            f"{folder} is a table, but {model_path} was not trained on tables: give it what it was "
            "trained on."
        )
    if not are_images(card.image_shape, is_float=False):
        raise ValueError(
            f"{model_path} takes samples of shape {'×'.join(map(str, card.image_shape))}, but only "
            "grey and colour images lie in folders: "
            "name a function that returns such samples by --data."
        )
    paths = find_images(folder)
    failures: list[Failure] = []
    recoloured = 0
    with _rows(output, COLUMNS[:1], card, "images") as write:
        for answer in track(
            classify_images(model, card, paths),
            "classifying",
            len(paths),
            console=Console(stderr=True),
            transient=True,
            # Beside rows on a terminal, a bar would be in their way.
            disable=not sys.stderr.isatty() or (output is None and sys.stdout.isatty()),
        ):
            if isinstance(answer, Failure):
                failures.append(answer)
            else:
                write((answer.path,), answer.label, answer.probability)
                recoloured += answer.is_recoloured
    _complain(failures, recoloured, card)
    return 1 if failures else 0


def classify_data(model_path: Path, data: str, output: Path | None = None, own: str = "") -> int:
    """Classify the training samples that a function returns, by their number from 0; return 0.

    The other arguments are those of `classify_folder`.

    Raises
    ------
    ValueError, OSError
        As `classify_folder` and `fl_core.data.user_data.read_own_part`.
    """
    _check_output(output)
    model, card = load_model(model_path, own)
    samples = read_own_part("--data", data).train_images
    if tuple(samples.shape[1:]) != card.image_shape:
        shapes = ["×".join(map(str, one)) for one in (samples.shape[1:], card.image_shape)]
        raise ValueError(
            f"--data is {data}, whose samples have shape {shapes[0]}, but {model_path} takes "
            f"{shapes[1]}: convert them first."
        )
    if samples.dtype == torch.float32:
        samples = card.preparation.of_samples(samples)
    with _rows(output, ("sample",), card, "samples") as write:
        for number, answer in enumerate(_answers(model, card, samples)):
            write((number,), *answer)
    return 0


def _classify_tables(
    model: nn.Module, card: ModelCard, paths: Sequence[Path], output: Path | None
) -> int:
    """Classify the rows of tables, which count from 1; a label is not looked at."""
    # All are read before anything is written.
    tables = [(path, prepared_rows(path, card.preparation)) for path in paths]
    with _rows(output, (COLUMNS[0], "row"), card, "rows") as write:
        for path, samples in tables:
            for row, answer in enumerate(_answers(model, card, samples), 1):
                write((path, row), *answer)
    return 0


@contextmanager
def _rows(
    output: Path | None, heading: Sequence[str], card: ModelCard, what: str
) -> Iterator[Callable[[Sequence[Path | int], int, float], None]]:
    """Yield a function that writes a row; beside a file, print the number of each class at the end.

    It takes what an answer is about, the class and its probability, or the number.
    """
    counts: Counter[int] = Counter()
    predicts_number = len(card.class_names) == 1
    on_terminal = output is None and sys.stdout.isatty()
    with _opened(output) as stream:
        writer = csv.writer(stream)
        name = csv_cell(card.class_names[0])
        writer.writerow((*heading, *((name,) if predicts_number else COLUMNS[1:])))

        def write(about: Sequence[Path | int], label: int, probability: float) -> None:
            cells = [
                _path_cell(one, on_terminal) if isinstance(one, Path) else one for one in about
            ]
            if predicts_number:
                writer.writerow((*cells, f"{probability:.6g}"))
            else:
                name = csv_cell(card.class_names[label])
                writer.writerow((*cells, name, f"{probability:.6f}"))
            counts[label] += 1

        yield write
    if output is not None and predicts_number:
        print(f"{counts.total()} {what} have their {printable(name)}")
    elif output is not None:
        print(render(_table(counts, card, what)), end="")


def _answers(
    model: nn.Module, card: ModelCard, samples: torch.Tensor
) -> Iterator[tuple[int, float]]:
    for part in torch.split(samples, _MOST_IMAGES_AT_ONCE):
        yield from zip(*_predict(model, card, part), strict=True)


def _check_output(output: Path | None) -> None:
    if output is not None and output.exists() and not output.is_file():
        raise ValueError(
            f"--output is {output}, which is not a file: name a new file, or a CSV file."
        )


def _path_cell(path: Path, on_terminal: bool) -> str:
    """Return a path that no spreadsheet takes for a formula, and a program can still open."""
    text = f"./{path}" if str(path).startswith(("=", "+", "-", "@")) else str(path)
    return printable(text) if on_terminal else text


def classify_images(
    model: nn.Module, card: ModelCard, paths: Sequence[Path]
) -> Iterator[Prediction | Failure]:
    """Yield one answer per image, in order.

    At most 1,000 images, fewer large ones, are held in memory.

    Parameters
    ----------
    model, card
        As `load_model` returns them.
    paths : sequence of Path
        Image files of any size, grey or in colour.

    Raises
    ------
    ValueError
        If the model answers with numbers that are not finite.
    """
    size = max(1, min(_MOST_IMAGES_AT_ONCE, _MOST_NUMBERS_AT_ONCE // prod(card.image_shape)))
    for start in range(0, len(paths), size):
        yield from _classify_batch(model, card, paths[start : start + size])


def _classify_batch(
    model: nn.Module, card: ModelCard, paths: Sequence[Path]
) -> list[Prediction | Failure]:
    images, outcomes = read_each(paths, card.image_shape)
    whole = [i for i, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
    labels, probabilities = _predict(model, card, images[whole])
    said = iter(zip(labels, probabilities, strict=True))
    return [
        Failure(path, in_words(outcome))
        if isinstance(outcome, Exception)
        else Prediction(path, *next(said), outcome)
        for path, outcome in zip(paths, outcomes, strict=True)
    ]


@torch.inference_mode()
def _predict(
    model: nn.Module, card: ModelCard, images: torch.Tensor
) -> tuple[list[int], list[float]]:
    """Return each image's most probable class and the probability; of one output, the number.

    Raises
    ------
    ValueError
        If the model answers with numbers that are not finite, or nobody knows their unit.
    """
    logits = model(as_pixels(images))
    if not logits.isfinite().all():
        raise ValueError(
            "the model answers with numbers that are not finite: its training failed, so take "
            "another model."
        )
    labels = logits.argmax(dim=1)
    if logits.shape[1] == 1:
        return labels.tolist(), _in_own_unit(card, logits[:, 0]).tolist()
    probabilities = logits.double().softmax(dim=1).gather(1, labels[:, None])[:, 0]
    return labels.tolist(), probabilities.tolist()


def _in_own_unit(card: ModelCard, numbers: torch.Tensor) -> torch.Tensor:
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


def _table(counts: Counter[int], card: ModelCard, what: str) -> Table:
    table = Table(title=f"{counts.total()} {what}", title_justify="left")
    table.add_column("class", overflow="fold")
    table.add_column(what, justify="right")
    for label in sorted(counts):
        table.add_row(Text(printable(card.class_names[label])), str(counts[label]))
    return table


def _complain(failures: Sequence[Failure], recoloured: int, card: ModelCard) -> None:
    if recoloured:
        was, became = ("colour", "grey") if card.image_shape[0] == 1 else ("grey", "colour")
        print(
            f"{recoloured} {was} image(s) were taken as {became}, since the model was trained on "
            f"{became} images only.",
            file=sys.stderr,
        )
    for path, reason in failures:
        print(f"{printable(str(path))} cannot be decoded: {reason}.", file=sys.stderr)
