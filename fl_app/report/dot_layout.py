"""Where dots lie that would hide each other: beside and over each other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def piled(places: NDArray[np.float64], gap: float, most: float = math.inf) -> NDArray[np.int64]:
    """Return on which level each dot lies, from 0: the lowest on which it hides no other.

    Parameters
    ----------
    places : NDArray[np.float64], shape (n,)
        Where the dots are along the axis, ascending.
    gap : float
        How far apart dots of a level must be at least.
    most : float
        Where more levels are needed, the others are left at −1.

    Examples
    --------
    >>> piled(np.array([0.0, 0.0, 0.4, 1.0, 1.2]), 1.0).tolist()
    [0, 1, 2, 0, 1]
    """
    levels = np.full(len(places), -1)
    ends: list[float] = []  # where the next dot of each level may lie
    for dot, place in enumerate(places.tolist()):
        level = next((level for level, end in enumerate(ends) if place >= end), len(ends))
        if level >= most:
            break
        if level == len(ends):
            ends.append(0.0)
        ends[level] = place + gap
        levels[dot] = level
    return levels
