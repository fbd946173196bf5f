"""One-shot clustering by the relevance of eigenvectors (RCC-PFL Proc. 1, MT-HFL Algorithm 2).

A. Ali, A. Arafa, "RCC-PFL: Robust Client Clustering under Noisy Labels in Personalized Federated
Learning", 2025, https://arxiv.org/abs/2503.19886; MT-HFL: see `strategies.aggregations.lps_gps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from flwr.app import ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import one_of, option
from fl_core.relevance import PAPER, USUAL_EIGENVECTORS, Spectra, relevances
from fl_core.text import listed
from strategies.clusterings.agglomeration import COUNT_RULES, LINKAGES, closest_clusters
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.outliers import outliers_by_vectors
from strategies.clusterings.relevance_groups import (
    NumGroups,
    RelevanceGroups,
    group_by_eigenpairs,
    group_by_relevance,
)
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison, Resamples
from strategies.rounds.state import state_field

Eigenvectors = NDArray[np.float32]
"""Shape (d, at most k)."""
Float64 = NDArray[np.float64]

AT_CLIENTS, AT_SERVER = "clients", "server"
AUTO = "auto"
RANK = 10
"""The least number of eigenpairs for a Gram matrix at the server."""
MOST_EXACT, LANDMARKS = 10_000, 2_000
"""Clients that are all compared with each other, and those that are drawn among more: the others
join the cluster that is most relevant to them."""
_LANDMARKS_STREAM, _STRANGERS_STREAM = 0x1A9D, 0x0911
_LEAST_SHARE = 1e-30  # of the largest eigenvalue
_MOST_LISTED = 20  # clients in a line of the log

logger = logging.getLogger(__name__)

DIMENSIONS = "its features have {} dimensions"
"""A client's features, with braces for their number."""


@dataclass
class SpectralClustering(Clustering):
    """Clients upload eigenvectors and compute how relevant all clients' are to them."""

    name: ClassVar[str] = "spectral"
    shares: ClassVar[str] = "eigenvectors"
    exact_number: ClassVar[bool] = True
    shows_groups: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = (AUTO, *COUNT_RULES)
    num_clusters: NumGroups = "auto"  # M
    # K; None: as usual with the relevance (`fl_core.relevance.USUAL_EIGENVECTORS`)
    num_eigenvectors: int | None = None
    linkage: str = option(
        "average",
        one_of(LINKAGES),
        "how the distance between two clusters is measured, in SciPy's words",
    )
    relevance: str = PAPER  # one of `fl_core.relevance.FORMULAS`, if clients know it
    relevance_at: str = option(
        AT_CLIENTS,
        one_of((AT_CLIENTS, AT_SERVER)),
        "where clients are compared; `server`: clients send their eigenvalues, too, and receive "
        "nothing: docs/privacy.md, docs/scale.md",
    )
    dimension: int | None = None  # d, of an eigenvector; None: the most common one
    _spectra: dict[int, Eigenvectors] = state_field(dict)
    _values: dict[int, Float64] = state_field(dict)  # eigenvalues, if the server compares

    @property
    def num_shared(self) -> int:
        """Return k, given or usual."""
        return self.num_eigenvectors or USUAL_EIGENVECTORS[self.relevance]

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for eigenvectors, then for relevances, then agglomerate."""
        asked = self._ask_spectra(conversation, None, self.dimension)
        dimensions = {client: array.shape[0] for client, array in asked.items()}
        similar = conversation.exclude_uncommon_sizes(protocol.SPECTRUM, dimensions, DIMENSIONS)
        spectra = {client: asked[client] for client in similar}
        if self.relevance_at == AT_SERVER:
            self._spectra = spectra
            return self._compare(conversation)
        rng = _rng(conversation, _STRANGERS_STREAM)
        # Before clients compare: a score is relative to all that a client was sent, and beside
        # what has nothing in common with it, all others look similar.
        kinds = outliers_by_vectors(list(spectra.values()), rng)
        separate = {client: kind for client, kind in zip(spectra, kinds, strict=True) if kind >= 0}
        usual = {client: vectors for client, vectors in spectra.items() if client not in separate}
        answers = self._ask_relevances(conversation, usual, usual if separate else None)
        clients = [client for client in spectra if client in answers or client in separate]
        self._spectra = {client: spectra[client] for client in clients}
        groups = group_by_relevance(
            _all_scores(clients, list(usual), answers),
            self.num_clusters,
            self.linkage,
            formula=self.relevance,
            kinds=np.array([separate.get(client, -1) for client in clients]),
        )
        return self._clusters(clients, groups)

    def _compare(self, conversation: Conversation) -> Clusters:
        """Group clients, or landmarks among many, by the server's relevances."""
        count, drawn = len(self._spectra), None
        if count > MOST_EXACT:
            drawn = max(LANDMARKS, 0 if isinstance(self.num_clusters, str) else self.num_clusters)
            logger.info(
                "%d clients are more than are compared with each other (%d): %d landmarks are, "
                "and each other client joins the cluster that is most relevant to it",
                *(count, MOST_EXACT, drawn),
            )
        groups = group_by_eigenpairs(
            self._eigenpairs(self._spectra),
            self.relevance,
            self.num_shared,
            self.num_clusters,
            self.linkage,
            num_compared=drawn,
            rng=_rng(conversation, _LANDMARKS_STREAM),
        )
        return self._clusters(list(self._spectra), groups)

    def _clusters(self, clients: Sequence[int], groups: RelevanceGroups) -> Clusters:
        outliers = {clients[place]: why for place, why in sorted(groups.outliers.items())}
        for why in sorted(set(outliers.values())):
            named = [str(client) for client, reason in outliers.items() if reason == why]
            logger.warning("outliers: %s: %s", why, listed(named, _MOST_LISTED))
        return Clusters.of_labels(
            clients,
            groups.labels,
            outliers=outliers,
            comparison=Comparison(
                tuple(clients[place] for place in groups.compared.tolist()),
                groups.similarity,
                groups.merges,
                formula=self.relevance,
            ),
        )

    def _eigenpairs(self, spectra: Mapping[int, Eigenvectors]) -> Spectra:
        return Spectra.of(list(spectra.values()), [self._values[client] for client in spectra])

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each where the eigenvectors are most relevant to it.

        A cluster's relevance to a newcomer is the mean over its clients; of equals, the first wins.
        """
        known = self._spectra
        dimension = next(iter(known.values())).shape[0]
        # Before they answer: one of them may have been known before, by other eigenpairs.
        others = self._eigenpairs(known) if self.relevance_at == AT_SERVER else None
        fresh = self._ask_spectra(conversation, newcomers, dimension)
        if not fresh:
            return clusters
        if others is not None:
            pairs, answered = self._eigenpairs(fresh), list(fresh)
            scores = relevances(self.relevance, pairs, others, self.num_shared)
        else:
            answers = self._ask_relevances(conversation, known, fresh)
            scores, answered = np.array(list(answers.values())), list(answers)
        if not answered:
            return clusters
        members = [clusters.of_client[client] for client in known]
        joined = closest_clusters(scores, members)
        places = {client: place for place, client in enumerate(known)}
        late = scores[:, [places[client] for client in clusters.compared]].astype(np.float64)
        self._spectra = {**known, **{client: fresh[client] for client in answered}}
        return clusters.with_clients(
            dict(zip(answered, joined.tolist(), strict=True)),
            dict(zip(answered, late, strict=True)),
        )

    def shared_eigenvectors(self) -> Mapping[int, Eigenvectors]:
        """Return each client's eigenvectors, shape (d, k_j)."""
        return self._spectra

    def with_resamples(
        self,
        clusters: Clusters,
        regroup: Callable[[SpectralClustering], Sequence[RelevanceGroups]],
        what: str,
    ) -> Clusters:
        """Return clusters with their certainty if `what` were resampled."""
        drawn = regroup(self)
        if not drawn:
            return clusters
        labels = np.stack([one.labels for one in drawn])
        numbers = tuple(one.by_rule for one in drawn if one.by_rule)
        return replace(clusters, resamples=Resamples(labels, what, numbers))

    def _ask_spectra(
        self, conversation: Conversation, clients: Sequence[int] | None, dimension: int | None
    ) -> dict[int, Eigenvectors]:
        k, at_server = self.num_shared, self.relevance_at == AT_SERVER
        if at_server:
            k = max(k, RANK)  # what stands for a Gram matrix
        options: dict[str, ConfigRecordValues] = {protocol.NUM_EIGENVECTORS: k}
        if at_server:
            options[protocol.WITH_EIGENVALUES] = 1
        answers = conversation.query(
            protocol.SPECTRUM,
            lambda content: (
                read_eigenvectors(content, k, dimension),
                _read_eigenvalues(content) if at_server else np.empty(0),
            ),
            options=options,
            clients=clients,
        )
        if at_server:
            self._values |= {client: values for client, (_, values) in answers.items()}
        return {client: vectors for client, (vectors, _) in answers.items()}

    def _ask_relevances(
        self,
        conversation: Conversation,
        spectra: Mapping[int, Eigenvectors],
        clients: Mapping[int, Eigenvectors] | None,
    ) -> dict[int, list[float]]:
        """Return how relevant each of `spectra` is to those asked, in the order of `spectra`."""
        # One array, not one for each client: Flower asks for every array of every message by name.
        joined = np.concatenate(list(spectra.values()), axis=1)
        options: dict[str, ConfigRecordValues] = {
            protocol.RELEVANCE_FORMULA: self.relevance,
            protocol.NUM_COLUMNS: [vectors.shape[1] for vectors in spectra.values()],
        }
        return conversation.query(
            protocol.RELEVANCE,
            lambda content: _read_relevances(content, len(spectra)),
            protocol.with_arrays({protocol.EIGENVECTORS: joined}),
            options,
            clients=clients if clients is None else list(clients),
        )


def _all_scores(
    clients: Sequence[int], compared: Sequence[int], answers: Mapping[int, Sequence[float]]
) -> Float64:
    """Return each client's score of each, shape (K, K): 0 of those it was not compared with."""
    scores = np.zeros((len(clients), len(clients)))
    places = [place for place, client in enumerate(clients) if client in answers]
    # A client that fails while it compares leaves its column behind.
    columns = [place for place, client in enumerate(compared) if client in answers]
    said = [answers[clients[place]] for place in places]
    scores[np.ix_(places, places)] = np.array(said, np.float64)[:, columns]
    return scores


def _rng(conversation: Conversation, stream: int) -> np.random.Generator:
    return np.random.default_rng([int(str(conversation.config.get(protocol.SEED, 0))), stream])


def read_eigenvectors(content: RecordDict, k: int, dimension: int | None) -> Eigenvectors:
    """Return a client's eigenvectors, or raise a ValueError."""
    vectors = protocol.array_in(content, protocol.EIGENVECTORS)
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= k:
        raise ValueError(f"its eigenvectors have shape {vectors.shape}, not (d, 1 to {k})")
    if vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        raise ValueError("its eigenvectors are not all finite numbers")
    if dimension is not None and len(vectors) != dimension:
        raise ValueError(f"{DIMENSIONS.format(len(vectors))}, the others' {dimension}")
    products = vectors.astype(np.float64).T @ vectors
    if not np.allclose(products, np.eye(len(products)), atol=1e-3):
        raise ValueError("its eigenvectors are not orthonormal")
    return np.ascontiguousarray(vectors, np.float32)


def _read_eigenvalues(content: RecordDict) -> Float64:
    values = protocol.array_in(content, protocol.EIGENVALUES)
    count = protocol.array_in(content, protocol.EIGENVECTORS).shape[1]
    if values.shape != (count,) or values.dtype not in (np.float32, np.float64):
        said = f"{values.dtype} of shape {values.shape}"
        raise ValueError(f"its eigenvalues are {said}, not float32 of shape ({count},)")
    # What is smaller than float32 can tell from nothing is left out by clients.
    within = np.isfinite(values) & (values > _LEAST_SHARE * values.max())
    if not within.all() or (np.diff(values) > 0).any():
        raise ValueError("its eigenvalues are not finite, positive and descending")
    return values.astype(np.float64)


def _read_relevances(content: RecordDict, count: int) -> list[float]:
    scores = protocol.numbers(content, protocol.RELEVANCES)
    if len(scores) != count:
        raise ValueError(f"its answer does not hold {count} relevances")
    if not all(0 <= score <= 1 + 1e-6 for score in scores):  # NaN fails as well
        raise ValueError("its relevances are not all numbers in [0, 1]")
    return scores
