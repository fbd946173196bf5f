"""What can a server or another device rebuild of eigenvectors? docs/privacy.md has the tables.

Three attacks by somebody who has public images of the same kind (the test images): is this image
among a device's; what does the device's mean image look like; which share of its images has each
class. Each without noise and with `pre-round-epsilon`. `python -m benchmarks.rebuilt`.
"""

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import nnls
from scipy.special import ndtr
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from benchmarks import harness
from benchmarks.privacy import DELTA, federation, hog_features
from benchmarks.writing import ROOT, markdown
from clients.features.compute import feature_map
from clients.privacy import bounded_features, noise_multiplier, private_gram
from clients.signatures.spectrum import gram_matrix, leading_spectrum, spectrum_of_gram
from fl_app.report.pictures.figure import channel, layer, picture, save
from fl_app.report.pictures.style import WIDTH
from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset

Float64 = NDArray[np.float64]
Float = NDArray[np.floating[Any]]

# Eigenvectors shared, and the numbers of images that a device has.
SIZES = {20: (40, 80, 160, 400), 5: (10, 20, 40, 160)}
EPSILONS = (8, 2, 0.5)
CLASSES = (0, 1, 2, 3)  # of which the devices of the first attack have images
DRAWS = 50
PUBLIC = 1_000
DATASETS = ("mnist", "fashion-mnist")
SHOWN = 3  # devices of each data set in the picture
SERVER_EIGENVECTORS = 10


def data_url(image: NDArray[np.uint8]) -> str:
    """Return an image, (H, W) or (H, W, 3), as part of a description; its pixels stay sharp."""
    file = io.BytesIO()
    Image.fromarray(image.repeat(8, axis=0).repeat(8, axis=1)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def auc_of_membership(members: Float64, others: Float64) -> float:
    """Return how often an image of the device scores above one that is not."""
    truth = [1] * len(members) + [0] * len(others)
    return float(roc_auc_score(truth, np.concatenate([members, others])))


def captured(rows: Float64, vectors: Float) -> Float64:
    """Return the share of each row's energy that lies in the span of orthonormal columns."""
    share: Float64 = np.sum((rows @ vectors) ** 2, axis=1) / np.sum(rows**2, axis=1)
    return share


def likelihood(rows: Float64, gram: Float, usual: Float64) -> Float64:
    """Return φᵀ(G − Ḡ)φ for each row: the best test there is if only noise differs.

    Ḡ is what the Gram matrix would be without this device: that of public images of its classes.
    """
    scores: Float64 = np.einsum("nd,de,ne->n", rows, gram - usual, rows, optimize=True)
    return scores


def highest_auc(epsilon: float) -> float:
    """Return the AUC that no test of one image exceeds, with any other knowledge.

    Noise σ times the sensitivity is Gaussian differential privacy with μ = 1/σ (Dong et al.,
    "Gaussian Differential Privacy", 2022), and two normals at a distance of μ have this AUC.
    """
    return float(ndtr(1 / noise_multiplier(epsilon, DELTA) / math.sqrt(2)))


def membership(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the AUC for each k, number of images and ε: the mean over draws, the better test."""
    rows, public = (one.astype(np.float64) for one in hog_features(dataset))
    of_classes = np.flatnonzero(np.isin(dataset.train_labels.numpy(), CLASSES))
    known = bounded_features(
        public[np.isin(dataset.test_labels.numpy(), CLASSES)].astype(np.float32)
    )
    usual = known.T @ known / len(known)
    bounded = bounded_features(rows.astype(np.float32))
    found = []
    for count, sizes in SIZES.items():
        for size in sizes:
            aucs = {epsilon: np.zeros(2) for epsilon in (0.0, *EPSILONS)}
            for draw in range(DRAWS):
                rng = np.random.default_rng([count, size, draw])
                members, others = np.split(rng.choice(of_classes, 2 * size, replace=False), 2)
                vectors = leading_spectrum(rows[members].astype(np.float32), count).eigenvectors
                both = [captured(rows[some], vectors) for some in (members, others)]
                aucs[0.0] += auc_of_membership(*both)
                for epsilon in EPSILONS:
                    gram = private_gram(bounded[members], epsilon, DELTA, rng)
                    shared = spectrum_of_gram(gram, count).eigenvectors
                    tests = (
                        [captured(bounded[some], shared) for some in (members, others)],
                        [likelihood(bounded[some], gram, usual) for some in (members, others)],
                    )
                    aucs[epsilon] += [auc_of_membership(*test) for test in tests]
            # The better test over all draws: the better one of each would be luck.
            means = {f"{e:g}": round(float(sums.max()) / DRAWS, 4) for e, sums in aucs.items()}
            found.append({"eigenvectors": count, "images": size, "auc": means})
    return found


class Decoder:
    """Ridge regression from features to pixels, on public images."""

    def __init__(self, features: Float64, pixels: Float64) -> None:
        self.features = features
        self.mean = pixels.mean(axis=0)
        self.ridge = Ridge(alpha=1.0).fit(features, pixels)

    def decode(self, vector: Float64) -> Float64:
        """Return the image of an eigenvector, as long as public images are along it on average."""
        length = float((self.features @ vector).mean())
        image: Float64 = self.ridge.predict(length * vector[None])[0]
        return image

    def contrast(self, vector: Float64) -> Float64:
        """Return what moving along a vector adds to an image, and takes away."""
        image: Float64 = self.ridge.coef_ @ vector
        return image


def cosine(one: Float64, other: Float64) -> float:
    """Return the cosine of the angle between two images."""
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def class_shares(gram: Float64, grams: Sequence[Float64]) -> Float64:
    """Return the mix of the classes' public Gram matrices that is nearest to this one."""
    found, _ = nnls(np.stack([one.ravel() for one in grams], axis=1), gram.ravel())
    shares: Float64 = found / max(found.sum(), 1e-12)
    return shares


def rebuild(name: str) -> tuple[dict[str, Any], list[dict[str, Float64]]]:
    """Return how well mean images and class shares are rebuilt, and the images of some devices."""
    simulated = federation(name, "label", 0)
    dataset = simulated.dataset
    rows, public = hog_features(dataset)
    bounded, known = bounded_features(rows), bounded_features(public)
    labels = dataset.test_labels.numpy()
    raw = feature_map("raw")
    chosen = np.random.default_rng(0).choice(len(public), PUBLIC, replace=False)
    pixels = raw(dataset.test_samples[chosen]).numpy().astype(float)
    plain = Decoder(public[chosen].astype(float), pixels)
    projected = Decoder(known[chosen], pixels)
    classes = range(dataset.num_classes)
    grams = [gram_matrix(public[labels == c]).astype(float) for c in classes]
    small = [known[labels == c].T @ known[labels == c] / (labels == c).sum() for c in classes]
    usual = np.array(leading_spectrum(public, SERVER_EIGENVECTORS).eigenvalues)
    scores: dict[str, list[float]] = {}
    pictures: list[dict[str, Float64]] = []
    for indices, counts in zip(
        simulated.partition.train, simulated.label_counts(noisy=False), strict=True
    ):
        true = raw(dataset.train_samples[indices]).numpy().astype(float).mean(axis=0)
        spectrum = leading_spectrum(rows[indices], SERVER_EIGENVECTORS)
        vectors = spectrum.eigenvectors.astype(float)
        images = {
            "mean image": true,
            "public mean": plain.mean,
            "no noise": plain.decode(vectors[:, 0]),
        }
        shares = {
            "eigenvectors": class_shares(vectors * usual @ vectors.T, grams),
            "with eigenvalues": class_shares(vectors * spectrum.eigenvalues @ vectors.T, grams),
        }
        for epsilon in EPSILONS:
            rng = np.random.default_rng([len(pictures), int(100 * epsilon)])
            gram = private_gram(bounded[indices], epsilon, DELTA, rng)
            noisy = spectrum_of_gram(gram, SERVER_EIGENVECTORS)
            few = noisy.eigenvectors.astype(float)
            images[f"ε = {epsilon:g}"] = projected.decode(few[:, 0])
            shares[f"with eigenvalues, ε = {epsilon:g}"] = class_shares(
                few * noisy.eigenvalues @ few.T, small
            )
        for number in (2, 3):
            images[f"eigenvector {number}"] = plain.contrast(vectors[:, number - 1])
        pictures.append(images)
        of_device = counts / counts.sum()
        for what, image in images.items():
            if what != "mean image" and "eigenvector" not in what:
                scores.setdefault(f"cosine, {what}", []).append(cosine(image, true))
                if what != "public mean":
                    beyond = cosine(image - plain.mean, true - plain.mean)
                    scores.setdefault(f"beyond the public mean, {what}", []).append(beyond)
        shares["even"] = np.full(len(of_device), 1 / len(of_device))
        for what, share in shares.items():
            distance = float(np.abs(share - of_device).sum() / 2)
            scores.setdefault(f"class shares, {what}", []).append(distance)
    summary = {
        what: {"mean": round(float(np.mean(v)), 4), "lowest": round(float(min(v)), 4)}
        for what, v in scores.items()
    }
    return summary, pictures[:SHOWN]


def draw(pictures: Sequence[Mapping[str, Float64]], path: Path) -> Path:
    """Draw what is rebuilt of each device: a row each, beside its true mean image."""
    columns = [what for what in pictures[0] if what != "public mean"]
    pitch = (WIDTH - 12) / len(columns)
    size = min(pitch - 8, 66)
    rows = [
        {"x": pitch * column, "y": 14 + (size + 4) * row}
        | {"url": data_url(_shown(images[what], what))}
        for row, images in enumerate(pictures)
        for column, what in enumerate(columns)
    ]
    heads = [{"x": pitch * column, "y": 0, "what": what} for column, what in enumerate(columns)]
    at = {side: channel(f"{side}:Q", axis=None, scale=None) for side in "xy"}
    corner = {"align": "left", "baseline": "top"}
    layers = [
        layer("image", rows, {**corner, "width": size, "height": size}, **at, url=channel("url")),
        layer("text", heads, corner, **at, text=channel("what")),
    ]
    height = 14 + (size + 4) * len(pictures)
    return save(picture("What eigenvectors show of a device", layer=layers, height=height), path)


def _shown(image: Float64, what: str) -> NDArray[np.uint8]:
    """Return a square image in grey; an eigenvector, without a sign, in red and blue."""
    side = math.isqrt(len(image))
    values = (image / max(float(np.abs(image).max()), 1e-12)).reshape(side, side, 1)
    if "eigenvector" not in what:
        return np.asarray(255 * values[..., 0].clip(0, 1), np.uint8)
    ends = np.where(values > 0, np.array([33, 102, 172]), np.array([178, 24, 43]))
    return np.asarray(255 + np.abs(values) * (ends - 255), np.uint8)


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/privacy.md and results/README.md in Markdown, by name."""
    shown = ["0", *(f"{epsilon:g}" for epsilon in EPSILONS)]
    heads = ["k", "images", "no noise", *(f"ε = {name}" for name in shown[1:])]
    lines = []
    for one in measured["membership"]:
        cells = [f"{one['auc'][name]:.2f}" for name in shown]
        lines.append([str(one["eigenvectors"]), str(one["images"]), *cells])
    most = [f"{highest_auc(epsilon):.2f}" for epsilon in EPSILONS]
    lines.append(["any", "any: no attack on one image exceeds", "1.00", *most])
    rebuilt = measured["rebuilt"]
    other = []
    for what in next(iter(rebuilt.values())):
        cells = [f"{one[what]['mean']:.3f}" for one in rebuilt.values()]
        other.append([what, *cells])
    return {
        "membership": markdown(heads, lines),
        "rebuilt": markdown(["", *rebuilt], other),
    }


def measure(numbers: harness.Numbers, datasets: list[str]) -> Iterator[str]:
    """Measure everything and draw it."""
    harness.one_thread()
    numbers["rebuilt"], pictures = {}, []
    for name in datasets:
        numbers["rebuilt"][name], shown = rebuild(name)
        pictures += shown
        yield name
    numbers["membership"] = membership(load_dataset(datasets[0]))
    yield str(draw(pictures, ROOT / "docs/pictures/rebuilt.png"))


if __name__ == "__main__":
    harness.command(__doc__, "rebuilt", measure, tables, datasets=list(DATASETS))
