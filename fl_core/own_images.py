"""Images that a device has of its own: what it tells of them, what is agreed, how they are read."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from fl_core.datasets import HELD_OUT
from fl_core.image_folder import (
    MAX_SIDE,
    LabelledImages,
    common_size,
    few,
    read_image_folder,
    summarize_image_folder,
)
from fl_core.model_file import MAX_CLASSES
from fl_core.text import printable

logger = logging.getLogger(__name__)

MAX_OWN_CLASSES = 1_000  # of one device, lest a single one makes everybody's model huge
MAX_NAME = 200  # characters

# Entries of a message's config record.
CLASS_NAMES = "class-names"
GREY = "grey"
HEIGHT = "height"
WIDTH = "width"
CHANNELS = "channels"

_UNWANTED = {"Cc", "Cs", "Zl", "Zp"}  # controls, bytes that are not text, and ends of lines


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
        _check_names(self.classes, 1, MAX_OWN_CLASSES)
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
            said = _brief(grey)
            raise ValueError(f"{GREY} of a survey of images must be true or false, not {said}.")
        return cls(_names(config), grey, _whole(config, HEIGHT), _whole(config, WIDTH))


@dataclass(frozen=True)
class Agreement:
    """What all devices make of their images, so that one model fits them all.

    Attributes
    ----------
    class_names : tuple of str
        Every class that any device has, sorted; a label is an index into them.
    image_shape : tuple of int
        Channels (1 or 3), height and width.

    Raises
    ------
    ValueError
        If there are less than 2 classes, or names or sizes are not those of a survey.
    """

    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        _check_names(self.class_names, 2, MAX_CLASSES)
        channels, height, width = self.image_shape
        if channels not in {1, 3}:
            raise ValueError(f"{CHANNELS} of images must be 1 or 3, not {channels}.")
        _check_side(HEIGHT, height)
        _check_side(WIDTH, width)

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    def as_config(self) -> dict[str, list[str] | int]:
        """Return the entries of a message's config record."""
        channels, height, width = self.image_shape
        return {
            CLASS_NAMES: list(self.class_names),
            CHANNELS: channels,
            HEIGHT: height,
            WIDTH: width,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Agreement:
        """Undo `as_config`; other entries are passed over.

        Raises
        ------
        ValueError
            If an entry is missing, of another type, or not what an agreement may say.
        """
        shape = (_whole(config, CHANNELS), _whole(config, HEIGHT), _whole(config, WIDTH))
        return cls(_names(config), shape)


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
        return Survey(tuple(sorted(map(_composed, summary.classes))), summary.grey, *summary.size)
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
    names = sorted({name for survey in surveys.values() for name in survey.classes})
    if len(names) < 2:
        raise ValueError(
            f'all devices together have the one class "{printable(names[0])}", but at least 2 are '
            "needed: each class has a folder of its own."
        )
    for alike in _alike(names):
        logger.warning(
            "the classes %s are taken for different ones: where they are not, give their folders "
            "one name on all devices and start again",
            ", ".join(map(repr, alike)),
        )
    if len(names) > MAX_CLASSES:
        most = sorted(surveys, key=lambda name: (-len(surveys[name].classes), name))
        raise ValueError(
            f"all devices together have {len(names)} classes, but {MAX_CLASSES} at most can be "
            f"learnt: {', '.join(most[:3])} have the most, leave out such devices."
        )
    height, width = common_size([(survey.height, survey.width) for survey in surveys.values()])
    return Agreement(tuple(names), (1 if grey else 3, height, width))


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
        where colours are agreed, or the other way round.
    OSError
        If the images cannot be read or the cache cannot be written.
    """
    channels, height, width = agreement.image_shape
    read = read_image_folder(path, cache, size=(height, width), held_out=HELD_OUT)
    found = read.train_images.shape[1]
    if found != channels:
        raise ValueError(
            f"the images in {path} are {_kind(found)}, but {_kind(channels)} was agreed: convert "
            "them, or leave this device out."
        )
    index = {name: label for label, name in enumerate(agreement.class_names)}
    names = [_composed(name) for name in read.classes]
    unknown = [name for name in names if name not in index]
    if unknown:
        raise ValueError(
            f"{few(unknown)} in {path} cannot be learnt, since the classes were agreed without: "
            "start the run again with this device, so that they are agreed anew, or move the "
            "images elsewhere."
        )
    labels = torch.tensor([index[name] for name in names])
    return read._replace(
        train_labels=labels[read.train_labels],
        test_labels=labels[read.test_labels],
        classes=agreement.class_names,
    )


def _alike(names: list[str]) -> list[list[str]]:
    """Return names that differ in nothing but case, spaces and punctuation, together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        letters = "".join(c for c in name.casefold() if c.isalnum())
        groups.setdefault(letters or name, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _composed(name: str) -> str:
    """Return a folder's name as others write it: some systems store é as e and an accent."""
    return unicodedata.normalize("NFC", name)


def _kind(channels: int) -> str:
    return "grey" if channels == 1 else "colour"


def _brief(value: object) -> str:
    """Return what another device sent, short enough for a message, on one line."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else ""
    return text if 0 < len(text) <= 60 else f"a {type(value).__name__}"


def _names(config: Mapping[str, object]) -> tuple[str, ...]:
    names = config.get(CLASS_NAMES)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{CLASS_NAMES} must be a list of names, not {_brief(names)}.")
    return tuple(names)


def _whole(config: Mapping[str, object], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key} of images must be a whole number, not {_brief(value)}.")
    return value


def _check_side(key: str, side: int) -> None:
    if not 1 <= side <= MAX_SIDE:
        raise ValueError(f"{key} of images must be from 1 to {MAX_SIDE}, not {_brief(side)}.")


def _check_names(names: tuple[str, ...], least: int, most: int) -> None:
    if not least <= len(names) <= most:
        raise ValueError(
            f"there are {len(names)} classes of images, but from {least} to {most} are possible."
        )
    for name in names:
        is_line = all(unicodedata.category(character) not in _UNWANTED for character in name)
        if not (1 <= len(name) <= MAX_NAME and is_line and name == _composed(name)):
            raise ValueError(
                f"{_brief(name)} is not a valid class name: one line of at most {MAX_NAME} "
                "characters, in Unicode's composed form, is expected."
            )
    for name, following in pairwise(names):
        if name >= following:
            raise ValueError(
                f"class names must be sorted and differ, but {_brief(name)} comes before "
                f"{_brief(following)}."
            )
