"""What models' arrays are, by their names and types, wherever their values are changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_type(kind: np.dtype[Any], values: NDArray[np.float64]) -> NDArray[np.generic]:
    """Return aggregated values in the type of what they were made of.

    Integers and truth values, which are 0 and 1, are rounded.
    """
    return (np.rint(values) if kind.kind in "biu" else values).astype(kind)


def is_variance(name: str) -> bool:
    """Return whether an array is a normalising layer's variances, none of which is negative."""
    return name.endswith("running_var")
