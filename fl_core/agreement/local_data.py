"""The data of one device, images, a table or a function's: before an agreement, and as agreed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.data.dataset import Dataset
from fl_core.data.image_files import list_images
from fl_core.data.image_folder import common_shape, first_names, read_image_folder
from fl_core.data.preparation import CategoriesByColumn, sample_columns
from fl_core.data.samples import Split, grey_or_colour
from fl_core.data.settings import AUTO_TARGET
from fl_core.data.table_file import are_whole, category_values, read_table
from fl_core.data.tables import (
    common_columns,
    encode_rows,
    label_indices,
    list_classes,
    notes_on_classes,
    notes_on_tables,
)
from fl_core.data.user_data import read_user_part
from fl_core.text import printable, strip_and_compose

logger = logging.getLogger(__name__)

DATA = "data"
"""In a device's `--node-config`: the import path of the function that returns its samples."""


def survey_images(path: Path) -> Survey:
    """Describe a device's images by their headers; log the files that are not read."""
    files = list_images(path)
    for note in files.notes(path):
        logger.warning(note)
    shape = common_shape(files, path)
    with _naming(f"the class folders of {path}"):
        return Survey(tuple(sorted(map(strip_and_compose, files.train))), shape, in_folders=True)


def survey_table(path: Path, label: str, target: str = AUTO_TARGET) -> Survey:
    """Describe a device's table; log notes on it, which only its owner sees."""
    table = read_table(path, label, target)
    is_number = table.labels.dtype != object
    classes = () if is_number else list_classes([table.labels])
    names = (table.label,) if is_number else tuple(sorted(classes))
    columns = category_values(table.columns)
    with _naming(path.name):
        survey = Survey(names, (len(sample_columns(columns)),), True, is_number, columns)
    notes = [*notes_on_tables([table])]
    if not is_number:
        labels = torch.from_numpy(label_indices(table.labels, classes))
        test = torch.from_numpy(table.is_test)
        notes += notes_on_classes(labels[~test], labels[test], classes)
    for note in notes:
        logger.warning("%s: %s", printable(path.name), note)
    return survey


def survey_samples(path: str) -> Survey:
    """Call a device's function, and describe the samples that it returns."""
    data = read_user_part(DATA, path)
    for note in data.notes:
        logger.warning(note)
    return survey_of(data)


def survey_of(data: Dataset) -> Survey:
    """Describe samples that `read_user_part` read."""
    with _naming(f'{DATA} is "{data.name}", which'):
        names = tuple(sorted(map(strip_and_compose, data.class_names)))
        return Survey(names, data.sample_shape, data.is_float, data.is_regression)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Begin the message of a ValueError by what cannot be used."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what} cannot be used: {error}") from error


def refuse_texts(columns: CategoriesByColumn, epsilon: float) -> None:
    """Refuse columns with texts where noise must hide each row: a survey has all texts."""
    for name, values in columns.items():
        if values:
            raise ValueError(
                f"column {printable(name)} has texts, and all different ones are sent, but ε is "
                f"{epsilon:g}, which would not cover them: write them as numbers, a column for "
                "each that you know beforehand, or set pre-round-epsilon and training-epsilon to 0."
            )


def read_local_images(path: Path, cache: Path, agreement: Agreement) -> Split:
    """Read a device's images in the agreed shape, decoded once into the folder `cache`."""
    if not agreement.suits_folders:
        raise ValueError(f"{path} has images, but {agreement} was agreed: exclude this device.")
    channels, height, width = agreement.sample_shape
    split = read_image_folder(path, cache, size=(height, width))
    num_channels = split.train_samples.shape[1]
    if num_channels != channels:
        raise ValueError(
            f"the images in {path} are {grey_or_colour(num_channels)}, but "
            f"{grey_or_colour(channels)} was agreed: convert them, or exclude this device from the "
            "run."
        )
    return _relabelled(split, agreement, str(path))


def read_local_table(
    path: Path, label: str, agreement: Agreement, target: str = AUTO_TARGET
) -> Split:
    """Read a device's table; labels are indices into the agreed classes, or numbers to predict."""
    if not agreement.columns:
        raise ValueError(f"{path} is a table, but {agreement} was agreed: exclude this device.")
    table = read_table(path, label, target)
    common_columns({"the agreement": agreement.columns, path.name: category_values(table.columns)})
    rows = torch.from_numpy(encode_rows(table.columns, agreement.columns, table.site))
    test = torch.from_numpy(table.is_test)
    column = f"column {printable(table.label)} of {table.site}"
    classes = agreement.class_names
    is_number = table.labels.dtype != object
    if not agreement.is_regression:
        if is_number:
            raise ValueError(
                f"{column} has fractions, but classes were agreed: exclude this device."
            )
        classes = list_classes([table.labels])
        labels = torch.from_numpy(label_indices(table.labels, classes))
    elif is_number or are_whole(set(table.labels.tolist())):
        labels = torch.from_numpy(table.labels.astype(np.float64))
    else:
        raise ValueError(
            f"{column} has texts, but a number to predict was agreed: write numbers, or exclude "
            "this device from the run."
        )
    parts = rows[~test], labels[~test], rows[test], labels[test]
    split = Split(*parts, classes, is_in_time=table.is_in_time)
    return split if agreement.is_regression else _relabelled(split, agreement, str(path))


def read_local_samples(path: str, agreement: Agreement) -> Split:
    """Call a device's function; labels are as of `read_local_table`."""
    data = read_user_part(DATA, path)
    if (described := str(survey_of(data))) != (agreed := str(agreement)):
        raise ValueError(
            f'{DATA} is "{path}" and its samples are {described}, but {agreed} was agreed: convert '
            "them, or exclude this device from the run."
        )
    if data.is_regression:
        return data.split
    return _relabelled(data.split, agreement, f'the data of {DATA}="{path}"')


def _relabelled(split: Split, agreement: Agreement, where: str) -> Split:
    """Return samples with labels that are indices into the agreed classes."""
    index = {name: label for label, name in enumerate(agreement.class_names)}
    names = [strip_and_compose(name) for name in split.class_names]
    unknown = [name for name in names if name not in index]
    if unknown:
        raise ValueError(
            f"{first_names(unknown)} in {where} is not among the agreed classes: start the run "
            "again with this device, so that all agree on the classes again, or move these samples "
            "elsewhere."
        )
    labels = torch.tensor([index[name] for name in names])
    relabelled = split.mapped(lambda samples: samples, labels.__getitem__)
    return relabelled._replace(class_names=agreement.class_names)
