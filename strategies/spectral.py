"""One-shot clustering by the relevance of eigenvectors (RCC-PFL Proc. 1, MT-HFL Algorithm 2).

A. Ali, A. Arafa, "RCC-PFL: Robust Client Clustering under Noisy Labels in Personalized Federated
Learning", 2025, https://arxiv.org/abs/2503.19886; for MT-HFL, see `mt_hfl`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fl_core import protocol
from fl_core.options import one_of, option
from strategies.clustering import Clustering, learnt
from strategies.conversation import Conversation
from strategies.grouping import (
    LINKAGES,
    NumClusters,
    agglomerate,
    average_relevance,
    closest_cluster,
)
from strategies.rounds import Clusters

Eigenvectors = NDArray[np.float32]
"""Shape (d, at most k)."""

_DIMENSIONS = "its features have {} dimensions"


@dataclass
class SpectralClustering(Clustering):
    """Clients upload eigenvectors and say how relevant everybody's are to them.

    Attributes
    ----------
    num_clusters : int, "elbow" or "silhouette"
        M, or how it is chosen from the dendrogram.
    num_eigenvectors : int
        k, how many leading eigenvectors each client uploads.
    relevance : str
        The formula by which clients compare: a name that their ClientApp knows
        (`clients.spectrum.RELEVANCES`).
    dimension : int, optional
        d, the length of an eigenvector; by default, the most common among those that come.
    """

    name: ClassVar[str] = "spectral"
    shares: ClassVar[str] = "eigenvectors"
    exact_number: ClassVar[bool] = True
    num_clusters: NumClusters = "elbow"
    num_eigenvectors: int = 20
    linkage: str = option(
        "average",
        one_of(LINKAGES),
        "how the distance between two clusters is measured, in SciPy's words",
    )
    relevance: str = "paper"
    dimension: int | None = None
    _spectra: dict[int, Eigenvectors] = learnt(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for eigenvectors, then for everybody's relevance to everybody, then agglomerate."""
        asked = self._ask_spectra(conversation, None, self.dimension)
        dimensions = {client: array.shape[0] for client, array in asked.items()}
        alike = conversation.keep_common_size(protocol.SPECTRUM, dimensions, _DIMENSIONS)
        spectra = {client: asked[client] for client in alike}
        answers = self._ask_relevances(conversation, spectra, None)
        self._spectra = {client: spectra[client] for client in answers}
        # A client that fails now leaves its column behind.
        columns = [i for i, client in enumerate(spectra) if client in answers]
        relevances = np.array(list(answers.values()), np.float64)[:, columns]
        similarity = average_relevance(relevances)
        grouping = agglomerate(similarity, self.num_clusters, self.linkage)
        found = dict(zip(answers, grouping.labels.tolist(), strict=True))
        return Clusters(found, similarity=similarity, merges=grouping.merges)

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each where the eigenvectors are most relevant to it.

        A cluster's relevance to a newcomer is the mean over its clients; of equals, the first wins.
        """
        known = self._spectra
        dimension = next(iter(known.values())).shape[0]
        fresh = self._ask_spectra(conversation, newcomers, dimension)
        answers = self._ask_relevances(conversation, known, fresh)
        members = [clusters.of_client[client] for client in known]
        placed = {
            client: closest_cluster(np.array(scores), members) for client, scores in answers.items()
        }
        self._spectra = {**known, **{client: fresh[client] for client in answers}}
        return clusters.with_clients(placed)

    def _ask_spectra(
        self, conversation: Conversation, clients: Sequence[int] | None, dimension: int | None
    ) -> dict[int, Eigenvectors]:
        k = self.num_eigenvectors
        answers = conversation.ask(
            protocol.SPECTRUM,
            options={protocol.NUM_EIGENVECTORS: k},
            check=lambda content: _wrong_eigenvectors(content, k, dimension),
            clients=clients,
        )
        return {
            client: np.ascontiguousarray(
                content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS].numpy(), np.float32
            )
            for client, content in answers.items()
        }

    def _ask_relevances(
        self,
        conversation: Conversation,
        spectra: Mapping[int, Eigenvectors],
        clients: Mapping[int, Eigenvectors] | None,
    ) -> dict[int, list[float]]:
        """Return how relevant each of `spectra` is to those asked, in the order of `spectra`."""
        # One array, not one for each client: Flower asks for every array of every message by name.
        everybody = np.concatenate(list(spectra.values()), axis=1)
        answers = conversation.ask(
            protocol.RELEVANCE,
            RecordDict({protocol.ARRAYS: protocol.to_record({protocol.EIGENVECTORS: everybody})}),
            options={
                protocol.RELEVANCE_FORMULA: self.relevance,
                protocol.NUM_COLUMNS: [own.shape[1] for own in spectra.values()],
            },
            check=lambda content: _wrong_relevances(content, len(spectra)),
            clients=clients if clients is None else list(clients),
        )
        return {client: _relevances(content) for client, content in answers.items()}


def _wrong_eigenvectors(content: RecordDict, k: int, dimension: int | None) -> str | None:
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
    if dimension is not None and len(vectors) != dimension:
        return f"{_DIMENSIONS.format(len(vectors))}, the others' {dimension}"
    return None


def _relevances(content: RecordDict) -> list[float]:
    return protocol.numbers(content, protocol.RELEVANCES)


def _wrong_relevances(content: RecordDict, count: int) -> str | None:
    """Say what is wrong with a client's relevances, if anything is."""
    scores = _relevances(content)
    if len(scores) != count:
        return f"its answer does not hold {count} relevances"
    if not all(0 <= score <= 1 + 1e-6 for score in scores):  # NaN fails as well
        return "its relevances are not all numbers in [0, 1]"
    return None
