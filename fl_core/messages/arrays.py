"""The kinds of a model's arrays, by name and type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_type(kind: np.dtype[Any], values: NDArray[np.float64]) -> NDArray[np.generic]:
    """Convert aggregated values to an array's type; integers and booleans are rounded."""
    return (np.rint(values) if kind.kind in "biu" else values).astype(kind)


def is_variance(name: str) -> bool:
    """Return whether an array has the variances of a normalising layer, which are not negative."""
    return name.endswith("running_var")
