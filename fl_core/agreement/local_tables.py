"""A table that a device has of its own: what it tells of it, and how it is read."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.local_images import relabelled
from fl_core.data.image_folder import Split
from fl_core.data.preparation import Columns, sample_columns
from fl_core.data.settings import BY_VALUES
from fl_core.data.table_file import Table, as_numbers, kinds_of, read_table
from fl_core.data.tables import (
    class_names,
    common_columns,
    encoded,
    notes_on_classes,
    numbered,
)
from fl_core.text import printable

logger = logging.getLogger(__name__)


def survey_table(path: Path, label: str, target: str = BY_VALUES) -> Survey:
    """Describe a device's table, for a message's config record; its owner alone hears of doubts.

    Raises
    ------
    ValueError, OSError
        As `read_table`, or if names are not what a survey may say.
    """
    table = read_table(path, label, target)
    is_number = table.labels.dtype != object
    classes = () if is_number else class_names([table.labels])
    names = (table.label,) if is_number else tuple(sorted(classes))
    try:
        columns = kinds_of(table.columns)
        survey = Survey(names, (len(sample_columns(columns)),), True, is_number, columns)
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be used: {error}") from error
    if not is_number:
        labels = torch.from_numpy(numbered(table.labels, classes))
        test = torch.from_numpy(table.is_test)
        for note in notes_on_classes(labels[~test], labels[test], classes):
            logger.warning("%s: %s", printable(path.name), note)
    return survey


def refuse_texts(columns: Columns, epsilon: float) -> None:
    """Refuse columns with texts where each row is to be hidden: a survey tells all of them.

    Raises
    ------
    ValueError
        If there is one.
    """
    for name, values in columns.items():
        if values:
            raise ValueError(
                f"column {printable(name)} has texts, and all different ones are sent, but ε is "
                f"{epsilon:g}, which would not cover them: write them as numbers, a column for "
                "each that you know beforehand, or set pre-round-epsilon and training-epsilon to 0."
            )


def read_own_table(path: Path, label: str, agreement: Agreement, target: str = BY_VALUES) -> Split:
    """Read a device's table; labels are indices into the agreed classes, or numbers to predict.

    Raises
    ------
    ValueError
        As `read_table`, or if a column, a value, a class or the kind of label is not as agreed.
    OSError
        If it cannot be read.
    """
    if not agreement.columns:
        raise ValueError(
            f"the table {path} cannot be learnt with samples that are {agreement}, as was agreed: "
            "leave this device out."
        )
    table = read_table(path, label, target)
    common_columns({"what was agreed": agreement.columns, path.name: kinds_of(table.columns)})
    rows = torch.from_numpy(encoded(table.columns, agreement.columns, table.site))
    test = torch.from_numpy(table.is_test)

    def parted(labels: torch.Tensor, classes: tuple[str, ...]) -> Split:
        parts = rows[~test], labels[~test], rows[test], labels[test]
        return Split(*parts, classes, is_in_time=table.is_in_time)

    if agreement.is_regression:
        return parted(_numbers(table), agreement.class_names)
    if table.labels.dtype != object:
        raise ValueError(
            f"column {printable(table.label)} of {table.site} has fractions, but classes were "
            "agreed: write classes, or leave this device out."
        )
    classes = class_names([table.labels])
    labels = torch.from_numpy(numbered(table.labels, classes))
    return relabelled(parted(labels, classes), agreement, str(path))


def _numbers(table: Table) -> torch.Tensor:
    try:
        return torch.from_numpy(as_numbers(table.labels))
    except ValueError as error:
        raise ValueError(
            f"column {printable(table.label)} of {table.site} has texts, but a number to predict "
            "was agreed: write numbers, or leave this device out."
        ) from error
