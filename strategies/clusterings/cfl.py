"""CFL: a cluster is split in two when its mean update vanishes but its clients' do not.

F. Sattler, K.-R. Müller, W. Samek, "Clustered federated learning: model-agnostic distributed
multitask optimization under privacy constraints", IEEE TNNLS 32(8), 2021,
https://doi.org/10.1109/TNNLS.2020.3015958.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fl_core.options import COUNT, POSITIVE, number, one_of, option, or_none
from strategies.clusterings.clustering import Clustering, learnt
from strategies.clusterings.grouping import agglomerate, canonical_labels
from strategies.engine.conversation import Conversation
from strategies.engine.rounds import Clusters, Round, Update
from strategies.engine.updates import cosine_similarities, update_vector


@dataclass
class RecursiveBipartition(Clustering):
    """Sattler et al.'s clustered federated learning (2021, Algorithms 1 and 2).

    A cluster is split when ‖mean of updates‖ < ε₁, so it is near a stationary point of its
    clients' common objective, while max ‖update‖ > ε₂, so the point does not suit all of them. The
    paper's two parts are those with the lowest maximal cosine similarity across, which single
    linkage finds; its authors' code takes complete linkage. With noisy labels both tend to cut
    single clients off, and average linkage, the default, does so least. The paper advises
    thresholds in proportion to the longest mean update seen; they are given that way here, and so
    fit any model and learning rate.

    Attributes
    ----------
    mean_norm, max_norm : float
        ε₁ and ε₂, as shares of the longest mean update of any cluster so far.
    linkage : str
        How the two parts are found: "single", as in the paper; "complete", as in its authors' code;
        "average".
    gamma_max : float or None
        γ_max, how far a client's gradient may be from its group's, relative to the latter's length:
        the two parts must differ by more, √((1 − α)/2) > γ_max, where α is the highest cosine
        between a client of one and a client of the other (section V). None: no such test.
    min_size : int
        Clients that each part must have at least; a cluster whose parts would be smaller stays
        together until another round says otherwise. Ours, not the paper's.
    """

    name: ClassVar[str] = "bipartition"
    mean_norm: float = option(
        0.4,
        POSITIVE,
        "a cluster is split when its mean update is below this share of the longest so far",
        key="cfl-mean-norm",
    )
    max_norm: float = option(
        0.7,
        number(float, 0),
        "and some client's update is above this share of it",
        key="cfl-max-norm",
    )
    linkage: str = option(
        "average",
        one_of(("average", "complete", "single")),
        "how the two parts are found; `single`: the paper's way; `complete`: its authors' code's",
        key="cfl-linkage",
    )
    gamma_max: float | None = option(
        "never",
        or_none(number(float, 0, 1), "never"),
        "split only parts that differ by more than this, by their most similar clients",
        key="cfl-gamma-max",
    )
    min_size: int = option(
        5, COUNT, "split only into parts of at least so many clients", key="cfl-min-size"
    )
    _longest: float = learnt(float)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with everybody: nobody has trained."""
        self._longest = 0.0
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Split the clusters that ask for it; clients without an update follow the larger part."""
        labels = dict(state.clusters.of_client)
        fresh = state.clusters.count
        for cluster in range(state.clusters.count):
            updates = [update for update in state.updates if update.cluster == cluster]
            part = self._smaller_part(updates)
            if part:
                labels.update(dict.fromkeys(part, fresh))
                fresh += 1
        if fresh == state.clusters.count:
            return state.clusters
        names = canonical_labels(list(labels.values())).tolist()
        return Clusters(dict(zip(labels, names, strict=True)))

    def _smaller_part(self, updates: list[Update]) -> list[int]:
        """Return the clients that leave, if the cluster is to be split."""
        if len(updates) < 2:
            return []
        vectors = np.stack([update_vector(update) for update in updates])
        mean = float(np.linalg.norm(vectors.mean(axis=0)))
        longest = float(np.linalg.norm(vectors, axis=1).max())
        self._longest = max(self._longest, mean)
        if mean >= self.mean_norm * self._longest or longest <= self.max_norm * self._longest:
            return []
        similarities = cosine_similarities(vectors)
        labels = agglomerate(similarities, 2, self.linkage).labels
        sizes = np.bincount(labels)
        across = similarities[labels == 0][:, labels == 1].max()
        if sizes.min() < self.min_size or (
            self.gamma_max is not None and np.sqrt((1 - across) / 2) <= self.gamma_max
        ):
            return []
        smaller = int(sizes.argmin())
        return [u.client for u, label in zip(updates, labels, strict=True) if label == smaller]
