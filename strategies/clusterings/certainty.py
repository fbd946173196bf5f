"""How certain a grouping is: how the same clients are grouped on resampled data.

B. Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979; S. Monti et al., "Consensus
Clustering", 2003. Resamples agree as well where clients could not be distinguished, which
`why_no_structure` detects. Pure functions over arrays; docs/grouping.md has how reliable this is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

DOUBTFUL = 0.9
"""A client that joins its cluster in fewer of the resamples is in doubt (docs/grouping.md)."""

NO_CLUSTER = -1
"""In place of a cluster: alone."""

SAME_SCORES = 1e-3
"""Scores that lie within this of each other do not differ; of usual clients, they lie over 0.3."""


def why_no_structure(labels: Int64, similarity: Float64) -> str:
    """Return why clusters distinguish no clients; empty: they may.

    `similarity`, shape (n, n), is of the clients that were compared, symmetric, in [0, 1].
    """
    if len(similarity) < 2:
        return "only one client was compared"
    if len(similarity) == 2:
        return "two clients have one score, and no other to compare it with"
    scores = similarity[~np.eye(len(similarity), dtype=bool)]
    if np.ptp(scores) < SAME_SCORES:
        return f"the scores of all clients are the same ({scores.mean():.3f})"
    number = len(np.unique(labels))
    if number == 1:
        return "all clients are in one cluster"
    return "each client is a separate cluster" if number == len(labels) else ""


class Doubt(NamedTuple):
    """A client in an uncertain cluster."""

    client: int
    cluster: int
    other_cluster: int  # the most frequent one instead; `NO_CLUSTER`: none
    share: float  # of the resamples with that


@dataclass(frozen=True, eq=False)
class Certainty:
    """The certainty of the clusters of K clients."""

    of_client: Float64  # the share of the resamples with its cluster, shape (K,)
    votes: Float64  # the share with each cluster, shape (K, C + 1); the last column: alone

    def doubts(self, labels: Int64) -> list[Doubt]:
        """Return the clients with a certainty below `DOUBTFUL`, the least certain first."""
        doubtful = np.flatnonzero(self.of_client < DOUBTFUL)
        found = []
        for client in doubtful[np.argsort(self.of_client[doubtful], kind="stable")].tolist():
            others = self.votes[client].copy()
            others[labels[client]] = -1
            other = int(others.argmax())
            where = NO_CLUSTER if other == len(others) - 1 else other
            found.append(Doubt(client, int(labels[client]), where, float(others[other])))
        return found


def pair_shares(resamples: Sequence[Int64]) -> Float64:
    """Return in how many of B clusterings each pair of clients is together, shape (K, K)."""
    count = len(resamples[0])
    together = np.zeros((count, count))
    for labels in resamples:
        together += labels[:, None] == labels[None, :]
    return together / len(resamples)


def certainty(labels: Int64, resamples: Sequence[Int64]) -> Certainty:
    """Return how often each client is with its cluster, and with others.

    In a resample, a client is with the cluster of which the largest share of the other clients is
    together with it; of equals, with its cluster. A client without any others is alone; if it is a
    cluster by itself, that is its cluster. Where all are one cluster, one with fewer than half of
    the others is alone, too. `labels`, shape (K,), has each of 0 to C − 1; resamples have any.
    """
    clients = np.arange(len(labels))
    num_clusters = int(labels.max()) + 1
    members = np.eye(num_clusters)[labels]
    others = members.sum(axis=0) - members  # of each cluster, without the client; shape (K, C)
    alone = others[clients, labels] == 0
    votes = np.zeros((len(labels), num_clusters + 1))
    for drawn in resamples:
        names, place = np.unique(drawn, return_inverse=True)
        counts = np.zeros((len(names), num_clusters))
        np.add.at(counts, (place, labels), 1)
        shared = counts[place] - members
        shares = np.divide(shared, others, out=np.zeros_like(shared), where=others > 0)
        is_alone = shared.sum(axis=1) == 0
        shares[clients, labels] += 1e-9  # of equals, its cluster
        landed = shares.argmax(axis=1)
        landed[is_alone] = np.where(alone, labels, num_clusters)[is_alone]
        if num_clusters == 1:
            landed[(shares[:, 0] < 0.5) & ~alone] = 1
        votes[clients, landed] += 1
    votes /= len(resamples)
    return Certainty(votes[clients, labels], votes)
