"""Clusterings: each finds out which client belongs to which cluster before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_core import protocol
from strategies.grouping import agglomerate, average_relevance, canonical_labels
from strategies.pre_round import PreRound


@dataclass(frozen=True, eq=False)
class Clusters:
    """Who trains with whom.

    Attributes
    ----------
    of_client : dict of int
        From client index, ascending, to cluster, canonical.
    similarity : NDArray[np.float64], shape (K, K), optional
        In the order of `of_client`, where the clustering has one.
    merges : NDArray[np.float64], shape (K − 1, 4), optional
        Its dendrogram.
    """

    of_client: dict[int, int]
    similarity: NDArray[np.float64] | None = None
    merges: NDArray[np.float64] | None = None

    @property
    def count(self) -> int:
        """Return the number of clusters."""
        return max(self.of_client.values()) + 1


class Clustering(Protocol):
    """A way to group clients."""

    def find(self, pre_round: PreRound) -> Clusters:
        """Return the clusters of the clients in `pre_round.nodes`, asking them as needed."""
        ...


@dataclass(frozen=True)
class SpectralClustering:
    """One-shot clustering by the relevance of eigenvectors (RCC-PFL Procedure 1, MT-HFL Alg. 2).

    Attributes
    ----------
    num_clusters : int or None
        M; None: chosen at the widest gap of the dendrogram.
    num_eigenvectors : int
        k, how many leading eigenvectors each client uploads.
    linkage : str
        Any of scipy's linkage methods.
    """

    num_clusters: int | None = None
    num_eigenvectors: int = 20
    linkage: str = "average"

    def find(self, pre_round: PreRound) -> Clusters:
        """Ask for eigenvectors, then for everybody's relevance to everybody, then agglomerate.

        Raises
        ------
        ValueError
            If there are more clusters than clients that answered.
        RuntimeError
            If no client answers.
        """
        k = self.num_eigenvectors
        spectra = {
            client: content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS]
            for client, content in pre_round.ask(
                protocol.SPECTRUM,
                options={protocol.NUM_EIGENVECTORS: k},
                check=lambda content: _wrong_eigenvectors(content, k),
            ).items()
        }
        spectra = _same_dimension(spectra, pre_round)
        everybody = ArrayRecord({str(client): array for client, array in spectra.items()})
        answers = pre_round.ask(
            protocol.RELEVANCE,
            RecordDict({protocol.ARRAYS: everybody}),
            check=lambda content: _wrong_relevances(content, len(spectra)),
        )
        # A client that fails now leaves its column behind.
        columns = [i for i, client in enumerate(spectra) if client in answers]
        rows = [content.metric_records[protocol.METRICS] for content in answers.values()]
        relevances = np.array([row[protocol.RELEVANCES] for row in rows], np.float64)[:, columns]
        similarity = average_relevance(relevances)
        grouping = agglomerate(similarity, self.num_clusters, self.linkage)
        found = dict(zip(answers, grouping.labels.tolist(), strict=True))
        return Clusters(found, similarity, grouping.merges)


@dataclass(frozen=True)
class GivenClusters:
    """Clusters known beforehand (RCC-PFL's optimum clustering, one global model).

    Attributes
    ----------
    labels : mapping from client index to any cluster number
    """

    labels: Mapping[int, int]

    def find(self, pre_round: PreRound) -> Clusters:
        """Look every client up.

        Raises
        ------
        ValueError
            If a connected client has no cluster.
        """
        unknown = [client for client in pre_round.nodes if client not in self.labels]
        if unknown:
            raise ValueError(
                f"no cluster is given for client {unknown[0]}: clusters are given for clients "
                f"{sorted(self.labels)}."
            )
        return _canonical(pre_round, [self.labels[client] for client in pre_round.nodes])


@dataclass(frozen=True)
class RandomClusters:
    """Clusters of given sizes, filled at random.

    Attributes
    ----------
    sizes : sequence of int
        How many clients each cluster has; they add up to at least the number of clients.
    seed : int
    """

    sizes: Sequence[int]
    seed: int

    def find(self, pre_round: PreRound) -> Clusters:
        """Deal the places in the clusters out by client index.

        Raises
        ------
        ValueError
            If there are fewer places than clients.
        """
        places = np.repeat(np.arange(len(self.sizes)), self.sizes)
        needed = max(pre_round.nodes) + 1
        if len(places) < needed:
            raise ValueError(
                f"the random clusters have {len(places)} places for {needed} clients: let their "
                "sizes add up to the number of clients."
            )
        dealt = np.random.default_rng([self.seed, 0xD1CE]).permutation(places)
        return _canonical(pre_round, [int(dealt[client]) for client in pre_round.nodes])


@dataclass(frozen=True)
class SingleCluster:
    """Everybody together: one global model."""

    def find(self, pre_round: PreRound) -> Clusters:
        """Return one cluster of all clients."""
        return Clusters(dict.fromkeys(pre_round.nodes, 0))


@dataclass(frozen=True)
class OwnCluster:
    """Everybody alone: no federation."""

    def find(self, pre_round: PreRound) -> Clusters:
        """Return one cluster for each client."""
        return Clusters({client: i for i, client in enumerate(pre_round.nodes)})


def _canonical(pre_round: PreRound, labels: Sequence[int]) -> Clusters:
    return Clusters(dict(zip(pre_round.nodes, canonical_labels(labels).tolist(), strict=True)))


def _wrong_eigenvectors(content: RecordDict, k: int) -> str | None:
    """Say what is wrong with a client's eigenvectors, if anything is."""
    record = content.array_records.get(protocol.ARRAYS, ArrayRecord())
    if protocol.EIGENVECTORS not in record:
        return "its answer holds no eigenvectors"
    vectors = record[protocol.EIGENVECTORS].numpy()
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= k or vectors.shape[1] > vectors.shape[0]:
        return f"its eigenvectors have shape {vectors.shape}, not (d, 1 to {k})"
    if vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        return "its eigenvectors are not all finite numbers"
    products = vectors.astype(np.float64).T @ vectors
    if not np.allclose(products, np.eye(len(products)), atol=1e-3):
        return "its eigenvectors are not orthonormal"
    return None


def _same_dimension(spectra: dict[int, Array], pre_round: PreRound) -> dict[int, Array]:
    """Leave out, and name, the clients whose feature dimension is not the most common one."""
    dimensions = [array.shape[0] for array in spectra.values()]
    common = max(sorted(set(dimensions)), key=dimensions.count)
    for client, array in spectra.items():
        if array.shape[0] != common:
            pre_round.leave_out(
                client,
                protocol.SPECTRUM,
                f"its features have {array.shape[0]} dimensions, the others' {common}",
            )
    return {client: array for client, array in spectra.items() if array.shape[0] == common}


def _wrong_relevances(content: RecordDict, count: int) -> str | None:
    """Say what is wrong with a client's relevances, if anything is."""
    scores = content.metric_records.get(protocol.METRICS, MetricRecord()).get(protocol.RELEVANCES)
    if not isinstance(scores, list) or len(scores) != count:
        return f"its answer does not hold {count} relevances"
    if not all(0 <= score <= 1 + 1e-6 for score in scores):  # NaN fails as well
        return "its relevances are not all numbers in [0, 1]"
    return None
