"""The similarity matrices of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures import Spec, on_page, similarity_figure
from fl_app.results.reading import Matrix, Result
from fl_app.results.schema import Grouping

TitledPicture = tuple[str, str, Spec]
"""A title, a sentence that explains the picture, and the picture."""

CONSENSUS = "consensus"
"""The measure of a matrix: the share of resamples in which two are in one cluster."""


def matrix_pictures(result: Result) -> list[Callable[[], TitledPicture]]:
    """Return functions that draw the grouping's, each strategy's first seed's, and the others."""
    seen: set[str] = set()
    first: list[Matrix] = []
    others: list[Matrix] = []
    for one in result.matrices:
        strategy = one.title.partition(",")[0]
        (others if strategy in seen else first).append(one)
        seen.add(strategy)
    found = _of_grouping(result.grouping, has_others=bool(first)) if result.grouping else []
    return [partial(_on_page, one) for one in [*found, *first, *others]]


def _of_grouping(grouping: Grouping, *, has_others: bool) -> list[Matrix]:
    """Return the relevance, unless a strategy's is there, and the consensus."""
    found = []
    measures = {CONSENSUS: grouping.together}
    if not has_others:
        measures = {"relevance": grouping.relevance, **measures}
    for measure, values in measures.items():
        if values is None:
            continue
        known = np.flatnonzero(np.isfinite(np.diag(values))).tolist()  # others were left out
        near = ((values + values.T) / 2)[np.ix_(known, known)]
        if len(known) > 1 and np.isfinite(near).all():
            names = [grouping.names[client] for client in known]
            clusters = [grouping.clusters[client] for client in known]
            found.append(with_tree(measure, near, clusters, names))
    return found


def with_tree(
    measure: str, values: NDArray[np.float64], clusters: list[int], names: list[str]
) -> Matrix:
    """Return a matrix with the tree of its clients."""
    from strategies.clusterings.agglomeration import agglomerate  # noqa: PLC0415 - it imports SciPy

    return Matrix("", measure, names, clusters, None, values, agglomerate(values, 1).merges)


def draw_matrix(one: Matrix) -> Spec:
    """Draw the similarity of clients."""
    measure = one.measure or "relevance"
    return similarity_figure(
        one.values, one.merges, one.clusters, one.tasks, None, measure, one.names
    )


def _on_page(one: Matrix) -> TitledPicture:
    title, note, spec = on_page(draw_matrix(one))
    return f"{title.partition(',')[0]}{f' · {one.title}' if one.title else ''}", note, spec
