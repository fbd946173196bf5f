"""Descriptions of samples: what one device has, and what all devices agree on."""

import reprlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from fl_core.data.image_folder import MAX_SIDE
from fl_core.data.preparation import CategoriesByColumn, Preparation, sample_columns
from fl_core.data.samples import are_images, described, grey_or_colour
from fl_core.data.scaling import Scaling
from fl_core.data.settings import ALL_SITES, NOT_STANDARDISED
from fl_core.data.tables import common_columns
from fl_core.json_records import STRICT, from_json, to_json
from fl_core.models.model_file import ALLOWED_SHAPE, MAX_CLASSES, is_shape
from fl_core.text import brief, printable, strip_and_compose

# Entries of a message's config record.
SURVEY = "survey"
AGREEMENT = "agreement"

MAX_DEVICE_CLASSES = 1_000  # so that no device makes the common model huge
MAX_COLUMNS = 10_000  # of one device, too

MAX_NAME = 200  # characters

_NOT_ALLOWED = {"Cc", "Cs", "Zl", "Zp"}  # controls, bytes that are not text, and ends of lines


@dataclass(frozen=True)
class SampleDescription:
    """What samples are, and what a model predicts of them.

    Class names and columns are sorted, different lines of 1 to 200 characters, composed (NFC).
    """

    __pydantic_config__ = STRICT
    entry: ClassVar[str]
    num_names: ClassVar[tuple[int, int]]

    class_names: tuple[str, ...]  # of a number to predict, its name
    sample_shape: tuple[int, ...]  # of a sample: of an image, channels, height and width
    is_float: bool = False  # float32; otherwise pixels, uint8
    is_regression: bool = False
    columns: CategoriesByColumn = field(default_factory=dict)  # of tables, without the label's

    def __post_init__(self) -> None:
        least, most = (1, 1) if self.is_regression else self.num_names
        if not least <= len(self.class_names) <= most:
            count = len(self.class_names)
            raise ValueError(f"there are {count} classes, but from {least} to {most} are possible.")
        _check_texts(self.class_names, "class name")
        if not is_shape(self.sample_shape):
            shape = reprlib.repr(self.sample_shape)
            raise ValueError(f"sample_shape is {shape}, but it must be {ALLOWED_SHAPE}.")
        _check_texts(tuple(self.columns), "name of a column")
        for name, values in self.columns.items():
            _check_texts(values, f"value of column {printable(name)}", is_shown=False)
        self.preparation.check(self.sample_shape)

    @property
    def num_classes(self) -> int:
        """Return the number of classes, which is that of a model's outputs: 1 for a number."""
        return len(self.class_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what each number of a sample is, for rows of tables."""
        return sample_columns(self.columns)

    @property
    def preparation(self) -> Preparation:
        """Return the preparation that all devices share."""
        return Preparation(self.columns)

    def as_config(self) -> dict[str, str]:
        """Return the entry of a message's config record."""
        return {self.entry: to_json(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Read the entry that `as_config` made."""
        text = config.get(cls.entry)
        if not isinstance(text, str):
            raise ValueError(f"the {cls.entry} must be a text, not {brief(text)}.")
        try:
            return from_json(cls, text)
        except ValueError as error:
            raise ValueError(f"the {cls.entry} is refused: {error}") from None

    def __str__(self) -> str:
        """Describe the samples without their classes, which devices need not share."""
        if self.columns:
            names = [f"{name}{' (texts)' * bool(values)}" for name, values in self.columns.items()]
            kind = f"tables of {', '.join(names)}"
        else:
            kind = described(self.sample_shape, is_float=self.is_float)
        return f'{kind} with the number "{self.class_names[0]}"' if self.is_regression else kind


@dataclass(frozen=True)
class Survey(SampleDescription):
    """What a device sends about its samples before an agreement: 1 to 1,000 classes."""

    entry: ClassVar[str] = SURVEY
    num_names: ClassVar[tuple[int, int]] = (1, MAX_DEVICE_CLASSES)
    in_folders: bool = False  # images, with the size that they would have at this device alone

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns:
            numbers = len(self.column_names)
            if max(len(self.columns), numbers) > MAX_COLUMNS:
                raise ValueError(f"{numbers} columns, but at most {MAX_COLUMNS} are possible.")
            if not self.is_float:
                raise ValueError("is_float of tables must be true, not false.")
            common_columns({"this table": self.columns})
        if self.in_folders and (self.is_regression or not _fits_folders(self)):
            raise ValueError(
                f"images in folders have at most {MAX_SIDE} pixels a side, and classes, not "
                f"{described(self.sample_shape, is_float=self.is_float)}."
            )

    def __str__(self) -> str:
        """Describe the samples without the size of images in folders, which can be changed."""
        if not self.in_folders:
            return super().__str__()
        return f"{grey_or_colour(self.sample_shape[0])} images in folders"


@dataclass(frozen=True)
class Agreement(SampleDescription):
    """What all devices' samples have in common: every class and value; a label is an index."""

    entry: ClassVar[str] = AGREEMENT
    num_names: ClassVar[tuple[int, int]] = (2, MAX_CLASSES)
    scaling: Scaling | None = None  # of all devices' samples together, if they have one

    @property
    def preparation(self) -> Preparation:
        """Return the preparation that all devices share."""
        scope = NOT_STANDARDISED if self.scaling is None else ALL_SITES
        return Preparation(self.columns, standardise=scope, scaling=self.scaling)

    @property
    def suits_folders(self) -> bool:
        """Return whether images in folders can be read so."""
        return _fits_folders(self) and not self.is_regression


def _fits_folders(kind: SampleDescription) -> bool:
    shape = kind.sample_shape
    return are_images(shape, is_float=kind.is_float) and max(shape[1:]) <= MAX_SIDE


def _check_texts(texts: tuple[str, ...], what: str, *, is_shown: bool = True) -> None:
    """Refuse texts unless all are different, sorted, composed lines of 1 to 200 characters.

    Without `is_shown`, a message has no text: a device sends its error messages to the server.
    """
    for text in texts:
        is_line = all(unicodedata.category(character) not in _NOT_ALLOWED for character in text)
        if not (1 <= len(text) <= MAX_NAME and is_line and text == strip_and_compose(text)):
            shown = f"{what} {brief(text)}" if is_shown else f"each {what}"
            raise ValueError(f"{shown} must be one line of at most {MAX_NAME} characters (NFC).")
    if list(texts) != sorted(set(texts)):
        raise ValueError(f"each {what} must differ from the others, and all must be sorted.")
