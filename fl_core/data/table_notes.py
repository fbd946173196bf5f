"""What people should know of tables that can be learnt from, but may not say what they seem to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from fl_core.data.preparation import Columns
from fl_core.data.settings import A_NUMBER
from fl_core.data.table_file import SPLIT, are_whole, is_no_number
from fl_core.text import alike, listed, printable

_MANY = 20  # whole numbers, of which more are hardly names of classes


def on_columns(columns: Columns) -> Iterator[str]:
    """Say which categories seem to be numbers, most of which somebody wrote in another way."""
    for name, values in columns.items():
        if _seeming_numbers(values):
            said = next(filter(is_no_number, values), values[0])
            yield (
                f"column {printable(name)} is a category of {len(values)} texts, such as "
                f"{printable(said)}, but most seem to be numbers: if they are, write all as "
                "numbers, with a point and no other signs"
            )


def _seeming_numbers(texts: Sequence[str]) -> list[float]:
    """Return what texts say as numbers, whatever signs these have, if most of them are such."""
    plain = [text.replace(",", ".").removesuffix("%").strip() for text in texts]
    numbers = [float(text) for text in plain if not is_no_number(text)]
    return numbers if 2 * len(numbers) > len(texts) else []


def on_classes(trained: Tensor, tested: Tensor, classes: tuple[str, ...]) -> Iterator[str]:
    """Say which classes may be none; labels are indices into them."""
    whole = are_whole(classes)
    numbers = [] if whole else _seeming_numbers(classes)
    if any(number % 1 for number in numbers) or len(numbers) > _MANY:
        said = next(filter(is_no_number, classes), classes[0])
        yield (
            f"the label has {len(classes)} different texts, such as {printable(said)}, each taken "
            "for a class of its own, but most seem to be numbers: if it is a number to predict, "
            f"write all as numbers, with a point; target={A_NUMBER} names a row that is none"
        )
        return
    # Classes that are tested but trained nowhere: the rows may be sorted by label.
    untrained = [printable(classes[label]) for label in np.setdiff1d(tested, trained)]
    if untrained:
        yield (
            f"no training row has the label {listed(untrained, 5, ' or ')}, which test rows have: "
            "where rows are sorted by label, shuffle them, or add a column "
            f"{SPLIT} with train and test"
        )
    if len(classes) > _MANY and whole:
        yield (
            f"the label has {len(classes)} different whole numbers, each taken for a class of its "
            f"own: if it is a number to predict, set target={A_NUMBER}"
        )
    together = [", ".join(map(printable, names)) for names in alike(classes)]
    if together:
        yield (
            f"the classes {listed(together, 5, '; ')} are taken for different ones: where they are "
            "not, give them one name at all sites"
        )
