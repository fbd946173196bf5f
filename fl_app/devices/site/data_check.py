"""What `fedkin devices check` finds of a site's data, read as a run reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fl_core.agreement.local_images import survey_images
from fl_core.agreement.local_samples import DATA, survey_of
from fl_core.agreement.local_tables import survey_table
from fl_core.data.image_files import hold_out, listed_images
from fl_core.data.image_folder import for_each_image
from fl_core.data.samples import described, grey_or_colour
from fl_core.data.settings import BY_VALUES
from fl_core.data.table_file import read_table
from fl_core.data.user_data import read_own_part, read_twice
from fl_core.text import listed, printable


def images_found(path: Path) -> str:
    """Decode every image as a run would, and return how many there are of each class."""
    survey = survey_images(path)
    files = hold_out(listed_images(path))
    for_each_image(files.all_images(), path, lambda image, _: image.load() and None)
    counts = ((name, len(own), len(files.test.get(name, ()))) for name, own in files.train.items())
    return f"{grey_or_colour(survey.image_shape[0])}, {_counted(counts)}"


def _counted(classes: Iterable[tuple[str, int, int]]) -> str:
    counts = ", ".join(f"{printable(name)} {train} + {test}" for name, train, test in classes)
    return f"of each class for training + for testing: {counts}"


def table_found(path: Path, label: str, target: str = BY_VALUES) -> str:
    """Read a table as a run would, and return its columns, and how many rows each class has."""
    survey, table = survey_table(path, label, target), read_table(path, label, target)
    columns = f"{len(survey.columns)} columns ({printable(listed([*survey.columns], 20, ', '))})"
    if survey.is_regression:
        trained, tested = table.labels[~table.is_test], table.labels[table.is_test]
        return f"{columns}, {_number_found(table.label, trained, tested)}"
    train, test = (Counter(table.labels[part]) for part in (~table.is_test, table.is_test))
    return f"{columns}, {_counted((name, train[name], test[name]) for name in survey.class_names)}"


def _number_found(name: str, trained: NDArray[Any], tested: NDArray[Any]) -> str:
    counts = f"for training + for testing: {len(trained)} + {len(tested)}"
    number = f"{printable(name)}, {trained.min():.4g} to {trained.max():.4g}"
    return f"{counts}, with a number to predict: {number}"


def samples_found(path: str) -> str:
    """Call the site's function as a run would, and return how many samples each class has."""
    found = read_twice(DATA, path, partial(read_own_part, DATA), "each message of a run")
    survey = survey_of(found)
    kind = described(survey.image_shape, is_float=survey.is_float)
    if found.is_regression:
        labels = found.train_labels.numpy(), found.test_labels.numpy()
        return f"{kind}, {_number_found(found.class_names[0], *labels)}"
    train, test = (
        labels.bincount(minlength=found.num_classes).tolist()
        for labels in (found.train_labels, found.test_labels)
    )
    return f"{kind}, {_counted(zip(found.class_names, train, test, strict=True))}"
