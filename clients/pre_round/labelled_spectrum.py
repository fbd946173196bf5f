"""A relevance that sees labels as well as samples: where tasks differ by what labels mean.

No paper's (docs/relevance.md). Eigenvectors of all samples find tasks whatever the labels are
worth, and cannot see a task that gives the same samples other labels; eigenvectors of each class's
samples can. Here a client shares both, and a weight says how far labels are trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from clients.pre_round.spectrum import leading_spectrum
from fl_core.relevance import relative_scores
from fl_core.wire.protocol import ALL_IMAGES, CLASS_EIGENVECTORS

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelledSpectrum:
    """What a client shares, and the two energies with which it compares others.

    Attributes
    ----------
    eigenvectors : NDArray[np.float32], shape (d, k)
        Unit columns, orthonormal among those of one class.
    classes : NDArray[np.int64], shape (k,)
        The class of whose images each is an eigenvector; `ALL_IMAGES` for the leading ones of all.
    image_energy, class_energy : float
        The sums of the eigenvalues of either kind. They never leave the client.
    """

    eigenvectors: Float32
    classes: Int64
    image_energy: float
    class_energy: float


def labelled_spectrum(features: Float32, labels: Int64, count: int) -> LabelledSpectrum:
    """Return the leading eigenvectors of all samples and, of all classes together, of each class.

    G_c = Φ_cᵀΦ_c/n over the samples of class c, n being the number of all samples; the
    `CLASS_EIGENVECTORS` · `count` largest eigenvalues of all G_c are those that count.

    Parameters
    ----------
    features : NDArray[np.float32], shape (n, d)
    labels : NDArray[np.int64], shape (n,)
        As the client has them, right or wrong.
    count : int
        How many eigenvectors of all samples, at most d.

    Raises
    ------
    ValueError
        As `clients.pre_round.spectrum.leading_spectrum` does.
    """
    images = leading_spectrum(features, count)
    found = []
    for label in np.unique(labels):
        rows = features[labels == label].astype(np.float64) / np.sqrt(len(features))
        _, lengths, directions = scipy.linalg.svd(rows, full_matrices=False)
        found += [(float(s) ** 2, int(label), v) for s, v in zip(lengths, directions, strict=True)]
    found.sort(key=lambda one: -one[0])
    # What float32 features cannot tell from zero.
    least = found[0][0] * min(features.shape) * np.finfo(np.float32).eps
    leading = [one for one in found[: CLASS_EIGENVECTORS * count] if one[0] > least]
    vectors = np.stack([v for _, _, v in leading], axis=1)
    return LabelledSpectrum(
        np.concatenate([images.eigenvectors, vectors.astype(np.float32)], axis=1),
        np.array([ALL_IMAGES] * len(images.eigenvalues) + [label for _, label, _ in leading]),
        float(images.eigenvalues.sum()),
        sum(value for value, _, _ in leading),
    )


def class_energy_relevance(
    features: Float32,
    labels: Int64,
    image_energy: float,
    class_energy: float,
    eigenvectors: Sequence[Float32],
    classes: Sequence[Int64],
    label_weight: float,
) -> list[float]:
    """Return this client's relevance of every client's eigenvectors by the energy they miss.

    m_j = (1 − captured of all samples) + w·(1 − captured of each class's samples by eigenvectors of
    that class), and scores as `fl_core.relevance.relative_scores` makes them.

    Parameters
    ----------
    features, labels, image_energy, class_energy
        This client's: as in `labelled_spectrum`, and as that returned them.
    eigenvectors : sequence of NDArray[np.float32], shapes (d, k_j)
        Of every client j.
    classes : sequence of NDArray[np.int64], shapes (k_j,)
        The class of each column.
    label_weight : float
        w, at least 0: 0 looks at samples alone.

    Returns
    -------
    list of float
        r(i, j) in [0, 1], one for each j.
    """
    exact = features.astype(np.float64)
    rows_of = {label: exact[labels == label] for label in np.unique(labels).tolist()}
    rows_of[ALL_IMAGES] = exact
    nothing = np.empty((0, features.shape[1]))
    missed = []
    for vectors, of_column in zip(eigenvectors, classes, strict=True):
        energy = {
            kind: np.sum((rows_of.get(kind, nothing) @ vectors[:, of_column == kind]) ** 2)
            for kind in np.unique(of_column).tolist()
        }
        of_images = energy.pop(ALL_IMAGES, 0.0) / len(exact)
        of_classes = sum(energy.values()) / len(exact)
        missed.append(
            (1 - of_images / image_energy) + label_weight * (1 - of_classes / class_energy)
        )
    return [float(score) for score in relative_scores(np.array(missed))]
