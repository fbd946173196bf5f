"""Images that a device has of its own: what it tells of them, what is agreed, how they are read."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fl_core.data.datasets import HELD_OUT
from fl_core.data.image_folder import (
    MAX_SIDE,
    LabelledImages,
    common_size,
    few,
    read_image_folder,
    summarize_image_folder,
)
from fl_core.data.preparation import Columns, Preparation
from fl_core.data.samples import are_images, described
from fl_core.data.scaling import Scaling
from fl_core.data.settings import ALL_SITES, NOBODY
from fl_core.models.model_file import MAX_CLASSES, SHAPE_WANTED, is_shape
from fl_core.own.class_names import (
    CLASS_NAMES,
    MAX_OWN_CLASSES,
    agreed_classes,
    check_names,
    composed,
    names_in,
)
from fl_core.own.own_scale import scale_config, scale_in
from fl_core.text import brief

# Entries of a message's config record.
GREY = "grey"
HEIGHT = "height"
WIDTH = "width"
CHANNELS = "channels"
SHAPE = "sample-shape"
IS_FLOAT = "is-float"
IS_REGRESSION = "is-regression"


@dataclass(frozen=True)
class Survey:
    """All that a device tells of its images before anything is agreed.

    Attributes
    ----------
    classes : tuple of str
        The names of its classes, 1 to 1,000, sorted and different, in Unicode's composed form
        (NFC): single lines of 1 to 200 characters.
    grey : bool
        Whether its images are grey; otherwise they have colours.
    height, width : int
        The size in pixels that its images would have if it were alone, from 1 to 224.

    Raises
    ------
    ValueError
        If a value is not of these.
    """

    classes: tuple[str, ...]
    grey: bool
    height: int
    width: int

    def __post_init__(self) -> None:
        check_names(self.classes, 1, MAX_OWN_CLASSES)
        _check_side(HEIGHT, self.height)
        _check_side(WIDTH, self.width)

    def as_config(self) -> dict[str, list[str] | bool | int]:
        """Return the entries of a message's config record."""
        return {
            CLASS_NAMES: list(self.classes),
            GREY: self.grey,
            HEIGHT: self.height,
            WIDTH: self.width,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Survey:
        """Undo `as_config`; other entries are passed over.

        Raises
        ------
        ValueError
            If an entry is missing, of another type, or not what a survey may say.
        """
        grey = config.get(GREY)
        if not isinstance(grey, bool):
            said = brief(grey)
            raise ValueError(f"{GREY} of a survey of images must be true or false, not {said}.")
        return cls(names_in(config), grey, _whole(config, HEIGHT), _whole(config, WIDTH))


@dataclass(frozen=True)
class Agreement:
    """What all devices' samples have in common, so that one model fits them all.

    Attributes
    ----------
    class_names : tuple of str
        Every class that any device has, sorted; a label is an index into them. Of a number to
        predict, its name alone.
    image_shape : tuple of int
        Channels (1 or 3), height and width of images from 1 to 224 pixels a side; or the shape of
        other samples.
    is_float : bool
        Whether samples are float32; otherwise they are pixels, uint8.
    is_regression : bool
        Whether what is to be predicted is a number.
    columns : dict
        Of tables, those of all devices, with the values that any device has.
    scaling : Scaling, optional
        The one scale of all devices' samples, if they have one.

    Raises
    ------
    ValueError
        If there are less than 2 classes, or names or sizes are not those of a survey.
    """

    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    is_float: bool = False
    is_regression: bool = False
    columns: Columns = field(default_factory=dict)
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        least, most = (1, 1) if self.is_regression else (2, MAX_CLASSES)
        check_names(self.class_names, least, most)
        check_shape(self.image_shape)
        self.preparation.check(self.image_shape)

    @property
    def num_classes(self) -> int:
        """Return the number of classes, and of a model's outputs: 1 for a number."""
        return len(self.class_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what each number of a sample is, if they are of tables."""
        return self.preparation.column_names

    @property
    def preparation(self) -> Preparation:
        """Return what is done to samples before a model sees them, but for scales of one's own."""
        whose = NOBODY if self.scaling is None else ALL_SITES
        return Preparation(self.columns, standardise=whose, scaling=self.scaling)

    @property
    def suits_folders(self) -> bool:
        """Return whether images in folders can be read so."""
        shape = self.image_shape
        images = are_images(shape, is_float=self.is_float) and max(shape[1:]) <= MAX_SIDE
        return images and not self.is_regression

    def as_config(self) -> dict[str, list[str] | list[int] | list[float] | int | bool]:
        """Return the entries of a message's config record."""
        names = {CLASS_NAMES: list(self.class_names)}
        if not self.suits_folders:
            shape: dict[str, list[int] | bool] = {SHAPE: list(self.image_shape)}
            shape[IS_FLOAT] = self.is_float
            return {**names, **shape, **self._number_config(), **scale_config(self.scaling)}
        channels, height, width = self.image_shape
        return {**names, CHANNELS: channels, HEIGHT: height, WIDTH: width}

    def _number_config(self) -> dict[str, bool]:
        return {IS_REGRESSION: True} if self.is_regression else {}

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Agreement:
        """Undo `as_config`; other entries are passed over.

        Raises
        ------
        ValueError
            If an entry is missing, of another type, or not what an agreement may say.
        """
        if SHAPE in config:
            return cls(names_in(config), *kind_in(config), scaling=scale_in(config))
        channels, height, width = (_whole(config, key) for key in (CHANNELS, HEIGHT, WIDTH))
        if channels not in {1, 3}:
            raise ValueError(f"{CHANNELS} of images must be 1 or 3, not {brief(channels)}.")
        _check_side(HEIGHT, height)
        _check_side(WIDTH, width)
        return cls(names_in(config), (channels, height, width))


def survey_images(path: Path) -> Survey:
    """Look at the headers of a device's images at `path`, as in `read_image_folder`.

    Raises
    ------
    ValueError
        As `read_image_folder`, or if the names of the class folders are not what `Survey` wants.
    OSError
        If the images are not there or cannot be read.
    """
    summary = summarize_image_folder(path)
    try:
        return Survey(tuple(sorted(map(composed, summary.classes))), summary.grey, *summary.size)
    except ValueError as error:
        raise ValueError(f"the class folders of {path} cannot be used: {error}") from error


def agree(surveys: Mapping[str, Survey]) -> Agreement:
    """Settle the classes and the shape of images for all devices, in whatever order they come.

    The classes are all that any device has. The size is that of all devices, if they have the
    same; otherwise the median of their heights and of their widths, each device counted once,
    rounded to a multiple of 4, 28 at least. `surveys` is by the devices' names.

    Raises
    ------
    ValueError
        If there are no devices, some have grey images and some have colours, or all together have
        less than 2 classes or more than 10,000.
    """
    if not surveys:
        raise ValueError("no device told of its images: connect devices that have some.")
    grey = sorted(name for name, survey in surveys.items() if survey.grey)
    colour = sorted(name for name, survey in surveys.items() if not survey.grey)
    if grey and colour:
        raise ValueError(
            f"grey images ({few(grey)}) and colour images ({few(colour)}) cannot be learnt "
            "together: convert them to one kind on all devices, or run them apart."
        )
    names = agreed_classes({name: survey.classes for name, survey in surveys.items()})
    height, width = common_size([(survey.height, survey.width) for survey in surveys.values()])
    return Agreement(names, (1 if grey else 3, height, width))


def read_own_images(path: Path, cache: Path, agreement: Agreement) -> LabelledImages:
    """Read a device's images in the agreed shape, decoded once and then kept in `cache`.

    Labels are indices into the agreement's `class_names`, which are the `classes`.
    Its test folder holds its test images. Without one, a fifth of each class is held out, one
    image at least, by the names of the files: the same images in every run, whatever its seed and
    strategy. A class with a single image then trains and is not tested. `path` and `cache` are as
    in `read_image_folder`.

    Raises
    ------
    ValueError
        As `read_image_folder`, or if the device has a class that is not agreed, or grey images
        where colours are agreed, or the other way round, or where no images are.
    OSError
        If the images cannot be read or the cache cannot be written.
    """
    if not agreement.suits_folders:
        agreed = described(agreement.image_shape, is_float=agreement.is_float)
        raise ValueError(
            f"the images in {path} cannot be learnt with samples that are {agreed}, as was agreed: "
            "leave this device out."
        )
    channels, height, width = agreement.image_shape
    read = read_image_folder(path, cache, size=(height, width), held_out=HELD_OUT)
    found = read.train_images.shape[1]
    if found != channels:
        kinds = {1: "grey", 3: "colour"}
        raise ValueError(
            f"the images in {path} are {kinds[found]}, but {kinds[channels]} was agreed: convert "
            "them, or leave this device out."
        )
    return relabelled(read, agreement, str(path))


def relabelled(read: LabelledImages, agreement: Agreement, where: str) -> LabelledImages:
    """Return samples from somewhere with labels that are indices into the agreed classes.

    Raises
    ------
    ValueError
        If they have a class that is not agreed.
    """
    index = {name: label for label, name in enumerate(agreement.class_names)}
    names = [composed(name) for name in read.classes]
    unknown = [name for name in names if name not in index]
    if unknown:
        raise ValueError(
            f"{few(unknown)} in {where} cannot be learnt, since the classes were agreed without: "
            "start the run again with this device, so that they are agreed anew, or take what is "
            "of these classes elsewhere."
        )
    labels = torch.tensor([index[name] for name in names])
    return read._replace(
        train_labels=labels[read.train_labels],
        test_labels=labels[read.test_labels],
        classes=agreement.class_names,
    )


def _whole(config: Mapping[str, object], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key} of images must be a whole number, not {brief(value)}.")
    return value


def kind_in(config: Mapping[str, object]) -> tuple[tuple[int, ...], bool, bool]:
    """Return the shape of samples that a config record tells, and whether they are float32.

    Last, whether a number is to be predicted.

    Raises
    ------
    ValueError
        If it does not, or nothing can be learnt of such samples.
    """
    shape, is_float = config.get(SHAPE), config.get(IS_FLOAT)
    if not isinstance(shape, list):
        raise ValueError(f"{SHAPE} must be a list of whole numbers, not {brief(shape)}.")
    if not isinstance(is_float, bool):
        raise ValueError(f"{IS_FLOAT} of samples must be true or false, not {brief(is_float)}.")
    check_shape(tuple(shape))
    return tuple(shape), is_float, config.get(IS_REGRESSION) is True


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless a model can be made for samples of this shape."""
    if not is_shape(shape):
        raise ValueError(f"{SHAPE} is {SHAPE_WANTED}, not {reprlib.repr(shape)}.")


def _check_side(key: str, side: int) -> None:
    if not 1 <= side <= MAX_SIDE:
        raise ValueError(f"{key} of images must be from 1 to {MAX_SIDE}, not {brief(side)}.")
