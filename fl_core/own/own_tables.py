"""A table that a device has of its own: what it tells of it, what is agreed, how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mode
from typing import TypeVar

import numpy as np
import torch

from fl_core.data.image_folder import LabelledImages
from fl_core.data.preparation import Columns, sample_columns
from fl_core.data.samples import described
from fl_core.data.scaling import Scaling
from fl_core.data.settings import BY_VALUES
from fl_core.data.table_file import Table, read_table
from fl_core.data.tables import are_whole, class_names, common_columns, encoded, numbered
from fl_core.own.class_names import (
    CLASS_NAMES,
    MAX_NAME,
    MAX_OWN_CLASSES,
    agreed_classes,
    check_names,
    composed,
    names_in,
)
from fl_core.own.own_images import IS_REGRESSION, Agreement, check_shape, relabelled
from fl_core.own.own_scale import scale_config, scale_in
from fl_core.text import brief, printable

# Entries of a message's config record; of each value of a category, its column stands beside it.
COLUMNS = "columns"
VALUES_OF = "values-of"
VALUES = "values"
AnyTold = TypeVar("AnyTold")
"""What a device tells of its data, a table or others."""

MOST_COLUMNS = 10_000  # of one device, lest a single one makes everybody's model huge


@dataclass(frozen=True)
class TableSurvey:
    """All that a device tells of its table before anything is agreed.

    Attributes
    ----------
    classes : tuple of str
        As in `Survey`; of a number to predict, the name of its column alone.
    columns : dict
        The names of its columns, sorted, without the label's, and the values of those with texts.
    is_regression : bool
        Whether the label is a number to predict.

    Raises
    ------
    ValueError
        If a value is not of these, or nothing can be learnt of so many columns.
    """

    classes: tuple[str, ...]
    columns: Columns
    is_regression: bool = False

    def __post_init__(self) -> None:
        check_names(self.classes, 1, 1 if self.is_regression else MAX_OWN_CLASSES)
        for texts in (self.columns, *filter(None, self.columns.values())):
            _check_texts(tuple(texts))
        common_columns({"this table": self.columns})
        check_shape((len(sample_columns(self.columns)),))

    def as_config(self) -> dict[str, list[str] | bool]:
        """Return the entries of a message's config record."""
        number = {IS_REGRESSION: True} if self.is_regression else {}
        return {CLASS_NAMES: list(self.classes), **_columns_config(self.columns), **number}


@dataclass(frozen=True)
class TableAgreement(Agreement):
    """What all devices' tables have in common."""

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        columns: Columns,
        is_regression: bool,
        scaling: Scaling | None = None,
    ) -> TableAgreement:
        """Return it for classes, or for a number to predict, columns and their scale."""
        return cls(names, (len(sample_columns(columns)),), True, is_regression, columns, scaling)

    def as_config(self) -> dict[str, list[str] | list[int] | list[float] | int | bool]:
        """Return the entries of a message's config record."""
        columns = _columns_config(self.columns)
        names = {CLASS_NAMES: list(self.class_names)}
        return {**names, **columns, **self._number_config(), **scale_config(self.scaling)}


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
    return TableSurvey(names_in(config), columns_in(config), config.get(IS_REGRESSION) is True)


def table_agreement_in(config: Mapping[str, object]) -> TableAgreement:
    """Undo `TableAgreement.as_config`.

    Raises
    ------
    ValueError
        If an entry is missing, of another type, or not what an agreement may say.
    """
    is_regression = config.get(IS_REGRESSION) is True
    return TableAgreement.of(names_in(config), columns_in(config), is_regression, scale_in(config))


def survey_table(path: Path, label: str, target: str = BY_VALUES) -> TableSurvey:
    """Describe a device's table, for a message's config record.

    Raises
    ------
    ValueError, OSError
        As `read_table`, or if names are not what a survey may say.
    """
    table = read_table(path, label, target)
    is_number = table.labels.dtype != object
    names = (table.label,) if is_number else tuple(sorted(class_names([table.labels])))
    try:
        return TableSurvey(names, table.kinds(), is_number)
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be used: {error}") from error


def with_whole_numbers(surveys: Mapping[str, AnyTold]) -> dict[str, AnyTold]:
    """Take whole labels for numbers to predict where most tables have such with fractions."""
    tables = [one for one in surveys.values() if isinstance(one, TableSurvey)]
    numbers = [one for one in tables if one.is_regression]
    if 2 * len(numbers) <= len(tables):
        return dict(surveys)
    usual = mode(sorted(one.classes for one in numbers))

    def taken(survey: AnyTold) -> AnyTold:
        if not isinstance(survey, TableSurvey) or survey.is_regression:
            return survey
        whole = are_whole(survey.classes)
        return replace(survey, classes=usual, is_regression=True) if whole else survey

    return {name: taken(survey) for name, survey in surveys.items()}


def agree_on_tables(surveys: Mapping[str, TableSurvey]) -> TableAgreement:
    """Settle the classes, the columns and the categories' values for all devices.

    All have classes, or all the number to predict of one name.

    Raises
    ------
    ValueError
        As `agreed_classes` and `common_columns`.
    """
    first = next(iter(surveys.values()))
    names = first.classes
    if not first.is_regression:
        names = agreed_classes({name: one.classes for name, one in surveys.items()})
    columns = common_columns({name: one.columns for name, one in surveys.items()})
    return TableAgreement.of(names, columns, first.is_regression)


def read_own_table(
    path: Path, label: str, agreement: Agreement, target: str = BY_VALUES
) -> LabelledImages:
    """Read a device's table; labels are indices into the agreed classes, or numbers to predict.

    Raises
    ------
    ValueError
        As `read_table`, or if a column, a value, a class or the kind of label is not as agreed.
    OSError
        If it cannot be read.
    """
    if not isinstance(agreement, TableAgreement):
        agreed = described(agreement.image_shape, is_float=agreement.is_float)
        raise ValueError(
            f"the table {path} cannot be learnt with samples that are {agreed}, as was agreed: "
            "leave this device out."
        )
    table = read_table(path, label, target)
    common_columns({"what was agreed": agreement.columns, path.name: table.kinds()})
    rows = torch.from_numpy(encoded(table.columns, agreement.columns, table.site))
    test = torch.from_numpy(table.is_test)

    def parted(labels: torch.Tensor, classes: tuple[str, ...]) -> LabelledImages:
        return LabelledImages(rows[~test], labels[~test], rows[test], labels[test], classes)

    if agreement.is_regression:
        return parted(_numbers(table), agreement.class_names)
    if table.labels.dtype != object:
        raise ValueError(
            f"column {printable(table.label)} of {table.site} has fractions, but classes were "
            "agreed: write classes, or leave this device out."
        )
    classes = class_names([table.labels])
    return relabelled(
        parted(torch.from_numpy(numbered(table.labels, classes)), classes), agreement, str(path)
    )


def _numbers(table: Table) -> torch.Tensor:
    try:
        return torch.from_numpy(table.labels.astype(np.float32))
    except ValueError as error:
        raise ValueError(
            f"column {printable(table.label)} of {table.site} has texts, but a number to predict "
            "was agreed: write numbers, or leave this device out."
        ) from error
