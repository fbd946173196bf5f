"""Groupings of resamples: docs/grouping.md says how reliable the certainty is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clients.signatures.spectrum import Spectrum, leading_spectrum, relevance
from fl_app.config.run_config import Config
from fl_app.group.pre_round_grid import PreRoundGrid
from fl_core.data.samples import sample_word
from fl_core.relevance import Spectra
from strategies import ClusteredStrategy, Clusters, SpectralClustering
from strategies.clusterings.agglomeration import COUNT_RULES, number_by_rule
from strategies.clusterings.at_server import RANK
from strategies.clusterings.number import evidence
from strategies.clusterings.relevance_groups import AUTO, RelevanceGroups
from strategies.clusterings.spectral import AT_SERVER
from strategies.rounds.round_state import Resamples

Float32 = NDArray[np.float32]

LEFT_OUT = 0.2
MOST_WEIGHED = 300
"""Clients of whom numbers of clusters are weighed where one is asked for: it takes a moment."""

_STREAM = 0x1EF7


def with_resamples(
    grid: PreRoundGrid, strategy: ClusteredStrategy, config: Config, resamples: int, seed: int
) -> Clusters:
    """Return a strategy's clusters with those of resamples, for clusterings that draw them.

    Unchanged where attackers answer, whose answers do not come from their samples, and with
    `pre-round-epsilon`: each resample would be one more answer, with little noise.
    """
    registry, clusters = strategy.training.registry.nodes, strategy.clusters
    nodes = {client: grid.node(registry[client]) for client in clusters.of_client}
    sample = sample_word(next(iter(nodes.values())).kind)
    if strategy.clustering.shares == "eigenvectors" and not strategy.clustering.compares_raw:
        poor = {}
        for client, node in nodes.items():
            count = len(node.features())
            if why := node.why_uninformative(node.features()):
                poor[client] = why
            elif resamples and not round(LEFT_OUT * count):
                poor[client] = f"a fifth of its {count} {sample}s is none, so none can be left out"
        clusters = replace(clusters, uninformative=poor)
    answers_vary = config.attack == "none" and not config.pre_round_epsilon
    if not resamples or not answers_vary or len(nodes) < 2:
        return clusters

    def regroup(clustering: SpectralClustering) -> Resamples | None:
        features = [node.features() for node in nodes.values()]
        drawn = f"each client's {sample}s, a fifth of them left out"
        return regrouped(features, clustering, resamples, seed, drawn)

    return strategy.clustering.with_resamples(clusters, regroup)


def regrouped(
    clients: Sequence[Float32],
    clustering: SpectralClustering,
    resamples: int,
    seed: int,
    drawn: str,
) -> Resamples | None:
    """Group clients in so many resamples, each without a fifth of every client's features.

    A bootstrap would leave two fifths of the different images out, and put twice as many of the
    rightly grouped clients in doubt (with missed energy, 34 % instead of 14 %). A resample that
    leaves a client nothing but zeros does not count. `drawn` says what is resampled.
    """
    labels, numbers = [], []
    for number in range(resamples):
        rng = np.random.default_rng([seed, number, _STREAM])
        parts = [part(features, rng) for features in clients]
        if all(features.any() for features in parts):
            found = grouped(parts, clustering)
            labels.append(found.labels)
            numbers.append(chosen_number(found, clustering))
    return Resamples(np.stack(labels), drawn, tuple(filter(None, numbers))) if labels else None


def chosen_number(found: RelevanceGroups, clustering: SpectralClustering) -> int:
    """Return the number of clusters, without outliers, by the rule; by "auto" if it is a number."""
    rule = clustering.num_clusters
    if rule in COUNT_RULES:
        distances = np.clip(1 - found.similarity, 0, None)
        np.fill_diagonal(distances, 0)
        return number_by_rule(str(rule), distances, found.merges)
    if rule != AUTO and len(found.compared) > MOST_WEIGHED:
        return 0  # unknown
    return evidence(found.similarity, found.merges, clustering.relevance).number


def part(features: Float32, rng: np.random.Generator) -> Float32:
    """Return a client's features without a fifth of them; of one or two samples, all."""
    count = len(features)
    return features[np.sort(rng.permutation(count)[: count - round(LEFT_OUT * count)])]


def grouped(clients: Sequence[Float32], clustering: SpectralClustering) -> RelevanceGroups:
    """Group clients by the answers that follow from their features, shapes (n, d)."""
    k, rng = clustering.num_shared, np.random.default_rng(0)
    at_server = clustering.relevance_at == AT_SERVER
    spectra = [spectrum(features, max(k, RANK) if at_server else k) for features in clients]
    vectors = [one.eigenvectors for one in spectra]
    if at_server:
        pairs = Spectra.of(vectors, [one.eigenvalues for one in spectra])
        return clustering.group_at_server(pairs, rng)
    kinds = clustering.kinds(vectors, rng)
    usual = np.flatnonzero(kinds < 0).tolist()  # these compare with each other alone
    others = [vectors[i] for i in usual]
    scores = np.zeros((len(clients), len(clients)))
    formula = clustering.relevance
    scores[np.ix_(usual, usual)] = [relevance(formula, spectra[i].whole, others) for i in usual]
    return clustering.group(scores, kinds)


def spectrum(features: Float32, count: int) -> Spectrum:
    """Return a client's spectrum."""
    return leading_spectrum(features, min(count, features.shape[1]))
