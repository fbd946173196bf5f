"""Detect clients with features that hold too little for a comparison: pure functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_core.text import printable

MOST_OF_ONE_COLUMN = 0.95
"""A larger share of all squares in one column of features leaves nothing else to compare.

Of HoG and of pixels, no column held more than 0.04. A column of noise at a hundred times the scale
of thirty others holds 0.997.
"""


def why_little_to_compare(
    name: str, samples: NDArray[Any], features: NDArray[np.float32], columns: Sequence[str] = ()
) -> str:
    """Return why a client's features say little of which clients are similar; empty: nothing.

    Random Fourier features all have one size, so for these the samples, (n, …), are judged, without
    their columns' means, unless only one column varies. `columns` are the columns' names.
    """
    rows = samples.reshape(len(samples), -1)
    if name != "fourier" or np.count_nonzero((rows != rows[0]).any(axis=0)) < 2:
        return why_uninformative(features, columns if name == "raw" else ())
    return why_uninformative(rows - rows.mean(axis=0, dtype=np.float64), columns)


def why_uninformative(features: NDArray[Any], names: Sequence[str] = ()) -> str:
    """Return why features, (n, d), say little of which clients are similar; empty: they may.

    By the share of a column, not of the first eigenvalue, which is large where all is well.

    Examples
    --------
    >>> why_uninformative(np.array([[1, 900], [0, -700], [-1, 800]], np.float32), ("age", "income"))
    'column income of its features holds nearly all that there is: bring all columns to one scale'
    """
    if len(features) > 1 and (features == features[0]).all():
        return "all its samples are the same, so leaving some out changes nothing"
    squares = np.square(features, dtype=np.float64).sum(axis=0)
    largest = int(squares.argmax())
    if squares[largest] > MOST_OF_ONE_COLUMN * squares.sum():
        column = printable(names[largest]) if len(names) == features.shape[1] else largest
        return (
            f"column {column} of its features holds nearly all that there is: bring all columns "
            "to one scale"
        )
    return ""
