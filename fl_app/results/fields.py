"""The types of fields in result files, and their checks: the author of a file may be malicious.

Texts are made harmless; numbers may be missing, and are small enough to be drawn.
"""

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

# More than the largest float32, which clients may send; sums and squares of such are finite.
_LARGEST = 1e39
_MOST_CLIENTS = 2_000  # of a stored matrix
_LARGEST_SIMILARITY = 1e12  # that can be drawn


def _bounded(values: Any) -> Any:
    """Return the numbers; raise a ValueError if one is too large to be drawn."""
    if (largest := np.abs(values).max(initial=0, where=~np.isnan(values))) > _LARGEST:
        raise ValueError(f"{largest:g} is too large: numbers are at most {_LARGEST:g}")
    return values


def is_empty(value: Any) -> bool:
    """Return whether a value is None or an empty list, table or text, which is not written."""
    return value is None or (hasattr(value, "__len__") and len(value) == 0)


DASHED_KEYS = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))
"""The configuration of a class whose keys have dashes where its fields have underscores."""
OMIT_EMPTY = Field(exclude_if=is_empty)  # a key that a file has only if its value is not empty

_NAN_IF_NULL = BeforeValidator(lambda value: math.nan if value is None else value)

Text = Annotated[str, BeforeValidator(lambda value: printable(str(value)))]
Line = Annotated[str, BeforeValidator(lambda value: one_line(str(value)))]
Long = Annotated[str, BeforeValidator(lambda value: one_line(str(value), 2000))]
Option = bool | int | float | Annotated[str, AfterValidator(printable)]
Number = Annotated[float, _NAN_IF_NULL, AfterValidator(_bounded)]
NumberIfAny = Annotated[float | None, _NAN_IF_NULL, AfterValidator(_bounded), OMIT_EMPTY]
Count = Annotated[int, Field(ge=0, le=10**18)]
Finite = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Array = Annotated[
    NDArray[np.float64],
    PlainValidator(lambda value: _bounded(np.array(value, np.float64))),
    PlainSerializer(lambda values: values.tolist()),
]
Reasons = dict[int, Line]


def check_scores(scores: NDArray[np.float64], metric: Metric) -> None:
    """Raise a ValueError if a known score is not possible."""
    if not metric.allows(scores) or np.isinf(scores).any():
        raise ValueError(f"an {metric.title} is not {metric.bounds}")


def check_square(values: NDArray[np.float64], count: int) -> None:
    """Raise a ValueError unless the values are a similarity matrix of so many clients."""
    if values.shape != (count, count) or count > _MOST_CLIENTS:
        raise ValueError(f"a matrix of {count} clients has shape {values.shape}")
    if (np.abs(values) > _LARGEST_SIMILARITY).any():
        raise ValueError(f"a similarity is larger than {_LARGEST_SIMILARITY:g}")


def check_clients(clients: Collection[int], count: int) -> None:
    """Raise a ValueError if a client is not among so many."""
    if wrong := [client for client in clients if not 0 <= client < count]:
        raise ValueError(f"there is no client {wrong[0]}")
