"""Files that anybody may have written: what reads them by types; what is wrong, in a sentence."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fl_core.metrics import Metric
from fl_core.text import printable

_WORDS = {
    "integer": "a whole number",
    "string": "text",
    "number": "a number",
    "array": "a list",
    "object": "a table",
}
_MOST_NAMED = 2_000  # clients of a matrix, as a run keeps it
_FARTHEST = 1e12  # whatever is measured: what is drawn is counted in steps


@lru_cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """Return what reads values of that type; a large one takes a tenth of a second to prepare."""
    return TypeAdapter(kind)


def what_is_wrong(error: ValidationError, page: str = "docs/results.md") -> str:
    """Return a sentence about the first value that is not what its type says; the page has keys."""
    first = error.errors()[0]
    *above, key = first["loc"] or ("",)
    where, at = ".".join(map(str, above)) or "the file", ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{where} lacks the key {key}."
    if first["type"] == "unexpected_keyword_argument":
        return f"{where} has no key {key}: see {page} for those it has."
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    said = first["msg"].replace("Input should be ", "it must be ")
    for word, ours in _WORDS.items():
        said = said.replace(f"a valid {word}", ours)
    return f"{at} is {printable(repr(first['input']))[:60]}, but {said}."


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
