"""Samples that a device has of its own, by a function: what it tells of them, how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fl_core.data.dataset import Dataset
from fl_core.data.image_folder import LabelledImages, few
from fl_core.data.own_data import read_own_part
from fl_core.data.samples import described
from fl_core.data.tables import common_columns
from fl_core.own.class_names import (
    CLASS_NAMES,
    MAX_OWN_CLASSES,
    agreed_classes,
    check_names,
    composed,
    names_in,
)
from fl_core.own.own_images import (
    IS_FLOAT,
    IS_REGRESSION,
    SHAPE,
    Agreement,
    Survey,
    agree,
    check_shape,
    kind_in,
    relabelled,
)
from fl_core.own.own_tables import (
    COLUMNS,
    TableAgreement,
    TableSurvey,
    agree_on_tables,
    table_agreement_in,
    table_survey_in,
)
from fl_core.text import one_line

DATA = "data"
"""In a device's `--node-config`: the import path of the function that returns its samples."""


@dataclass(frozen=True)
class SampleSurvey:
    """All that a device tells of its samples before anything is agreed.

    Attributes
    ----------
    classes : tuple of str
        As in `Survey`; of a number to predict, its name alone.
    shape : tuple of int
        Of a sample.
    is_float : bool
        Whether samples are float32; otherwise they are pixels, uint8.
    is_regression : bool
        Whether what is to be predicted is a number.

    Raises
    ------
    ValueError
        If a value is not of these, or nothing can be learnt of samples of this shape.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    is_float: bool
    is_regression: bool = False

    def __post_init__(self) -> None:
        check_names(self.classes, 1, 1 if self.is_regression else MAX_OWN_CLASSES)
        check_shape(self.shape)

    def as_config(self) -> dict[str, list[str] | list[int] | bool]:
        """Return the entries of a message's config record."""
        return {
            CLASS_NAMES: list(self.classes),
            SHAPE: list(self.shape),
            IS_FLOAT: self.is_float,
            **({IS_REGRESSION: True} if self.is_regression else {}),
        }


AnySurvey = Survey | SampleSurvey | TableSurvey


def survey_in(config: Mapping[str, object]) -> AnySurvey:
    """Describe a device's images, table or other samples, for a message's config record.

    Raises
    ------
    ValueError
        If an entry is missing, of another type, or not what a survey may say.
    """
    if COLUMNS in config:
        return table_survey_in(config)
    if SHAPE in config:
        return SampleSurvey(names_in(config), *kind_in(config))
    return Survey.from_config(config)


def agreement_in(config: Mapping[str, object]) -> Agreement:
    """Undo `Agreement.as_config`, of tables, too.

    Raises
    ------
    ValueError
        If an entry is missing, of another type, or not what an agreement may say.
    """
    if COLUMNS in config:
        return table_agreement_in(config)
    return Agreement.from_config(config)


def survey_samples(path: str) -> SampleSurvey:
    """Call a device's function, and return what the device tells of its samples.

    Raises
    ------
    ValueError
        As `read_own_part` and `survey_of`.
    """
    return survey_of(read_own_part(DATA, path))


def survey_of(data: Dataset) -> SampleSurvey:
    """Describe samples that `read_own_part` read, for a message's config record.

    Raises
    ------
    ValueError
        If class names or the shape are not what a survey may say.
    """
    try:
        names = tuple(sorted(map(composed, data.class_names)))
        return SampleSurvey(names, data.image_shape, data.is_float, data.is_regression)
    except ValueError as error:
        raise ValueError(f'{DATA} is "{data.name}", which cannot be used: {error}') from error


def read_own_samples(path: str, agreement: Agreement) -> LabelledImages:
    """Call a device's function; labels are indices into the agreed classes.

    Raises
    ------
    ValueError
        As `read_own_part`, or if the samples or a class are not as agreed.
    """
    data = read_own_part(DATA, path)
    found, agreed = _kind(survey_of(data)), _kind(agreement)
    if found != agreed:
        raise ValueError(
            f'{DATA} is "{path}", whose samples are {found}, but {agreed} was agreed: convert '
            "them, or leave this device out."
        )
    labelled = _labelled(data)
    if data.is_regression:
        return labelled
    return relabelled(labelled, agreement, f'what {DATA}="{path}" returns')


def _labelled(data: Dataset) -> LabelledImages:
    return LabelledImages(
        data.train_images,
        data.train_labels,
        data.test_images,
        data.test_labels,
        data.class_names,
    )


def agree_all(surveys: Mapping[str, AnySurvey]) -> Agreement:
    """Settle the classes and the kind of samples for all devices that are of one kind.

    Raises
    ------
    ValueError
        As `agree`, and `agree_on_tables`.
    """
    tables = {name: one for name, one in surveys.items() if isinstance(one, TableSurvey)}
    if tables:
        return agree_on_tables(tables)
    images = {name: one for name, one in surveys.items() if isinstance(one, Survey)}
    samples = [one for one in surveys.values() if isinstance(one, SampleSurvey)]
    if not samples:
        return agree(images)
    names = samples[0].classes
    if not samples[0].is_regression:
        names = agreed_classes({name: one.classes for name, one in surveys.items()})
    return Agreement(names, samples[0].shape, samples[0].is_float, samples[0].is_regression)


def outvoted(surveys: Mapping[str, AnySurvey]) -> dict[str, str]:
    """Return the devices whose samples are of another kind than most devices', and why they fail.

    Images in folders are of one kind, whatever their size, and tables with the same columns.

    Raises
    ------
    ValueError
        If as many devices have one kind as have another.
    """
    of_kind: dict[str, list[str]] = {}
    for name, survey in sorted(surveys.items()):
        of_kind.setdefault(_kind(survey), []).append(name)
    ranked = sorted(of_kind.items(), key=lambda item: -len(item[1]))
    (most, first), *others = ranked
    if others and len(others[0][1]) == len(first):
        kinds = " and ".join(f"{one_line(kind)} ({few(names)})" for kind, names in ranked[:2])
        raise ValueError(
            f"{kinds} cannot be learnt together, and as many devices have the one as the other: "
            "convert them to one kind on all devices, or run them apart."
        )
    return {
        name: _other_columns(surveys, first[0], name)
        or f"its samples are {one_line(kind)}, but most devices' are {one_line(most)}: convert "
        "them, or leave this device out."
        for kind, names in others
        for name in names
    }


def _other_columns(surveys: Mapping[str, AnySurvey], usual: str, name: str) -> str:
    """Say which column a device's table has, or has not, other than a usual one; else nothing."""
    first, second = surveys[usual], surveys[name]
    try:
        if isinstance(first, TableSurvey) and isinstance(second, TableSurvey):
            common_columns({usual: first.columns, name: second.columns})
    except ValueError as error:
        return str(error)
    return ""


def _kind(said: AnySurvey | Agreement) -> str:
    if isinstance(said, Survey):
        return "images in folders"
    if isinstance(said, TableSurvey | TableAgreement):
        of_texts = {name: " (texts)" if values else "" for name, values in said.columns.items()}
        kind = f"tables of {', '.join(name + texts for name, texts in of_texts.items())}"
    else:
        shape = said.image_shape if isinstance(said, Agreement) else said.shape
        kind = described(shape, is_float=said.is_float)
    (name, *_) = said.class_names if isinstance(said, Agreement) else said.classes
    return f'{kind} with the number "{name}"' if said.is_regression else kind
