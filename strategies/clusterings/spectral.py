"""RCC-PFL's Procedure 1, "data similarity clustering" (MT-HFL: Algorithm 2).

A. Ali, A. Arafa, "RCC-PFL: Robust Client Clustering under Noisy Labels in Personalized Federated
Learning", 2025, https://arxiv.org/abs/2503.19886; MT-HFL: see `strategies.aggregations.lps_gps`.

One exception: the paper shares all d eigenvectors, here clients share the 20 leading ones, unless
`num_eigenvectors` says otherwise. What is ours is off by default: another formula (`relevance`),
the server as the place where it is computed (`at_server`), and protection from `outliers`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from flwr.app import ConfigRecordValues
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import BY_STRATEGY, one_of, option, or_words
from fl_core.relevance import PAPER, USUAL_EIGENVECTORS, Spectra, relevances
from fl_core.text import listed
from strategies.clusterings.agglomeration import COUNT_RULES, LINKAGES, closest_clusters
from strategies.clusterings.at_server import RANK, group_by_eigenpairs
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.outliers import KEEP, SEPARATE, group_without_outliers, strangers
from strategies.clusterings.relevance_groups import (
    AUTO,
    NumGroups,
    RelevanceGroups,
    group_by_relevance,
)
from strategies.rounds.conversation import Conversation
from strategies.rounds.replies import (
    DIMENSIONS,
    read_eigenvalues,
    read_eigenvectors,
    read_relevances,
)
from strategies.rounds.round_state import Clusters, Comparison, Resamples
from strategies.rounds.state import state_field

Eigenvectors = NDArray[np.float32]  # shape (d, at most k)
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

AT_CLIENTS, AT_SERVER = "clients", "server"
_LANDMARKS_STREAM, _STRANGERS_STREAM = 0x1A9D, 0x0911
_MOST_LISTED = 20  # clients in a line of the log

logger = logging.getLogger(__name__)


@dataclass
class SpectralClustering(Clustering):
    """Clients upload eigenvectors and compute how relevant all clients' are to them."""

    name: ClassVar[str] = "spectral"
    shares: ClassVar[str] = "eigenvectors"
    exact_number: ClassVar[bool] = True
    shows_groups: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = (AUTO, *COUNT_RULES)
    num_clusters: NumGroups = "auto"  # M
    num_eigenvectors: int | None = None  # K; None: as usual with the relevance
    linkage: str = option(
        "average",
        one_of(LINKAGES),
        "how the distance between two clusters is measured, in SciPy's words",
    )
    relevance: str = PAPER  # one of `fl_core.relevance.FORMULAS`, if clients know it
    relevance_at: str = option(
        BY_STRATEGY,
        or_words(one_of((AT_CLIENTS, AT_SERVER)), BY_STRATEGY),
        "where clients are compared; `server`: clients send their eigenvalues, too, and receive "
        f"nothing: docs/privacy.md, docs/scale.md; `{BY_STRATEGY}`: `server` with `fedkin`, "
        "otherwise `clients`, as in the papers",
        default=AT_CLIENTS,
    )
    outliers: str = option(
        BY_STRATEGY,
        or_words(one_of((KEEP, SEPARATE)), BY_STRATEGY),
        "clients that share nothing with the others, or whose scores contradict the others'; "
        "`keep`: they are grouped like all others; `separate`: docs/comparing-clients.md; "
        f"`{BY_STRATEGY}`: `separate` with `fedkin`, otherwise `keep`, as in the papers",
        default=KEEP,
    )
    dimension: int | None = None  # d, of an eigenvector; None: the most common one
    _spectra: dict[int, Eigenvectors] = state_field(dict)
    _values: dict[int, Float64] = state_field(dict)  # eigenvalues, if the server compares

    @property
    def num_shared(self) -> int:
        """Return k, given or usual."""
        return self.num_eigenvectors or USUAL_EIGENVECTORS[self.relevance]

    def find(self, conversation: Conversation) -> Clusters:
        """Run Procedure 1."""
        spectra = self._ask_spectra(conversation, None, self.dimension)  # lines 1 to 5
        if self.relevance_at == AT_SERVER:
            self._spectra = spectra
            rng = _rng(conversation, _LANDMARKS_STREAM)
            return self._clusters(spectra, self.group_at_server(self._eigenpairs(spectra), rng))
        kinds = self.kinds(list(spectra.values()), _rng(conversation, _STRANGERS_STREAM))
        usual = {c: spectra[c] for c, kind in zip(spectra, kinds, strict=True) if kind < 0}
        all_usual = len(usual) == len(spectra)
        answers = self._ask_relevances(conversation, usual, None if all_usual else usual)  # to 13
        stay = [client in answers or client not in usual for client in spectra]
        self._spectra = {c: spectra[c] for c, stays in zip(spectra, stay, strict=True) if stays}
        scores = _all_scores(list(self._spectra), list(usual), answers)
        return self._clusters(self._spectra, self.group(scores, kinds[stay]))  # lines 14 and 15

    def group(self, scores: Float64, kinds: Int64) -> RelevanceGroups:
        """Group clients by r(i, j), shape (K, K); `kinds` are as of that method."""
        rule = (self.num_clusters, self.linkage, self.relevance)
        if self.outliers != SEPARATE:
            return group_by_relevance(scores, *rule)
        return group_without_outliers(scores, kinds, *rule)

    def group_at_server(self, spectra: Spectra, rng: np.random.Generator) -> RelevanceGroups:
        """Group clients by their eigenpairs."""
        rule = (self.num_shared, self.num_clusters, self.linkage, self.relevance)
        return group_by_eigenpairs(spectra, *rule, separate=self.outliers == SEPARATE, rng=rng)

    def kinds(self, spectra: Sequence[Eigenvectors], rng: np.random.Generator) -> Int64:
        """Return `strangers`; −1 for each client with `outliers=keep`.

        Before clients compare: beside what has nothing in common with a client, all others look
        similar.
        """
        if self.outliers != SEPARATE:
            return np.full(len(spectra), -1)
        return strangers(Spectra.of_vectors(spectra), rng)

    def _clusters(self, clients: Collection[int], groups: RelevanceGroups) -> Clusters:
        clients = tuple(clients)
        outliers = {clients[place]: why for place, why in groups.outliers.items()}
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
        """Ask newcomers alone; each joins the cluster that is most relevant to it on average."""
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
        placed = dict(zip(answered, joined.tolist(), strict=True))
        return clusters.with_clients(placed, dict(zip(answered, late, strict=True)))

    def shared_eigenvectors(self) -> Mapping[int, Eigenvectors]:
        """Return each client's eigenvectors, shape (d, k_j)."""
        return self._spectra

    def with_resamples(
        self, clusters: Clusters, regroup: Callable[[SpectralClustering], Resamples | None]
    ) -> Clusters:
        """Return clusters with how they would be on resampled data."""
        return replace(clusters, resamples=regroup(self))

    def _ask_spectra(
        self, conversation: Conversation, clients: Sequence[int] | None, dimension: int | None
    ) -> dict[int, Eigenvectors]:
        """Return the eigenvectors of all clients, those with uncommon dimensions excluded."""
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
                read_eigenvalues(content) if at_server else np.empty(0),
            ),
            options=options,
            clients=clients,
        )
        if at_server:
            self._values |= {client: values for client, (_, values) in answers.items()}
        spectra = {client: vectors for client, (vectors, _) in answers.items()}
        if clients is not None:
            return spectra
        dimensions = {client: len(vectors) for client, vectors in spectra.items()}
        similar = conversation.exclude_uncommon_sizes(protocol.SPECTRUM, dimensions, DIMENSIONS)
        return {client: spectra[client] for client in similar}

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
            lambda content: read_relevances(content, len(spectra)),
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
