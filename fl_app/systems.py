"""From names in the configuration to strategies: every clustering times every aggregation."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import nn

from clients.autoencoder import pretrained_autoencoder
from clients.features import feature_dimension
from fl_app.config import AS_PAPER, AS_TASKS, AUTO, Config, system
from fl_core import protocol
from fl_core.datasets import Dataset
from fl_core.federation import Federation
from fl_core.models import build_model
from fl_core.own_images import Agreement
from strategies import (
    Aggregation,
    ClusteredStrategy,
    Clustering,
    ClusterMean,
    GivenClusters,
    GraphMean,
    LinearSignatureClustering,
    LossClustering,
    LpsGps,
    ModelClustering,
    OwnCluster,
    RandomClusters,
    RecursiveBipartition,
    SignatureClustering,
    SingleCluster,
    SpectralClustering,
    UpdateClustering,
)
from strategies.base import Options
from strategies.grouping import NumClusters

_DRAW_STREAM = 0x1FCA


class Setting(NamedTuple):
    """What a clustering or an aggregation is built from.

    Attributes
    ----------
    config : Config
    images : Dataset or Agreement
        The kind of images that all clients have.
    seed : int
    federation : Federation, optional
        In a simulation, whose tasks are known.
    """

    config: Config
    images: Dataset | Agreement
    seed: int
    federation: Federation | None = None


def build_strategy(name: str, setting: Setting, options: Options) -> ClusteredStrategy:
    """Return the strategy of a name in `Config.strategy`.

    Raises
    ------
    ValueError, OSError
        If an encoder cannot be had, or the model has no such common layers.
    """
    clustering, aggregation, weighted = system(name)
    if setting.config.weighted_mean is not None:
        weighted = setting.config.weighted_mean
    return ClusteredStrategy(
        CLUSTERINGS[clustering](setting), AGGREGATIONS[aggregation](setting, weighted), **options
    )


def wanted_clusters(setting: Setting) -> int | None:
    """Return the number of clusters to look for; None: to be chosen."""
    wanted = setting.config.num_clusters
    if wanted == AS_TASKS and setting.federation is not None:
        return len(setting.federation.partition.tasks)
    return wanted if isinstance(wanted, int) else None


def initial_model(setting: Setting) -> nn.Module:
    """Return the configured model with random weights."""
    images = setting.images
    return build_model(setting.config.model, images.image_shape, images.num_classes, setting.seed)


def common_layers(config: Config, model: nn.Module) -> tuple[str, ...]:
    """Return the names of the modules that MT-HFL's clusters share.

    `paper`: the convolutions, or, in a perceptron, the first layer (MT-HFL, section IV); a model of
    one layer has nothing to share, as the last layer is each task's own.

    Raises
    ------
    ValueError
        If the model has no such module, or no convolution.
    """
    layers = [n for n, m in model.named_modules() if list(m.parameters(recurse=False))]
    convolutions = tuple(n for n, m in model.named_modules() if isinstance(m, nn.Conv2d))
    if config.common_layers == AS_PAPER:
        return convolutions or tuple(layers[:1] if len(layers) > 1 else ())
    if config.common_layers == "conv":
        if not convolutions:
            raise ValueError(
                f'common-layers is "conv", but {config.model} has no convolution: its layers are '
                f"{', '.join(layers)}."
            )
        return convolutions
    names = tuple(config.common_layers.split(","))
    for name in names:
        if name not in layers:
            raise ValueError(
                f'common-layers names "{name}", but the layers of {config.model} are '
                f"{', '.join(layers)}."
            )
    return names


def _number(setting: Setting, chosen: NumClusters = "elbow") -> NumClusters:
    """Return the number of clusters or the rule that chooses it; `chosen`: what `auto` means."""
    wanted = wanted_clusters(setting)
    if wanted is not None:
        return wanted
    return (
        "silhouette"
        if setting.config.num_clusters == "silhouette"
        else (chosen if setting.config.num_clusters == AUTO else "elbow")
    )


def _fixed_number(setting: Setting, clustering: str) -> int:
    wanted = wanted_clusters(setting)
    if wanted is None:
        raise ValueError(
            f'num-clusters is "{setting.config.num_clusters}", but {clustering} cannot choose a '
            "number of clusters: give it one, or num-tasks."
        )
    return wanted


def _losses(setting: Setting, *, enforce: bool) -> Clustering:
    def draw_model(number: int) -> protocol.NDArrays:
        stream = np.random.SeedSequence([setting.seed, number, _DRAW_STREAM])
        model = initial_model(setting._replace(seed=int(stream.generate_state(1)[0])))
        return protocol.to_arrays(ArrayRecord(model.state_dict()))

    return LossClustering(
        _fixed_number(setting, "ifca-pfl" if enforce else "ifca"),
        draw_model,
        enforce=enforce,
        stop_after=setting.config.stop_reassociation,
    )


@contextmanager
def _printed(source: logging.Logger) -> Iterator[None]:
    """Print what a logger says: pre-training takes minutes, and people want to see it move."""
    handler, level = logging.StreamHandler(sys.stdout), source.level
    source.addHandler(handler)
    source.setLevel(logging.INFO)
    try:
        yield
    finally:
        source.setLevel(level)
        source.removeHandler(handler)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Train on one thread: the layers are small, and threads that wait for each other cost more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=2)
def _encoder(source: str, channels: int, data_dir: str) -> protocol.NDArrays:
    with _printed(logging.getLogger("clients.autoencoder")), _one_thread():
        autoencoder = pretrained_autoencoder(source, channels, data_dir=data_dir)
    return protocol.to_arrays(ArrayRecord(autoencoder.state_dict()))


def _signatures(setting: Setting) -> Clustering:
    config = setting.config
    return SignatureClustering(
        _encoder(
            config.encoder,
            setting.images.image_shape[0],
            "" if config.dataset == "folder" else config.data_dir,  # that is the user's own
        ),
        _number(setting),
        config.num_centroids,
        config.graph_threshold,
        config.fine_tune_epochs if config.fine_tune != "never" else 0,
        config.fine_tune == "always",
        config.max_changed,
        config.refresh_every,
        setting.seed,
    )


def _federation(setting: Setting) -> Federation:
    """Return the simulated federation, for what cannot do without knowing the tasks.

    Raises
    ------
    ValueError
        On real devices.
    """
    if setting.federation is None:
        raise ValueError("nobody knows the tasks of real devices: choose another clustering.")
    return setting.federation


def _tasks(setting: Setting) -> Clustering:
    federation, rounds = _federation(setting), setting.config.num_server_rounds
    first, last = (federation.tasks_at(r).tolist() for r in (0, rounds))
    later = {federation.drift_round: dict(enumerate(last))} if first != last else {}
    return GivenClusters(dict(enumerate(first)), later)


# Every name of `fl_app.config.CLUSTERINGS`.
CLUSTERINGS: dict[str, Callable[[Setting], Clustering]] = {
    "spectral": lambda setting: SpectralClustering(
        _number(setting),
        setting.config.num_eigenvectors,
        setting.config.linkage,
        setting.config.relevance,
        feature_dimension(setting.config.features, setting.images.image_shape),
    ),
    "signature": _signatures,
    "update": lambda setting: UpdateClustering(
        _number(setting, "silhouette"), setting.config.update_distance
    ),
    "loss-inhabited": lambda setting: _losses(setting, enforce=True),
    "loss": lambda setting: _losses(setting, enforce=False),
    "model": lambda setting: ModelClustering(_fixed_number(setting, "fedsem"), setting.seed),
    "bipartition": lambda setting: RecursiveBipartition(
        setting.config.cfl_mean_norm, setting.config.cfl_max_norm
    ),
    "linear-signature": lambda setting: LinearSignatureClustering(
        _number(setting),
        setting.config.num_centroids,
        setting.config.num_components,
        setting.config.linkage,
    ),
    "tasks": _tasks,
    "random": lambda setting: RandomClusters(
        np.bincount(_federation(setting).partition.client_tasks).tolist(), setting.seed
    ),
    "single": lambda setting: SingleCluster(),
    "own": lambda setting: OwnCluster(),
}

# Every name of `fl_app.config.AGGREGATIONS`.
AGGREGATIONS: dict[str, Callable[[Setting, bool], Aggregation]] = {
    "mean": lambda setting, weighted: ClusterMean(weighted),
    "graph": lambda setting, weighted: GraphMean(weighted),
    "lps-gps": lambda setting, weighted: LpsGps(
        common_layers(setting.config, initial_model(setting)),
        setting.config.local_rounds,
        weighted,
    ),
}


def clusterings_of(names: Sequence[str]) -> set[str]:
    """Return the clusterings that strategies use."""
    return {system(name).clustering for name in names}
