"""What the fields of files are read as: text that does no harm, numbers that may be missing."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from fl_core.text import one_line, printable

# More than float32 holds, which clients may send; sums of many, and their squares, are numbers.
_LARGEST = 1e39


def _bounded(values: Any) -> Any:
    """Return numbers as they are; raise a ValueError if one is larger than can be drawn."""
    if (largest := np.abs(values).max(initial=0, where=~np.isnan(values))) > _LARGEST:
        raise ValueError(f"{largest:g} is no number of a report, which are at most {_LARGEST:g}")
    return values


Text = Annotated[str, BeforeValidator(lambda value: printable(str(value)))]
Line = Annotated[str, BeforeValidator(lambda value: one_line(str(value)))]
Long = Annotated[str, BeforeValidator(lambda value: one_line(str(value), 2000))]
Option = bool | int | float | Annotated[str, AfterValidator(printable)]
Number = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    AfterValidator(_bounded),
]
Finite = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Array = Annotated[
    NDArray[np.float64], PlainValidator(lambda value: _bounded(np.array(value, np.float64)))
]
Reasons = dict[int, Line]
