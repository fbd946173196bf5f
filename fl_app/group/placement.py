"""The cluster of a new client among those of a run: pure functions over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.privacy import bounded_features
from clients.signatures.spectrum import Spectrum, relevance
from fl_app.group.resampling import LEFT_OUT, spectrum
from fl_app.results.spectra import StoredSpectra
from fl_core.data.samples import sample_word
from strategies.clusterings.agglomeration import half_way, mean_scores

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

RESAMPLES = 50
FEWEST_IMAGES = 5  # of which a fifth can be left out

_STREAM = 0x91ACE


class Placement(NamedTuple):
    """The cluster of a new client, and how well it fits."""

    cluster: int  # with the highest relevance of its clients to the new one, on average
    relevance: float  # this average
    second: int | None  # the next cluster, if any
    margin: float  # by which the first is more relevant
    share: float  # of the resamples of its samples that land there
    overlap: float  # of its leading directions with those of that cluster's clients, in [0, 1]
    needed: float  # overlap for it to fit

    @property
    def fits(self) -> bool:
        """Return whether the client fits this cluster; otherwise it fits none."""
        return self.overlap >= self.needed


def place(
    features: Float32, spectra: StoredSpectra, resamples: int = RESAMPLES, seed: int = 0
) -> Placement:
    """Return the cluster of a client that has samples with these features, (n, d).

    As a newcomer is placed in a run: by the highest mean relevance. The client fits if its
    eigenvectors overlap with its cluster's as `half_way` requires. `resamples` leave out a fifth of
    its samples each, drawn by `seed`. A ValueError says why it cannot be placed.
    """
    if len(features) < FEWEST_IMAGES:
        raise ValueError(
            f"there are {len(features)} {sample_word(spectra.card)}s, but at least {FEWEST_IMAGES} "
            "are needed to place a client: add some."
        )
    rows = bounded_features(features).astype(np.float32) if spectra.card.is_private else features
    dimension = len(spectra.eigenvectors[0])
    if rows.shape[1] != dimension:
        raise ValueError(
            f"these {sample_word(spectra.card)}s have features of {rows.shape[1]} dimensions, but "
            f"the run's had {dimension}: use the version and the weights of the run."
        )
    numbers, members = np.unique(spectra.clusters, return_inverse=True)
    k = spectra.card.num_eigenvectors
    client = spectrum(rows, k)
    means = _means(client, spectra, members)
    order = np.argsort(-means, kind="stable")
    best = int(order[0])
    rng = np.random.default_rng([seed, _STREAM])
    count = len(rows) - max(1, round(LEFT_OUT * len(rows)))
    parts = (rows[rng.permutation(len(rows))[:count]] for _ in range(resamples))
    landed = [
        int(_means(spectrum(part, k), spectra, members).argmax())
        for part in parts
        if part.any()  # of nothing but zeros there is no spectrum
    ]
    overlap, needed = fit(client.eigenvectors, spectra.eigenvectors, members, best)
    several = len(order) > 1
    return Placement(
        cluster=int(numbers[best]),
        relevance=float(means[best]),
        second=int(numbers[order[1]]) if several else None,
        margin=float(means[best] - means[order[1]]) if several else float(means[best]),
        share=float(np.mean(np.array(landed) == best)) if landed else 1.0,
        overlap=overlap,
        needed=needed,
    )


def fit(
    client: Float32, others: Sequence[Float32], members: Int64, cluster: int
) -> tuple[float, float]:
    """Return the overlap of a client's eigenvectors, (d, k), with a cluster's, and that needed.

    `members`, (K,), has the clusters of all other clients, each of 0 to C − 1 at least once.
    """
    needed = half_way(overlaps(others, others), members)[cluster]
    theirs = [one for one, number in zip(others, members, strict=True) if number == cluster]
    return float(overlaps([client], theirs).mean()), float(needed)


def overlaps(some: Sequence[Float32], others: Sequence[Float32]) -> Float64:
    """Return ‖VᵀW‖²/k of each two, (n, m): the mean squared cosine of spans' principal angles."""
    everything = np.concatenate(others, axis=1)
    widths = np.array([other.shape[1] for other in others])
    starts = np.cumsum(widths) - widths
    return np.array(
        [
            np.add.reduceat(np.sum((one.T @ everything) ** 2, axis=0, dtype=np.float64), starts)
            / np.minimum(one.shape[1], widths)
            for one in some
        ]
    )


def _means(client: Spectrum, spectra: StoredSpectra, members: Int64) -> Float64:
    """Return the mean relevance of each cluster's clients to a client, shape (C,)."""
    scores = np.array(relevance(spectra.card.relevance, client.whole, spectra.eigenvectors))
    return np.asarray(mean_scores(scores, members)[1], np.float64)
