"""How sure a grouping is: what becomes of it when clients' data are drawn again.

A resample is a grouping of the same clients on data drawn anew from their own. Whatever the
resamples share is what the data say; the rest is chance (B. Efron, "Bootstrap Methods: Another Look
at the Jackknife", 1979; for clusters: S. Monti et al., "Consensus Clustering", 2003). Resamples
agree as well where nothing was told apart, which `why_untold` looks for.
Pure functions over arrays; who draws is not said here. docs/grouping.md has how honest this is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

DOUBTFUL = 0.9
"""A client that joins its cluster in fewer of the resamples is in doubt (docs/grouping.md)."""

APART = -1
"""In place of a cluster: with nobody."""


SAME_SCORES = 1e-3
"""Scores that lie within this of each other do not differ; of usual clients, they lie over 0.3."""


def why_untold(labels: Int64, similarity: Float64) -> str:
    """Return why clusters tell nobody apart, whatever resamples say; empty: they may.

    Parameters
    ----------
    labels : NDArray[np.int64], shape (K,)
        The clusters.
    similarity : NDArray[np.float64], shape (n, n)
        How relevant the clients that were compared are to each other, symmetric, in [0, 1].

    Examples
    --------
    >>> why_untold(np.array([0, 1]), np.array([[1, 0.2], [0.2, 1]]))
    'two clients have one score, which there is nothing to compare with'
    """
    if len(similarity) < 2:
        return "one client was compared with nobody"
    if len(similarity) == 2:
        return "two clients have one score, which there is nothing to compare with"
    scores = similarity[~np.eye(len(similarity), dtype=bool)]
    if np.ptp(scores) < SAME_SCORES:
        return f"the scores of all clients are the same ({scores.mean():.3f})"
    number = len(np.unique(labels))
    if number == 1:
        return "all clients are in one cluster"
    return "each client is a cluster of its own" if number == len(labels) else ""


class Doubt(NamedTuple):
    """A client that is not surely where it is.

    Attributes
    ----------
    client, cluster : int
        Who, and where it is.
    other_cluster : int
        Where it lands most often instead; `APART`: with nobody.
    share : float
        In how many of the resamples it lands there.
    """

    client: int
    cluster: int
    other_cluster: int
    share: float


class Candidate(NamedTuple):
    """A number of clusters that could have been chosen.

    Attributes
    ----------
    num_clusters : int
    score : float
        How far apart clusters lie there; NaN of one cluster, which has none.
    resamples : float
        In how many of the resamples this number has the best score.
    """

    num_clusters: int
    score: float
    resamples: float


@dataclass(frozen=True, eq=False)
class Certainty:
    """How sure the clusters of K clients are.

    Attributes
    ----------
    of_client : NDArray[np.float64], shape (K,)
        In how many of the resamples each client lands with its own cluster.
    votes : NDArray[np.float64], shape (K, C + 1)
        In how many it lands with each cluster; the last column: with nobody.
    """

    of_client: Float64
    votes: Float64

    def doubts(self, labels: Int64) -> list[Doubt]:
        """Return the clients that are less sure than `DOUBTFUL`, the least sure first."""
        doubtful = np.flatnonzero(self.of_client < DOUBTFUL)
        found = []
        for client in doubtful[np.argsort(self.of_client[doubtful], kind="stable")].tolist():
            others = self.votes[client].copy()
            others[labels[client]] = -1
            other = int(others.argmax())
            where = APART if other == len(others) - 1 else other
            found.append(Doubt(client, int(labels[client]), where, float(others[other])))
        return found


def pair_shares(resamples: Sequence[Int64]) -> Float64:
    """Return in how many of the resamples each pair of clients lands together, shape (K, K).

    Parameters
    ----------
    resamples : sequence of NDArray[np.int64], shapes (K,)
        Clusters under any names; at least one.

    Examples
    --------
    >>> pair_shares([np.array([0, 0, 1]), np.array([0, 1, 1])])[1].tolist()
    [0.5, 1.0, 0.5]
    """
    count = len(resamples[0])
    together = np.zeros((count, count))
    for labels in resamples:
        together += labels[:, None] == labels[None, :]
    return together / len(resamples)


def certainty(labels: Int64, resamples: Sequence[Int64]) -> Certainty:
    """Return how often each client lands with its own cluster, and with others.

    In a resample, a client lands with the cluster of which it meets the largest share: of the
    cluster's other clients, those that are with it. Of equals its own counts, so that two clusters
    that are one in a resample leave nobody in doubt: that is a doubt about their number. A client
    that meets nobody lands apart; if it is a cluster of its own, that is its cluster. Where all are
    one cluster, who meets fewer than half of the others lands apart, too: there is no other.

    Parameters
    ----------
    labels : NDArray[np.int64], shape (K,)
        The clusters, each of 0 to C − 1 at least once.
    resamples : sequence of NDArray[np.int64], shapes (K,)
        Clusters under any names; at least one.
    """
    everybody = np.arange(len(labels))
    num_clusters = int(labels.max()) + 1
    own = np.eye(num_clusters)[labels]
    others = own.sum(axis=0) - own  # of each cluster, without the client itself; shape (K, C)
    alone = others[everybody, labels] == 0
    votes = np.zeros((len(labels), num_clusters + 1))
    for drawn in resamples:
        names, place = np.unique(drawn, return_inverse=True)
        counts = np.zeros((len(names), num_clusters))
        np.add.at(counts, (place, labels), 1)
        met = counts[place] - own
        shares = np.divide(met, others, out=np.zeros_like(met), where=others > 0)
        meets_nobody = met.sum(axis=1) == 0
        shares[everybody, labels] += 1e-9  # of equals, its own
        landed = shares.argmax(axis=1)
        landed[meets_nobody] = np.where(alone, labels, num_clusters)[meets_nobody]
        if num_clusters == 1:
            landed[(shares[:, 0] < 0.5) & ~alone] = 1
        votes[everybody, landed] += 1
    votes /= len(resamples)
    return Certainty(votes[everybody, labels], votes)


def candidates(scores: Float64, chosen: Sequence[int], first: int = 2) -> list[Candidate]:
    """Weigh each number of clusters.

    Parameters
    ----------
    scores : NDArray[np.float64], shape (n,)
        Of `first`, `first` + 1, … clusters.
    chosen : sequence of int
        The number that was best in each of the resamples.
    first : int
        The lowest number that could be chosen.
    """
    total = max(1, len(chosen))
    return [
        Candidate(number, float(score), chosen.count(number) / total)
        for number, score in enumerate(scores.tolist(), start=first)
    ]
