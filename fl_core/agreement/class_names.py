"""Names of classes: which are allowed, and which are agreed."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from itertools import pairwise

from fl_core.models.model_file import MAX_CLASSES
from fl_core.text import brief, normalised_name, printable, similar_names

logger = logging.getLogger(__name__)

MAX_DEVICE_CLASSES = 1_000  # of one device, which could otherwise make the common model huge
MAX_NAME = 200  # characters

_NOT_ALLOWED = {"Cc", "Cs", "Zl", "Zp"}  # controls, bytes that are not text, and ends of lines


def is_name(text: str) -> bool:
    """Return whether a text is one composed line of 1 to 200 characters."""
    is_line = all(unicodedata.category(character) not in _NOT_ALLOWED for character in text)
    return 1 <= len(text) <= MAX_NAME and is_line and text == normalised_name(text)


def check_names(names: tuple[str, ...], least: int, most: int) -> None:
    """Raise a ValueError unless these are sorted class names, as many as is allowed."""
    if not least <= len(names) <= most:
        raise ValueError(
            f"there are {len(names)} classes, but from {least} to {most} are possible."
        )
    for name in names:
        if not is_name(name):
            raise ValueError(
                f"{brief(name)} is not a valid class name: it must be one line of at most "
                f"{MAX_NAME} characters, in Unicode's composed form."
            )
    for name, following in pairwise(names):
        if name >= following:
            raise ValueError(
                f"class names must be sorted and differ, but {brief(name)} comes before "
                f"{brief(following)}."
            )


def agreed_classes(classes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return every class of any device, sorted; `classes` are by the devices' names."""
    names = sorted({name for device_names in classes.values() for name in device_names})
    if len(names) < 2:
        raise ValueError(
            f'all sites together have the one class "{printable(names[0])}", but at least 2 are '
            "needed: use a folder for each class, or more names of classes."
        )
    for similar in similar_names(names):
        logger.warning(
            "the classes %s count as different ones: if they are the same, give them one name "
            "everywhere and start again",
            ", ".join(map(repr, similar)),
        )
    if len(names) > MAX_CLASSES:
        most = sorted(classes, key=lambda name: (-len(classes[name]), name))
        raise ValueError(
            f"all sites together have {len(names)} classes, but at most {MAX_CLASSES} are "
            f"possible: {', '.join(most[:3])} have the most, leave out such sites."
        )
    return tuple(names)
