"""Of long lists of cases, a few that always run; the others do with `make faults`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def sampled(cases: Iterable[Any], step: int, ids: Iterable[str] | None = None) -> list[Any]:
    """Return all cases, of which every `step`-th runs always.

    A step that shares no divisor with the lengths of a product's factors reaches each of their
    values, if it leaves cases enough.
    """
    named: Sequence[Any] = list(cases)
    names = list(ids) if ids is not None else [None] * len(named)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=[] if number % step == 0 else [pytest.mark.faults],
        )
        for number, (case, name) in enumerate(zip(named, names, strict=True))
    ]
