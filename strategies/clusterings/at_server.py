"""Clusters by the relevances that the server computes from eigenpairs (`relevance-at=server`).

Ours, as are landmarks among very many clients (docs/comparing-clients.md, docs/scale.md).
"""

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fl_core.relevance import PAPER, Spectra, relevances
from strategies.clusterings.agglomeration import canonical_labels, closest_clusters
from strategies.clusterings.outliers import SHARES_NOTHING, group_without_outliers, strangers
from strategies.clusterings.relevance_groups import NumGroups, RelevanceGroups, group_by_relevance

RANK = 10
"""How many eigenpairs at least stand for a Gram matrix."""
MOST_EXACT, LANDMARKS = 10_000, 2_000
"""Clients that are all compared with each other, and those that are drawn among more: the others
join the cluster that is most relevant to them."""

logger = logging.getLogger(__name__)


def group_by_eigenpairs(
    spectra: Spectra,
    num_eigenvectors: int,
    num_clusters: NumGroups,
    linkage: str = "average",
    formula: str = PAPER,
    *,
    separate: bool,
    rng: np.random.Generator,
) -> RelevanceGroups:
    """Group K clients by so many eigenvectors, as `group_by_relevance` does; `separate` outliers.

    `rng` draws landmarks. No client reports a score, so none is rejected.
    """
    count = len(spectra.widths)
    kinds = strangers(spectra, rng) if separate else np.full(count, -1)
    compared = usual = np.flatnonzero(kinds < 0)
    if len(usual) > MOST_EXACT:
        drawn = max(LANDMARKS, 0 if isinstance(num_clusters, str) else num_clusters)
        compared = np.sort(rng.choice(usual, min(drawn, len(usual)), replace=False))
        logger.info(
            "%d clients are more than are compared with each other (%d): %d landmarks are, "
            "and each other client joins the cluster that is most relevant to it",
            *(len(usual), MOST_EXACT, len(compared)),
        )
    chosen = spectra[compared]
    scores = relevances(formula, chosen, chosen, num_eigenvectors)
    if separate:
        if not isinstance(num_clusters, str) and len(usual) < count:
            num_clusters = min(num_clusters, len(compared))
        none: NDArray[np.int64] = np.full(len(compared), -1)
        found = group_without_outliers(
            scores, none, num_clusters, linkage, formula, self_reported=False
        )
    else:
        found = group_by_relevance(scores, num_clusters, linkage, formula)
    labels = kinds + int(found.labels.max()) + 1
    labels[compared] = found.labels
    if len(others := np.setdiff1d(usual, compared)):
        near = relevances(formula, spectra[others], chosen, num_eigenvectors)
        labels[others] = closest_clusters(near, found.labels)
    outliers = dict.fromkeys(np.flatnonzero(kinds >= 0).tolist(), SHARES_NOTHING)
    return replace(found, labels=canonical_labels(labels), compared=compared, outliers=outliers)
