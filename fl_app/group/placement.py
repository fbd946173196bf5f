"""The cluster of a new client among those of a run."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clients.features.compute import feature_map
from clients.privacy import bounded_features
from clients.signatures.spectrum import Spectrum, relevance
from clients.signatures.uninformative import why_little_to_compare
from fl_app.classify import read_function
from fl_app.group.resampling import part, spectrum
from fl_app.results.layout import models_folder
from fl_app.results.spectra import SpectraCard, StoredSpectra, load_spectra
from fl_core.data.folders import cache_dir, is_table
from fl_core.data.image_files import find_images
from fl_core.data.image_folder import decoding_error, read_each
from fl_core.data.samples import described, grey_or_colour, sample_word
from fl_core.data.tables import list_tables, read_prepared_rows
from fl_core.text import listed, printable
from fl_core.user_code import is_import_path
from strategies.clusterings.agglomeration import half_way, mean_scores

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

RESAMPLES = 50
FEWEST_IMAGES = 5  # of which a fifth can be left out

_STREAM = 0x91ACE
_SPECTRA_FILE = re.compile(r"spectra-(?P<strategy>.+)-seed-(?P<seed>\d+)\.safetensors")
_MOST_NAMES = 20


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


def place_clients(options: argparse.Namespace) -> bool:
    """Print to which clusters the samples of `fedkin place` belong; return whether all fit one."""
    spectra = load_spectra(spectra_file(options.results, options.strategy, options.seed))
    card = spectra.card
    if is_import_path(card.features) and card.features not in options.own_code:
        raise ValueError(
            f"the run's features are {card.features}, user-defined code, and a file must not "
            f"decide which code is executed: if you trust it, add --own-code {card.features}."
        )
    compute = feature_map(card.features, cache_dir=cache_dir())
    columns = card.preparation.column_names
    all_fit = True
    for name, samples in _samples(card, options.data_path, options.data):
        features = compute(samples).numpy()
        found = place(features, spectra, seed=card.seed)
        why = why_little_to_compare(card.features, samples.numpy(), features, columns)
        print(f"{printable(name)}: " if name else "", end="")
        print(describe(found, spectra, len(features), why))
        models = models_folder(options.results, card.strategy, card.seed)
        model = models / f"cluster-{found.cluster}.safetensors"
        if found.fits and model.is_file():
            print(f"its cluster's model, for fedkin classify: {printable(str(model))}")
        all_fit = all_fit and found.fits
    return all_fit


def spectra_file(results: Path, strategy: str | None, seed: int | None) -> Path:
    """Return the file of the clients' eigenvectors of a run, by default of its first seed."""
    files = {
        (match["strategy"], int(match["seed"])): path
        for path in sorted(results.iterdir())
        if (match := _SPECTRA_FILE.fullmatch(path.name))
    }
    if not files:
        raise ValueError(
            f"{results} has no eigenvectors of a run: a strategy that groups by them, such as "
            "rcc-pfl, saves them for at most 2,000 clients, if keep-spectra is true."
        )
    names = {name for name, _ in files}
    wanted = names if strategy is None else {strategy}
    chosen = [one for one in sorted(files) if one[0] in wanted and seed in (None, one[1])]
    if not chosen or len({name for name, _ in chosen}) > 1:
        there = ", ".join(f"{name} on seed {number}" for name, number in sorted(files))
        raise ValueError(
            f"{results} holds the clusters of {there}: choose one by --strategy and --seed."
        )
    return files[chosen[0]]


def _samples(card: SpectraCard, path: Path | None, data: str) -> list[tuple[str, Tensor]]:
    """Return each client's name, if there are several, and its samples."""
    prepared = card.preparation
    if path is None:
        return [("", read_function(data, card.sample_shape, prepared, is_float=card.is_float))]
    if prepared.columns:
        tables = list_tables(path)
        names = [table.name if len(tables) > 1 else "" for table in tables]
        rows = [read_prepared_rows(table, prepared) for table in tables]
        return [*zip(names, rows, strict=True)]
    if sample_word(card) != "image" or is_table(path):
        raise ValueError(
            f"--data-path is {path}, but the run's samples were "
            f"{described(card.sample_shape, is_float=card.is_float)}: give a folder of images, or "
            "a function that returns such samples by --data."
        )
    return [("", read_images(path, card.sample_shape))]


def read_images(folder: Path, sample_shape: tuple[int, ...]) -> Tensor:
    """Return all images below a folder, resized as in the run: uint8, shape (n, C, H, W)."""
    paths = find_images(folder)
    images, outcomes = read_each(paths, sample_shape)
    for path, outcome in zip(paths, outcomes, strict=True):
        if isinstance(outcome, Exception):
            raise ValueError(f"{path} cannot be decoded: {decoding_error(outcome)}. Remove it.")
        if outcome:
            channels = sample_shape[0]
            raise ValueError(
                f"{path} is {grey_or_colour(4 - channels)}, but the run's images were "
                f"{grey_or_colour(channels)}: convert it first."
            )
    return images


def describe(found: Placement, spectra: StoredSpectra, num_samples: int, poor: str = "") -> str:
    """Describe a placement in lines of text; `poor` says why the client's features say little."""
    card, word = spectra.card, sample_word(spectra.card)
    names = [
        printable(name)
        for name, cluster in zip(card.names, spectra.clusters.tolist(), strict=True)
        if cluster == found.cluster
    ]
    overlap = f"overlap {found.overlap:.2f}, needed {found.needed:.2f}"
    lines = [f"{num_samples} {word}s, the clusters of {card.strategy} on seed {card.seed}"]
    if not found.fits:
        lines.append(
            f"They fit no cluster; the nearest is {found.cluster} ({overlap}). Train these {word}s "
            "alone, or run again with this client."
        )
        return "\n".join(lines)
    lines.append(f"cluster {found.cluster}, with {listed(names, _MOST_NAMES)}")
    other = f"{found.margin:.3f} more than to cluster {found.second}"
    if found.second is None:
        other, poor = "the only cluster", poor or "there is no other cluster"
    lines.append(f"relevance {found.relevance:.3f}, {other}")
    share = f"{100 * found.share:.0f} % of the resamples"
    certain = f"certain in {share}, each without a fifth of the {word}s"
    lines.append(f"{f'certainty unknown: {poor}' if poor else certain}; {overlap}")
    return "\n".join(lines)


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
    parts = (part(rows, rng) for _ in range(resamples))
    landed = [
        int(_means(spectrum(one, k), spectra, members).argmax())
        for one in parts
        if one.any()  # of nothing but zeros there is no spectrum
    ]
    overlap, needed = fit(client.eigenvectors, spectra.eigenvectors, members, best)
    second = int(order[1]) if len(order) > 1 else None
    return Placement(
        cluster=int(numbers[best]),
        relevance=float(means[best]),
        second=None if second is None else int(numbers[second]),
        margin=float(means[best] - (0 if second is None else means[second])),
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
