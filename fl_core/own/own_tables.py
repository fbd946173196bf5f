"""A table that a device has of its own: what it tells of it, what is agreed, how it is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fl_core.data.image_folder import LabelledImages
from fl_core.data.preparation import Columns, Preparation, sample_columns
from fl_core.data.samples import described
from fl_core.data.scaling import Scaling, moments
from fl_core.data.settings import SITE
from fl_core.data.standardise import note_of_constant, told_constant
from fl_core.data.table_file import Table, read_table
from fl_core.data.tables import class_names, common_columns, encoded, numbered
from fl_core.own.own_images import (
    CLASS_NAMES,
    MAX_NAME,
    MAX_OWN_CLASSES,
    Agreement,
    agreed_classes,
    check_names,
    check_shape,
    composed,
    names_in,
    relabelled,
)
from fl_core.text import brief

logger = logging.getLogger(__name__)

# Entries of a message's config record; of each value of a category, its column stands beside it.
COLUMNS = "columns"
VALUES_OF = "values-of"
VALUES = "values"
MOST_COLUMNS = 10_000  # of one device, lest a single one makes everybody's model huge


@dataclass(frozen=True)
class TableSurvey:
    """All that a device tells of its table before anything is agreed.

    Attributes
    ----------
    classes : tuple of str
        As in `Survey`.
    columns : dict
        The names of its columns, sorted, without the label's, and the values of those with texts.

    Raises
    ------
    ValueError
        If a value is not of these, or nothing can be learnt of so many columns.
    """

    classes: tuple[str, ...]
    columns: Columns

    def __post_init__(self) -> None:
        check_names(self.classes, 1, MAX_OWN_CLASSES)
        for texts in (self.columns, *filter(None, self.columns.values())):
            _check_texts(tuple(texts))
        common_columns({"this table": self.columns})
        check_shape((len(sample_columns(self.columns)),))

    def as_config(self) -> dict[str, list[str]]:
        """Return the entries of a message's config record."""
        return {CLASS_NAMES: list(self.classes), **_columns_config(self.columns)}


@dataclass(frozen=True)
class TableAgreement(Agreement):
    """What all devices' tables have in common.

    Attributes
    ----------
    columns : dict
        As in `TableSurvey`, with the values that any device has.
    """

    columns: Columns = field(default_factory=dict)

    @classmethod
    def of(cls, names: tuple[str, ...], columns: Columns) -> TableAgreement:
        """Return it for classes and columns."""
        return cls(names, (len(sample_columns(columns)),), is_float=True, columns=columns)

    @property
    def preparation(self) -> Preparation:
        """Return what is done to samples before a model sees them."""
        return Preparation(self.columns)

    def as_config(self) -> dict[str, list[str] | list[int] | int | bool]:
        """Return the entries of a message's config record."""
        return {CLASS_NAMES: list(self.class_names), **_columns_config(self.columns)}


def _columns_config(columns: Columns) -> dict[str, list[str]]:
    pairs = [(name, value) for name, values in columns.items() for value in values]
    return {
        COLUMNS: list(columns),
        VALUES_OF: [name for name, _ in pairs],
        VALUES: [value for _, value in pairs],
    }


def columns_in(config: Mapping[str, object]) -> Columns:
    """Return the columns of a config record.

    Raises
    ------
    ValueError
        If an entry is missing or of another type, or values have no such column.
    """
    names, owners, values = (_texts_in(config, key) for key in (COLUMNS, VALUES_OF, VALUES))
    found: dict[str, list[str]] = {name: [] for name in names}
    if len(found) < len(names):
        raise ValueError(f"{COLUMNS} must differ, but there are two alike.")
    if len(owners) != len(values) or not found.keys() >= set(owners):
        raise ValueError(f"{VALUES} must each have one of the {COLUMNS} in {VALUES_OF}.")
    for name, value in zip(owners, values, strict=True):
        found[name].append(value)
    return {name: tuple(own) for name, own in found.items()}


def _texts_in(config: Mapping[str, object], key: str) -> list[str]:
    found = config.get(key)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{key} must be a list of texts, not {brief(found)}.")
    if len(found) > MOST_COLUMNS:
        raise ValueError(f"{key} has {len(found)} entries, but {MOST_COLUMNS} at most are learnt.")
    return found


def _check_texts(texts: tuple[str, ...]) -> None:
    for text in texts:
        if not (0 < len(text) <= MAX_NAME and text.isprintable() and text == composed(text)):
            raise ValueError(
                f"{brief(text)} is no name or value of a column: one line of at most {MAX_NAME} "
                "characters is expected."
            )
    if list(texts) != sorted(set(texts)):
        raise ValueError("columns and their values must be sorted and differ.")


def table_survey_in(config: Mapping[str, object]) -> TableSurvey:
    """Return a device's survey of its table, from a message's config record.

    Raises
    ------
    ValueError
        As `TableSurvey` and `columns_in`.
    """
    return TableSurvey(names_in(config), columns_in(config))


def survey_table(path: Path, label: str) -> TableSurvey:
    """Describe a device's table, for a message's config record.

    Raises
    ------
    ValueError, OSError
        As `read_table`, or if names are not what a survey may say.
    """
    table = _read(path, label)
    try:
        return TableSurvey(tuple(sorted(set(table.labels.tolist()))), table.kinds())
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be used: {error}") from error


def _read(path: Path, label: str) -> Table:
    table = read_table(path, label)
    if table.labels.dtype != object:
        raise ValueError(
            f"{path.name}: column {table.label}, the label, has fractions, but a device's table "
            "has classes: make some of them, such as low and high, or predict the number by a "
            "function of your own (docs/own-code.md)."
        )
    return table


def agree_on_tables(surveys: Mapping[str, TableSurvey]) -> TableAgreement:
    """Settle the classes, the columns and the categories' values for all devices.

    Raises
    ------
    ValueError
        As `agreed_classes` and `common_columns`.
    """
    names = agreed_classes({name: one.classes for name, one in surveys.items()})
    columns = common_columns({name: one.columns for name, one in surveys.items()})
    return TableAgreement.of(names, columns)


def read_own_table(path: Path, label: str, agreement: Agreement) -> LabelledImages:
    """Read a device's table; labels are indices into the agreed classes.

    Raises
    ------
    ValueError
        As `read_table`, or if a column, a value or a class is not as agreed.
    OSError
        If it cannot be read.
    """
    if not isinstance(agreement, TableAgreement):
        agreed = described(agreement.image_shape, is_float=agreement.is_float)
        raise ValueError(
            f"the table {path} cannot be learnt with samples that are {agreed}, as was agreed: "
            "leave this device out."
        )
    table = _read(path, label)
    common_columns({"what was agreed": agreement.columns, path.name: table.kinds()})
    rows = torch.from_numpy(encoded(table.columns, agreement.columns, table.site))
    classes = class_names([table.labels])
    labels = torch.from_numpy(numbered(table.labels, classes))
    test = torch.from_numpy(table.is_test)
    read = LabelledImages(rows[~test], labels[~test], rows[test], labels[test], classes)
    return relabelled(read, agreement, str(path))


def standardised_alone(
    read: LabelledImages, names: tuple[str, ...] = ()
) -> tuple[LabelledImages, Scaling]:
    """Return a device's samples, standardised by its own training rows (`standardise=site`).

    Raises
    ------
    ValueError
        If they are pixels.
    """
    if read.train_images.dtype != torch.float32:
        raise ValueError(
            f'standardise is "{SITE}", but these samples are pixels, which become numbers from 0 '
            "to 1: leave it at none."
        )
    found = moments(read.train_images)
    for note in note_of_constant(told_constant(found, SITE), names, SITE):
        logger.warning(note)
    scaling = Scaling.of(found, read.train_labels)
    return on_scale(read, scaling), scaling


def on_scale(read: LabelledImages, scaling: Scaling) -> LabelledImages:
    """Return a device's samples, and numbers to predict, on a scale."""
    return read._replace(
        train_images=scaling.samples(read.train_images),
        train_labels=scaling.targets(read.train_labels),
        test_images=scaling.samples(read.test_images),
        test_labels=scaling.targets(read.test_labels),
    )
