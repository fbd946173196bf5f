"""Groupings of resamples, each without a fifth of every client's samples.

What a client would compute and send is computed here, by the same functions and without messages.
docs/grouping.md says how reliable the certainty is that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clients.signatures.spectrum import Spectrum, leading_spectrum, relevance
from fl_core.relevance import Spectra
from strategies import SpectralClustering
from strategies.clusterings.outliers import outliers_by_vectors
from strategies.clusterings.relevance_groups import (
    RelevanceGroups,
    group_by_eigenpairs,
    group_by_relevance,
)
from strategies.clusterings.spectral import AT_SERVER, RANK

Float32 = NDArray[np.float32]

LEFT_OUT = 0.2
DRAWN = "each client's {}s, a fifth of them left out"

_STREAM = 0x1EF7


def regrouped(
    clients: Sequence[Float32], clustering: SpectralClustering, resamples: int, seed: int
) -> list[RelevanceGroups]:
    """Group clients in so many resamples, each without a fifth of every client's features.

    Drawing images with replacement, as a bootstrap does, leaves two fifths of the different ones
    out, and puts twice as many of the rightly grouped clients in doubt (with missed energy, 34 %
    instead of 14 %). A resample in which nothing but zeros is left of a client's features has no
    spectrum of it, and does not count.
    """
    drawn = []
    for number in range(resamples):
        rng = np.random.default_rng([seed, number, _STREAM])
        parts = [part(features, rng) for features in clients]
        if all(features.any() for features in parts):
            found = grouped(parts, clustering)
            drawn.append(replace(found, similarity=np.empty((0, 0))))  # fifty would fill memory
    return drawn


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
    number, linkage, k = clustering.num_clusters, clustering.linkage, clustering.num_shared
    formula = clustering.relevance
    if clustering.relevance_at == AT_SERVER:
        spectra = [spectrum(features, max(k, RANK)) for features in clients]
        pairs = Spectra.of(
            [one.eigenvectors for one in spectra], [one.eigenvalues for one in spectra]
        )
        return group_by_eigenpairs(pairs, formula, k, number, linkage)
    spectra = [spectrum(features, k) for features in clients]
    vectors = [one.eigenvectors for one in spectra]
    kinds = outliers_by_vectors(vectors, np.random.default_rng(0))
    usual = np.flatnonzero(kinds < 0).tolist()  # these compare with each other alone
    others = [vectors[i] for i in usual]
    scores = np.zeros((len(clients), len(clients)))
    scores[np.ix_(usual, usual)] = [scores_of(formula, spectra[i], others) for i in usual]
    return group_by_relevance(scores, number, linkage, formula=formula, kinds=kinds)


def spectrum(features: Float32, count: int) -> Spectrum:
    """Return a client's spectrum."""
    return leading_spectrum(features, min(count, features.shape[1]))


def scores_of(formula: str, client: Spectrum, eigenvectors: Sequence[Float32]) -> list[float]:
    """Return the relevance of each client's eigenvectors to a client."""
    return relevance(formula, client.whole, eigenvectors)
