"""Samples that a device has of its own, by a function: what it tells of them, how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fl_core.data.dataset import Dataset
from fl_core.data.image_folder import LabelledImages, few
from fl_core.data.own_data import read_own_part
from fl_core.data.settings import described
from fl_core.own.own_images import (
    CLASS_NAMES,
    IS_FLOAT,
    MAX_OWN_CLASSES,
    SHAPE,
    Agreement,
    Survey,
    agree,
    agreed_classes,
    check_names,
    check_shape,
    composed,
    kind_in,
    names_in,
    relabelled,
)

DATA = "data"
"""In a device's `--node-config`: the import path of the function that returns its samples."""


@dataclass(frozen=True)
class SampleSurvey:
    """All that a device tells of its samples before anything is agreed.

    Attributes
    ----------
    classes : tuple of str
        As in `Survey`.
    shape : tuple of int
        Of a sample.
    is_float : bool
        Whether samples are float32; otherwise they are pixels, uint8.

    Raises
    ------
    ValueError
        If a value is not of these, or nothing can be learnt of samples of this shape.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    is_float: bool

    def __post_init__(self) -> None:
        check_names(self.classes, 1, MAX_OWN_CLASSES)
        check_shape(self.shape)

    def as_config(self) -> dict[str, list[str] | list[int] | bool]:
        """Return the entries of a message's config record."""
        return {
            CLASS_NAMES: list(self.classes),
            SHAPE: list(self.shape),
            IS_FLOAT: self.is_float,
        }


def survey_in(config: Mapping[str, object]) -> Survey | SampleSurvey:
    """Describe a device's images or other samples, for a message's config record.

    Raises
    ------
    ValueError
        If an entry is missing, of another type, or not what a survey may say.
    """
    if SHAPE in config:
        return SampleSurvey(names_in(config), *kind_in(config))
    return Survey.from_config(config)


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
        return SampleSurvey(names, data.image_shape, data.is_float)
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
    found = described(data.image_shape, is_float=data.is_float)
    agreed = described(agreement.image_shape, is_float=agreement.is_float)
    if found != agreed:
        raise ValueError(
            f'{DATA} is "{path}", whose samples are {found}, but {agreed} was agreed: convert '
            "them, or leave this device out."
        )
    return relabelled(_labelled(data), agreement, f'what {DATA}="{path}" returns')


def _labelled(data: Dataset) -> LabelledImages:
    return LabelledImages(
        data.train_images,
        data.train_labels,
        data.test_images,
        data.test_labels,
        data.class_names,
    )


def agree_all(surveys: Mapping[str, Survey | SampleSurvey]) -> Agreement:
    """Settle the classes and the kind of samples for all devices that are of one kind.

    Raises
    ------
    ValueError
        As `agree`.
    """
    images = {name: one for name, one in surveys.items() if isinstance(one, Survey)}
    samples = [one for one in surveys.values() if isinstance(one, SampleSurvey)]
    if not samples:
        return agree(images)
    names = agreed_classes({name: one.classes for name, one in surveys.items()})
    return Agreement(names, samples[0].shape, samples[0].is_float)


def outvoted(surveys: Mapping[str, Survey | SampleSurvey]) -> dict[str, str]:
    """Return the devices whose samples are of another kind than most devices', and why they fail.

    Images in folders are of one kind, whatever their size.

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
        kinds = " and ".join(f"{kind} ({few(names)})" for kind, names in ranked[:2])
        raise ValueError(
            f"{kinds} cannot be learnt together, and as many devices have the one as the other: "
            "convert them to one kind on all devices, or run them apart."
        )
    return {
        name: f"its samples are {kind}, but most devices' are {most}: convert them, or leave this "
        "device out."
        for kind, names in others
        for name in names
    }


def _kind(survey: Survey | SampleSurvey) -> str:
    if isinstance(survey, Survey):
        return "images in folders"
    return described(survey.shape, is_float=survey.is_float)
