"""Clients whose features hold too little for a comparison to say anything: a pure function."""

from __future__ import annotations

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
    """Return why a client's features, of some name, say little of whom it is like, or nothing.

    Random Fourier features are all of one size, however large a column of the samples is beside
    the others. There the samples are judged, without their columns' means, which turn all features
    alike. Where a single one varies, it is what there is to compare.

    Parameters
    ----------
    samples, features : NDArray, shapes (n, …) and (n, d)
    columns : sequence of str, optional
        What samples' numbers are called.
    """
    rows = samples.reshape(len(samples), -1)
    if name != "fourier" or np.count_nonzero((rows != rows[0]).any(axis=0)) < 2:
        return why_uninformative(features, columns if name == "raw" else ())
    return why_uninformative(rows - rows.mean(axis=0, dtype=np.float64), columns)


def why_uninformative(features: NDArray[Any], names: Sequence[str] = ()) -> str:
    """Return why a client's features say little of whom it is like; empty: they may say more.

    The share of a column, not that of the first eigenvalue: features are not centred, so that one
    is large where all is well.

    Parameters
    ----------
    features : NDArray, shape (n, d)
    names : sequence of str, optional
        What samples' numbers are called: they are features' names where these are the samples.

    Examples
    --------
    >>> features = np.array([[1, 900], [0, -700], [-1, 800]], np.float32)
    >>> why_uninformative(features)
    'column 1 of its features holds nearly all that there is: bring all columns to one scale'
    >>> why_uninformative(features, ("age", "income"))
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
