"""What devices tell of samples of their own, and what is agreed, so that one model fits all."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from fl_core.agreement.class_names import MAX_NAME, MAX_OWN_CLASSES, check_names, is_name
from fl_core.data.image_folder import MAX_SIDE
from fl_core.data.preparation import Columns, Preparation, sample_columns
from fl_core.data.samples import are_images, described, grey_or_colour
from fl_core.data.scaling import Scaling
from fl_core.data.settings import ALL_SITES, NOBODY
from fl_core.data.tables import common_columns
from fl_core.json_records import STRICT, from_json, to_json
from fl_core.models.model_file import MAX_CLASSES, SHAPE_WANTED, is_shape
from fl_core.text import brief, printable

# Entries of a message's config record.
SURVEY = "survey"
AGREEMENT = "agreement"

MOST_COLUMNS = 10_000  # of one device, which could otherwise make the model of all devices huge


@dataclass(frozen=True)
class Kind:
    """What samples are, and what is to be predicted of them.

    Attributes
    ----------
    class_names : tuple of str
        Sorted and different, in Unicode's composed form (NFC): single lines of 1 to 200 characters.
        Of a number to predict, its name alone.
    image_shape : tuple of int
        Of a sample: of an image, channels, height and width.
    is_float : bool
        Whether samples are float32; otherwise they are pixels, uint8.
    is_regression : bool
        Whether what is to be predicted is a number.
    columns : dict
        Of tables, the names of their columns, sorted, without the label's, and the values of those
        with texts.

    Raises
    ------
    ValueError
        If a value is not of these, or nothing can be learnt of samples of this shape.
    """

    __pydantic_config__ = STRICT
    entry: ClassVar[str]
    num_names: ClassVar[tuple[int, int]]

    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    is_float: bool = False
    is_regression: bool = False
    columns: Columns = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.class_names, *((1, 1) if self.is_regression else self.num_names))
        if not is_shape(self.image_shape):
            raise ValueError(
                f"image_shape is {SHAPE_WANTED}, not {reprlib.repr(self.image_shape)}."
            )
        _check_texts(tuple(self.columns))
        for name, values in self.columns.items():
            _check_texts(values, of_column=name)
        self.preparation.check(self.image_shape)

    @property
    def num_classes(self) -> int:
        """Return the number of classes, and of a model's outputs: 1 for a number."""
        return len(self.class_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what each number of a sample is, if they are of tables."""
        return sample_columns(self.columns)

    @property
    def preparation(self) -> Preparation:
        """Return what is done to samples before a model sees them, but for scales of one's own."""
        return Preparation(self.columns)

    def as_config(self) -> dict[str, str]:
        """Return the entry of a message's config record."""
        return {self.entry: to_json(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Undo `as_config`; other entries are passed over.

        Raises
        ------
        ValueError
            If there is no such entry, or it is not what may be sent.
        """
        text = config.get(cls.entry)
        if not isinstance(text, str):
            raise ValueError(f"the {cls.entry} must be a text, not {brief(text)}.")
        try:
            return from_json(cls, text)
        except ValueError as error:
            raise ValueError(f"the {cls.entry} is refused: {error}") from None

    def __str__(self) -> str:
        """Return it in words; classes, of which devices may have different ones, are left out."""
        if self.columns:
            of_texts = {name: " (texts)" if own else "" for name, own in self.columns.items()}
            kind = f"tables of {', '.join(name + texts for name, texts in of_texts.items())}"
        else:
            kind = described(self.image_shape, is_float=self.is_float)
        return f'{kind} with the number "{self.class_names[0]}"' if self.is_regression else kind


@dataclass(frozen=True)
class Survey(Kind):
    """All that a device tells of its samples before anything is agreed.

    Attributes
    ----------
    class_names : tuple of str
        1 to 1,000.
    in_folders : bool
        Whether they are images in folders: grey ones or in colour, of the size that they would have
        if the device were alone, from 1 to 224 pixels a side.
    """

    entry: ClassVar[str] = SURVEY
    num_names: ClassVar[tuple[int, int]] = (1, MAX_OWN_CLASSES)
    in_folders: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns:
            numbers = len(self.column_names)
            if max(len(self.columns), numbers) > MOST_COLUMNS:
                raise ValueError(f"{numbers} columns, but {MOST_COLUMNS} at most are learnt.")
            if not self.is_float:
                raise ValueError("is_float of tables must be true, not false.")
            common_columns({"this table": self.columns})
        if self.in_folders and self.is_regression:
            raise ValueError("images in folders have classes: no number can be predicted of them.")
        if self.in_folders and not _fits_folders(self):
            raise ValueError(
                f"images in folders have at most {MAX_SIDE} pixels a side, in grey or in colours, "
                f"not {described(self.image_shape, is_float=self.is_float)}."
            )

    def __str__(self) -> str:
        """Return it in words; sizes of images are left out where others can be chosen."""
        if not self.in_folders:
            return super().__str__()
        return f"{grey_or_colour(self.image_shape[0])} images in folders"


@dataclass(frozen=True)
class Agreement(Kind):
    """What all devices' samples have in common, so that one model fits them all.

    Attributes
    ----------
    class_names : tuple of str
        Every class that any device has, 2 to 10,000; a label is an index into them.
    columns : dict
        Of tables, those of all devices, with the values that any device has.
    scaling : Scaling, optional
        The one scale of all devices' samples, if they have one.
    """

    entry: ClassVar[str] = AGREEMENT
    num_names: ClassVar[tuple[int, int]] = (2, MAX_CLASSES)
    scaling: Scaling | None = None

    @property
    def preparation(self) -> Preparation:
        """Return what is done to samples before a model sees them, but for scales of one's own."""
        whose = NOBODY if self.scaling is None else ALL_SITES
        return Preparation(self.columns, standardise=whose, scaling=self.scaling)

    @property
    def suits_folders(self) -> bool:
        """Return whether images in folders can be read so."""
        return _fits_folders(self) and not self.is_regression


def _fits_folders(kind: Kind) -> bool:
    shape = kind.image_shape
    return are_images(shape, is_float=kind.is_float) and max(shape[1:]) <= MAX_SIDE


def _check_texts(texts: tuple[str, ...], *, of_column: str = "") -> None:
    for text in texts:
        if not is_name(text):
            # Without a value: a device's refusals are told to the server.
            wrong = f"column {printable(of_column)} has a value that cannot be learnt"
            raise ValueError(
                f"{wrong if of_column else f'{brief(text)} is no name of a column'}: one line of "
                f"at most {MAX_NAME} characters is expected."
            )
    if list(texts) != sorted(set(texts)):
        raise ValueError("columns and their values must be sorted and differ.")
