"""Images that a device has of its own: what it tells of them, and how they are read."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.data.image_files import listed_images
from fl_core.data.image_folder import Split, common_shape, few, read_image_folder
from fl_core.data.samples import grey_or_colour
from fl_core.text import composed

logger = logging.getLogger(__name__)


def survey_images(path: Path) -> Survey:
    """Look at the headers of a device's images at `path`, as in `read_image_folder`.

    Its log names the files that are not read.

    Raises
    ------
    ValueError
        As `read_image_folder`, or if the names of the class folders are not what `Survey` wants.
    OSError
        If the images are not there or cannot be read.
    """
    files = listed_images(path)
    for note in files.notes(path):
        logger.warning(note)
    shape = common_shape(files, path)
    try:
        names = tuple(sorted(map(composed, files.train)))
        return Survey(names, shape, in_folders=True)
    except ValueError as error:
        raise ValueError(f"the class folders of {path} cannot be used: {error}") from error


def read_own_images(path: Path, cache: Path, agreement: Agreement) -> Split:
    """Read a device's images in the agreed shape, decoded once and then kept in `cache`.

    Labels are indices into the agreement's `class_names`, which are the `classes`.
    `path` and `cache` are as in `read_image_folder`.

    Raises
    ------
    ValueError
        As `read_image_folder`, or if the device has a class that is not agreed, or grey images
        where colours are agreed, or the other way round, or where no images are.
    OSError
        If the images cannot be read or the cache cannot be written.
    """
    if not agreement.suits_folders:
        raise ValueError(
            f"the images in {path} cannot be learnt with samples that are {agreement}, as was "
            "agreed: leave this device out."
        )
    channels, height, width = agreement.image_shape
    read = read_image_folder(path, cache, size=(height, width))
    found = read.train_samples.shape[1]
    if found != channels:
        raise ValueError(
            f"the images in {path} are {grey_or_colour(found)}, but {grey_or_colour(channels)} was "
            "agreed: convert them, or leave this device out."
        )
    return relabelled(read, agreement, str(path))


def relabelled(read: Split, agreement: Agreement, where: str) -> Split:
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
