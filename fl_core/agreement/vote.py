"""What devices' surveys come to: who is outvoted, and what all others agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import mode

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.class_names import agreed_classes
from fl_core.data.image_folder import common_size, few
from fl_core.data.preparation import sample_columns
from fl_core.data.table_file import are_whole
from fl_core.data.tables import MOST_VALUES, common_columns
from fl_core.models.model_file import MAX_CLASSES
from fl_core.text import one_line, printable


def agree(surveys: Mapping[str, Survey]) -> Agreement:
    """Settle what all devices have in common, which are of one kind, in whatever order they come.

    The classes, and the values of a category, are all that any device has. The size of images in
    folders is that of all devices, if they have the same; otherwise the median of their heights and
    of their widths, each device counted once, rounded to a multiple of 4, 28 at least. `surveys` is
    by the devices' names.

    Raises
    ------
    ValueError
        If there are no devices, some have grey images and some have colours, or all together have
        less than 2 classes or more than 10,000; and as `common_columns`.
    """
    if not surveys:
        raise ValueError("no device told of its images: connect devices that have some.")
    first = next(iter(surveys.values()))
    columns, shape, names = first.columns, first.image_shape, first.class_names
    if columns:
        columns = common_columns({name: one.columns for name, one in surveys.items()})
        shape = (len(sample_columns(columns)),)
    elif first.in_folders:
        shape = _common_shape({name: one.image_shape for name, one in surveys.items()})
    if not first.is_regression:
        names = agreed_classes({name: one.class_names for name, one in surveys.items()})
    return Agreement(names, shape, first.is_float, first.is_regression, columns)


def _common_shape(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    grey = sorted(name for name, shape in shapes.items() if shape[0] == 1)
    colour = sorted(name for name, shape in shapes.items() if shape[0] != 1)
    if grey and colour:
        raise ValueError(
            f"grey images ({few(grey)}) and colour images ({few(colour)}) cannot be learnt "
            "together: convert them to one kind everywhere, or run them apart."
        )
    sizes = [(height, width) for _, height, width in shapes.values()]
    return 1 if grey else 3, *common_size(sizes)


def outvoted(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Return the devices whose samples are of another kind than most devices', and why they fail.

    Images in folders are of one kind if all are grey or all in colour, whatever their size, and
    tables with the same columns and with labels that are alike: whole numbers are not among texts.
    Among these, who has values of a category that few others have is
    left out, too, where all together are too many.

    Raises
    ------
    ValueError
        If as many devices have one kind as have another.
    """
    of_kind: dict[tuple[object, ...], list[str]] = {}
    said: dict[str, str] = {}
    differ = _labels_differ(surveys)
    for name, survey in sorted(surveys.items()):
        labels = "whole numbers" if are_whole(survey.class_names) else "texts"
        is_told = differ and survey.columns and not survey.is_regression
        with_labels = f" with labels that are {labels}" if is_told else ""
        said[name] = one_line(f"{survey}{with_labels}")
        of_kind.setdefault((*_must_agree(survey), with_labels), []).append(name)
    first, *others = sorted(of_kind.values(), key=lambda names: -len(names))
    if others and len(others[0]) == len(first):
        kinds = " and ".join(f"{said[names[0]]} ({few(names)})" for names in (first, others[0]))
        raise ValueError(
            f"{kinds} cannot be learnt together, and as many devices have the one as the other: "
            "convert them to one kind on all devices, or run them apart."
        )
    of_other_kinds = {
        name: _other_columns(surveys, first[0], name)
        or f"its samples are {said[name]}, but most devices' are {said[first[0]]}: convert them, "
        "or leave this device out."
        for names in others
        for name in names
    }
    return of_other_kinds | _with_rare_names({name: surveys[name] for name in first})


def _must_agree(survey: Survey) -> tuple[object, ...]:
    """Return all in which samples must be alike: its words, which a column may ape, hide some."""
    shape = () if survey.columns else survey.image_shape
    return (
        survey.in_folders,
        shape[:1] if survey.in_folders else shape,
        survey.is_float,
        survey.class_names if survey.is_regression else (),
        tuple((name, bool(values)) for name, values in survey.columns.items()),
    )


def _with_rare_names(surveys: Mapping[str, Survey]) -> dict[str, str]:
    """Return the devices without which no category has too many values, and why they fail.

    Nor are there too many classes. If half of all had to go, no single one is at fault: none goes.
    """
    remaining = dict(surveys)
    found: dict[str, str] = {}
    for column in ("", *next(iter(surveys.values())).columns):
        what = f"column {printable(column)} has" if column else "there are"
        names, most = ("texts", MOST_VALUES) if column else ("classes", MAX_CLASSES)
        while (count := len(_holders(remaining, column))) > most:
            name = _rarest(remaining, column)
            del remaining[name]
            found[name] = (
                f"{what} {count} different {names} at all devices together, but {most} is the "
                "limit, and most that no other device has are this one's: write them as others "
                f"do, or leave {'the column' if column else 'them'} out everywhere."
            )
    return found if len(found) < len(remaining) else {}


def _rarest(surveys: Mapping[str, Survey], column: str) -> str:
    """Return the device with the most names that no other has; of several, with the rarest."""
    holders = _holders(surveys, column)

    def rarity(name: str) -> tuple[int, float]:
        shares = [1 / holders[value] for value in _names(surveys[name], column)]
        return shares.count(1), sum(shares)

    return max(sorted(surveys), key=rarity)


def _holders(surveys: Mapping[str, Survey], column: str) -> Counter[str]:
    """Return how many devices have each value of a category; of no column, each class."""
    return Counter(name for one in surveys.values() for name in _names(one, column))


def _names(survey: Survey, column: str) -> tuple[str, ...]:
    return survey.columns[column] if column else survey.class_names


def _labels_differ(surveys: Mapping[str, Survey]) -> bool:
    """Return whether some tables' classes are whole numbers and others' have other names."""
    tables = [one for one in surveys.values() if one.columns and not one.is_regression]
    return len({are_whole(one.class_names) for one in tables}) > 1


def _other_columns(surveys: Mapping[str, Survey], usual: str, name: str) -> str:
    """Say which column a device's table has, or has not, other than a usual one; else nothing."""
    first, second = surveys[usual], surveys[name]
    try:
        if first.columns and second.columns:
            common_columns({usual: first.columns, name: second.columns})
    except ValueError as error:
        return str(error)
    return ""


def with_whole_numbers(surveys: Mapping[str, Survey]) -> dict[str, Survey]:
    """Take whole labels for numbers to predict where most tables have such with fractions."""
    tables = [one for one in surveys.values() if one.columns]
    numbers = [one for one in tables if one.is_regression]
    if 2 * len(numbers) <= len(tables):
        return dict(surveys)
    usual = mode(sorted(one.class_names for one in numbers))

    def taken(survey: Survey) -> Survey:
        if not survey.columns or survey.is_regression or not are_whole(survey.class_names):
            return survey
        return replace(survey, class_names=usual, is_regression=True)

    return {name: taken(survey) for name, survey in surveys.items()}
