"""Agreement by vote: what devices' surveys have in common, and which devices are outvoted."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import median_high, mode

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.data.image_folder import common_size, first_names
from fl_core.data.preparation import sample_columns
from fl_core.data.table_file import are_whole
from fl_core.data.tables import MOST_VALUES, common_columns
from fl_core.models.model_file import MAX_CLASSES
from fl_core.text import note_on_spellings, one_line, printable

MOST_UNSHARED_CLASSES = 5
"""That one device may have and no other, where most share theirs. Each class of any device is an
output of all models: 19 invented ones cost two digits 21 points, and 998 cost them 25."""

logger = logging.getLogger(__name__)


def agree(surveys: Mapping[str, Survey]) -> Agreement:
    """Return what devices of one kind have in common, from their surveys by name.

    Classes, and the values of a category, are all that any device has. Images in folders get
    `common_size`, where each device counts once.
    """
    if not surveys:
        raise ValueError("no device described its samples: connect devices that have some.")
    first = next(iter(surveys.values()))
    columns, shape, names = first.columns, first.sample_shape, first.class_names
    if columns:
        columns = common_columns({name: survey.columns for name, survey in surveys.items()})
        shape = (len(sample_columns(columns)),)
        for column, values in columns.items():
            if note := note_on_spellings(f"the values of column {printable(column)}:", values):
                logger.warning("%s", note)
    elif first.in_folders:
        shape = _common_shape({name: survey.sample_shape for name, survey in surveys.items()})
    if not first.is_regression:
        names = _common_classes({name: survey.class_names for name, survey in surveys.items()})
        how = "in pandas by column.replace({})" if columns else "by renaming {}"
        if note := note_on_spellings("the classes", names, how):
            logger.warning("%s", note)
    return Agreement(names, shape, first.is_float, first.is_regression, columns)


def _common_classes(classes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return every class of any device, sorted; `classes` are by the devices' names."""
    names = sorted({name for device_names in classes.values() for name in device_names})
    if len(names) < 2:
        raise ValueError(
            f'all sites together have the one class "{printable(names[0])}", but at least 2 are '
            "needed: use a folder for each class, or more names of classes."
        )
    if len(names) > MAX_CLASSES:
        most = sorted(classes, key=lambda name: (-len(classes[name]), name))
        raise ValueError(
            f"all sites together have {len(names)} classes, but at most {MAX_CLASSES} are "
            f"possible: {', '.join(most[:3])} have the most, leave out such sites."
        )
    return tuple(names)


def _common_shape(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    grey = sorted(name for name, shape in shapes.items() if shape[0] == 1)
    colour = sorted(shapes.keys() - set(grey))
    if grey and colour:
        raise ValueError(
            f"some devices have grey images ({first_names(grey)}) and some colour images "
            f"({first_names(colour)}): convert them to one kind everywhere, or start a run for "
            "each kind."
        )
    sizes = [(height, width) for _, height, width in shapes.values()]
    return 1 if grey else 3, *common_size(sizes)


def outvoted(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Return the devices with samples of another kind than most devices', and a message for each.

    Images in folders are of one kind if all are grey or all in colour; tables, with the same
    columns, and labels that are all whole numbers or all texts. Of these devices, those with rare
    values of a category of too many, or with many classes that no other has, are outvoted, too.
    """
    of_kind: dict[tuple[object, ...], list[str]] = {}
    described: dict[str, str] = {}
    whole = {
        name: are_whole(survey.class_names)
        for name, survey in surveys.items()
        if survey.columns and not survey.is_regression
    }
    for name, survey in sorted(surveys.items()):
        labels = f" with labels that are {'whole numbers' if whole.get(name) else 'texts'}"
        with_labels = labels if name in whole and len(set(whole.values())) > 1 else ""
        described[name] = one_line(f"{survey}{with_labels}")
        of_kind.setdefault((*_must_agree(survey), with_labels), []).append(name)
    first, *others = sorted(of_kind.values(), key=lambda names: -len(names))
    if others and len(others[0]) == len(first):
        kinds = " and ".join(
            f"{described[names[0]]} ({first_names(names)})" for names in (first, others[0])
        )
        raise ValueError(
            f"as many devices have one kind of samples as another, {kinds}: convert them to one "
            "kind on all devices, or start a run for each kind."
        )
    of_other_kinds = {
        name: _other_columns(surveys, first[0], name)
        or f"its samples are {described[name]}, but those of most devices are "
        f"{described[first[0]]}: convert them, or exclude this device from the run."
        for names in others
        for name in names
    }
    return of_other_kinds | _with_rare_names({name: surveys[name] for name in first})


def _must_agree(survey: Survey) -> tuple[object, ...]:
    """Return what must be equal at all devices; the description hides some of it."""
    shape = () if survey.columns else survey.sample_shape
    return (
        survey.in_folders,
        shape[:1] if survey.in_folders else shape,
        survey.is_float,
        survey.class_names if survey.is_regression else (),
        tuple((name, bool(values)) for name, values in survey.columns.items()),
    )


def _with_rare_names(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Return the devices that must go so that no column nor the label has too many values."""
    messages = _with_unshared_classes(surveys)
    remaining = {name: survey for name, survey in surveys.items() if name not in messages}
    for column in ("", *next(iter(surveys.values())).columns):
        what = f"column {printable(column)} has" if column else "there are"
        names, most = ("texts", MOST_VALUES) if column else ("classes", MAX_CLASSES)
        while len(holders := _holders(remaining, column)) > most:
            shares = {
                name: [1 / holders[value] for value in _names(remaining[name], column)]
                for name in sorted(remaining)
            }
            name = max(shares, key=lambda one: (shares[one].count(1), sum(shares[one])))
            del remaining[name]
            messages[name] = (
                f"{what} {len(holders)} different {names} at all devices together, but {most} is "
                "the limit, and this device has the most that no other has: write them as others "
                f"do, or leave {'the column' if column else 'them'} out everywhere."
            )
    return messages if len(messages) < len(remaining) else {}


def _with_unshared_classes(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Return the devices with more classes that no other has than one device may add.

    It may add as many as the median device has, which may be twice its own if none are shared.
    """
    holders = _holders(surveys, "")
    unshared = {
        name: [label for label in survey.class_names if holders[label] == 1]
        for name, survey in surveys.items()
    }
    usual = median_high(len(surveys[name].class_names) + len(unshared[name]) for name in surveys)
    most = max(MOST_UNSHARED_CLASSES, usual)
    return {
        name: f"it has {len(labels)} classes that no other device has ({first_names(labels)}), but "
        f"one device may add {most} at most: name them as others do, or merge rare ones."
        for name, labels in unshared.items()
        if len(labels) > most
    }


def _holders(surveys: Mapping[str, Survey], column: str) -> Counter[str]:
    """Return how many devices have each value of a category; without a column, each class."""
    return Counter(name for survey in surveys.values() for name in _names(survey, column))


def _names(survey: Survey, column: str) -> tuple[str, ...]:
    return survey.columns[column] if column else survey.class_names


def _other_columns(surveys: Mapping[str, Survey], usual: str, name: str) -> str:
    """Return a message about a column in which a device's table differs from a usual one."""
    columns = {one: surveys[one].columns for one in (usual, name)}
    try:
        if all(columns.values()):
            common_columns(columns)
    except ValueError as error:
        return str(error)
    return ""


def with_whole_numbers(surveys: Mapping[str, Survey]) -> dict[str, Survey]:
    """Turn whole labels into numbers to predict where most tables have labels with fractions."""
    tables = [survey for survey in surveys.values() if survey.columns]
    numbers = [table for table in tables if table.is_regression]
    if 2 * len(numbers) <= len(tables):
        return dict(surveys)
    usual = mode(sorted(table.class_names for table in numbers))
    return {
        name: replace(survey, class_names=usual, is_regression=True)
        if survey.columns and not survey.is_regression and are_whole(survey.class_names)
        else survey
        for name, survey in surveys.items()
    }
