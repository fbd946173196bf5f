"""What the fields of files are read as, and what is checked: anybody may have written them.

Texts do no harm, numbers may be missing, and are of a size that can be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
)

from fl_core.metrics import Metric
from fl_core.text import one_line, printable

# More than float32 holds, which clients may send; sums of many, and their squares, are numbers.
_LARGEST = 1e39
_MOST_NAMED = 2_000  # clients of a matrix, as a run keeps it
_FARTHEST = 1e12  # whatever is measured: what is drawn is counted in steps


def _bounded(values: Any) -> Any:
    """Return numbers as they are; raise a ValueError if one is larger than can be drawn."""
    if (largest := np.abs(values).max(initial=0, where=~np.isnan(values))) > _LARGEST:
        raise ValueError(f"{largest:g} is no number of a report, which are at most {_LARGEST:g}")
    return values


def has_none(value: Any) -> bool:
    """Return whether there is nothing to write: None, or a list, table or text without any."""
    return value is None or (hasattr(value, "__len__") and len(value) == 0)


DASHES = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))
"""Of a class whose keys have dashes for the underscores of its fields."""
IF_ANY = Field(exclude_if=has_none)
"""A key that a file has only where there is something to say."""

_NAN_IF_NULL = BeforeValidator(lambda value: math.nan if value is None else value)

Text = Annotated[str, BeforeValidator(lambda value: printable(str(value)))]
Line = Annotated[str, BeforeValidator(lambda value: one_line(str(value)))]
Long = Annotated[str, BeforeValidator(lambda value: one_line(str(value), 2000))]
Option = bool | int | float | Annotated[str, AfterValidator(printable)]
Number = Annotated[float, _NAN_IF_NULL, AfterValidator(_bounded)]
NumberIfAny = Annotated[float | None, _NAN_IF_NULL, AfterValidator(_bounded), IF_ANY]
Count = Annotated[int, Field(ge=0, le=10**18)]
Finite = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Array = Annotated[
    NDArray[np.float64],
    PlainValidator(lambda value: _bounded(np.array(value, np.float64))),
    PlainSerializer(lambda values: values.tolist()),
]
Reasons = dict[int, Line]


def check_scores(scores: NDArray[np.float64], metric: Metric) -> None:
    """Raise a ValueError unless all scores that are known can be such."""
    if not metric.allows(scores) or np.isinf(scores).any():
        raise ValueError(f"an {metric.title} is not {metric.bounds}")


def check_square(values: NDArray[np.float64], count: int) -> None:
    """Raise a ValueError unless it says of so many clients how near they are to each other."""
    if values.shape != (count, count) or count > _MOST_NAMED:
        raise ValueError(f"a matrix of {count} clients has shape {values.shape}")
    if (np.abs(values) > _FARTHEST).any():
        raise ValueError(f"clients are nearer or farther than {_FARTHEST:g}")


def check_clients(clients: Collection[int], count: int) -> None:
    """Raise a ValueError unless all of them are among so many."""
    if wrong := [client for client in clients if not 0 <= client < count]:
        raise ValueError(f"there is no client {wrong[0]}")
