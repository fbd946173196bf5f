"""The similarity matrices of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures import Spec, certainty_figure, on_page, similarity_figure
from fl_app.results.reading import Matrix, Result
from fl_app.results.schema import Grouping

TitledPicture = tuple[str, str, Spec]
"""A title, a sentence that explains the picture, and the picture."""


def matrix_pictures(result: Result) -> list[Callable[[], TitledPicture]]:
    """Return functions that draw the grouping's, each strategy's first seed's, and the others."""
    seen: set[str] = set()
    first: list[Matrix] = []
    others: list[Matrix] = []
    for one in result.matrices:
        strategy = one.title.partition(",")[0]
        (others if strategy in seen else first).append(one)
        seen.add(strategy)
    found = of_grouping(result.grouping, has_others=bool(first))
    return found + [partial(_similarity, one) for one in [*first, *others]]


def of_grouping(
    grouping: Grouping | None, *, has_others: bool
) -> list[Callable[[], TitledPicture]]:
    """Draw the relevance, unless a strategy's is there, and the certainty."""
    if grouping is None:
        return []
    found: list[Callable[[], TitledPicture]] = []
    if grouping.relevance is not None and not has_others:
        known, near = _known(grouping.relevance)
        if len(known) > 1:
            found.append(partial(_similarity, _with_tree(grouping, known, near)))
    if grouping.together is not None:
        known, near = _known(grouping.together)
        if len(known) > 1:
            found.append(partial(_certainty, grouping, known, near))
    return found


def _known(values: NDArray[np.float64]) -> tuple[list[int], NDArray[np.float64]]:
    """Return the clients with values, none if one of theirs is missing, and these values."""
    known = np.flatnonzero(np.isfinite(np.diag(values))).tolist()  # others were left out
    near = ((values + values.T) / 2)[np.ix_(known, known)]
    return (known, near) if np.isfinite(near).all() else ([], near)


def _with_tree(grouping: Grouping, known: list[int], near: NDArray[np.float64]) -> Matrix:
    from strategies.clusterings.agglomeration import agglomerate  # noqa: PLC0415 - it imports SciPy

    merges = agglomerate(near, 1).merges
    names = [grouping.names[client] for client in known]
    clusters = [grouping.clusters[client] for client in known]
    return Matrix("", "relevance", names, clusters, None, near, merges)


def _similarity(one: Matrix) -> TitledPicture:
    measure = one.measure or "relevance"
    title, note, spec = on_page(
        similarity_figure(one.values, one.merges, one.clusters, one.tasks, None, measure, one.names)
    )
    return f"{title.partition(',')[0]}{f' · {one.title}' if one.title else ''}", note, spec


def _certainty(grouping: Grouping, known: list[int], near: NDArray[np.float64]) -> TitledPicture:
    title, note, spec = on_page(
        certainty_figure(
            near,
            [grouping.clusters[client] for client in known],
            [grouping.certainty[client] for client in known],
            [grouping.names[client] for client in known],
        )
    )
    return title, f"{note} There were {grouping.resamples:,} resamples.", spec
