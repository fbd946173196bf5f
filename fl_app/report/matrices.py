"""The similarity matrices of a page."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures import Spec, on_page, similarity_figure
from fl_app.results.layout import GROUPING, run_file_stem
from fl_app.results.reading import Matrix, Result

TitledPicture = tuple[str, str, Spec]
"""A title, a sentence that explains the picture, and the picture."""

CONSENSUS = "consensus"  # the share of resamples in which two are in one cluster


def matrices_of(result: Result) -> dict[str, Matrix]:
    """Return the grouping's matrices, and each strategy's first seed's first, by names of files."""
    first = {one.title.partition(",")[0]: one for one in result.matrices[::-1]}.values()
    found = _of_grouping(result)
    for one in sorted(result.matrices, key=lambda one: one not in first):
        strategy, _, seed = one.title.rpartition(", seed ")
        found[run_file_stem("similarity", strategy, seed) if strategy else "similarity"] = one
    return found


def _of_grouping(result: Result) -> dict[str, Matrix]:
    """Return the consensus, and the relevance unless a strategy's is there."""
    found: dict[str, Matrix] = {}
    if (grouping := result.grouping) is None:
        return found
    relevance = None if result.matrices else grouping.relevance
    for name, measure, values in (
        ("relevance", "relevance", relevance),
        (GROUPING.removesuffix(".json"), CONSENSUS, grouping.together),
    ):
        if values is None:
            continue
        known = np.flatnonzero(np.isfinite(np.diag(values))).tolist()  # others were left out
        near = ((values + values.T) / 2)[np.ix_(known, known)]
        if len(known) > 1 and np.isfinite(near).all():
            names = [grouping.names[client] for client in known]
            clusters = [grouping.clusters[client] for client in known]
            found[name] = with_tree(measure, near, clusters, names)
    return found


def matrix_pictures(result: Result) -> list[Callable[[], TitledPicture]]:
    """Return functions that draw the matrices for a page."""
    return [partial(_on_page, one) for one in matrices_of(result).values()]


def with_tree(
    measure: str, values: NDArray[np.float64], clusters: list[int], names: list[str]
) -> Matrix:
    """Return a matrix with the tree of its clients."""
    from strategies.clusterings.agglomeration import agglomerate  # noqa: PLC0415 - it imports SciPy

    return Matrix("", measure, names, clusters, None, values, agglomerate(values, 1).merges)


def draw_matrix(one: Matrix) -> Spec:
    """Draw the similarity of clients."""
    return similarity_figure(
        one.values, one.merges, one.clusters, one.tasks, None, one.measure, one.names
    )


def _on_page(one: Matrix) -> TitledPicture:
    title, note, spec = on_page(draw_matrix(one))
    return f"{title.partition(',')[0]}{f' · {one.title}' if one.title else ''}", note, spec
