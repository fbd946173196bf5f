"""Groupings of resamples, without messages: docs/grouping.md says how reliable the certainty is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clients.signatures.spectrum import Spectrum, leading_spectrum, relevance
from fl_core.relevance import Spectra
from strategies import SpectralClustering
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
DRAWN = "each client's {}s, a fifth of them left out"

_STREAM = 0x1EF7


def regrouped(
    clients: Sequence[Float32],
    clustering: SpectralClustering,
    resamples: int,
    seed: int,
    drawn: str = DRAWN,
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
    """Return the number of clusters by the rule, before outliers came on top.

    Where a number is requested, by "auto"; 0 of more than `MOST_WEIGHED` clients.
    """
    rule = clustering.num_clusters
    if rule in COUNT_RULES:
        distances = np.clip(1 - found.similarity, 0, None)
        np.fill_diagonal(distances, 0)
        return number_by_rule(str(rule), distances, found.merges)
    if rule != AUTO and len(found.compared) > MOST_WEIGHED:
        return 0
    return evidence(found.similarity, found.merges, clustering.relevance).number


def why_none_is_left_out(count: int, sample: str) -> str:
    """Return why a client with so many samples has no resamples; empty if it has."""
    if round(LEFT_OUT * count):
        return ""
    return f"a fifth of its {count} {sample}{'s' * (count > 1)} is none, so none can be left out"


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
