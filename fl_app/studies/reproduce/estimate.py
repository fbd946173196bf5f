"""How many hours simulations will take: training and features, measured here, and what is on top.

Messages, tests, grouping and the start of Ray are not measured: the simulations of the same table
that are finished say how many times as long they took, and until there are some, other tables do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from clients.accelerator import one_thread
from clients.features.compute import feature_map
from clients.features.encoders import ENCODERS
from clients.settings import TrainingSettings
from clients.training.train import train
from fl_app.config.checks import shares_eigenvectors
from fl_app.config.run_config import Config
from fl_app.config.tuning import combinations
from fl_app.studies.reproduce.cells import Missing, current_cells
from fl_app.studies.reproduce.experiment_file import Experiment
from fl_app.studies.reproduce.keeping import Cell
from fl_core.data.datasets import load_dataset
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import simulate_federation
from fl_core.models.build import build_model

_STEPS, _FEATURES = 30, 16
_ON_TOP = (2, 4)
"""How many times as long the kept tables of docs/results took that train for minutes."""


def hours_left(
    experiment: Experiment, cells: Sequence[Cell], missing: Sequence[Missing], workers: int
) -> str:
    """Say how many hours the missing simulations will take, and how that is known.

    Raises
    ------
    ValueError
        If the data cannot be spread over the clients of one of them.
    """
    cores = max(1, workers)  # none: all in this process
    hours = _core_hours([one.config for one in missing]) / cores
    alone = f"training and features alone take {_long(hours)}, as measured here on one core"
    if done := current_cells(experiment, cells):
        took = sum(cell["seconds"] * max(1, cell["workers"]) for cell in done) / 3600
        times = took / _core_hours([experiment.config(cell["given"]) for cell in done])
        how = f"the {len(done)} finished simulations took {times:.1f} times as long as that"
        return f"about {_long(times * hours)} on {cores} core(s): {alone}, and {how}."
    how = "with messages, tests and grouping, other tables took two to four times as long"
    long = _long(*(times * hours for times in _ON_TOP))
    return f"about {long} on {cores} core(s): {alone}, and {how}."


def _long(*hours: float) -> str:
    if max(hours) >= 1:
        return f"{' to '.join(f'{one:.1f}' for one in hours)} hours"
    return f"{' to '.join(f'{60 * one:.1f}' for one in hours)} minutes"


def _core_hours(configs: Sequence[Config]) -> float:
    """Return how long training and pretrained features take, which are remembered, on one core."""
    seconds, seen = 0.0, set()
    for config in configs:
        settings = config.federation_settings(config.simulated_clients, 0)
        settings = replace(settings, noise="none", noise_rate=0.0)  # which costs no training
        epoch = replace(config.training_settings(), local_epochs=1)
        epochs = sum(
            int(values.get("local-epochs", config.local_epochs))
            for strategy in config.strategy
            for values in combinations(config.tune, strategy)
        )
        passes = config.num_server_rounds * config.fraction_train * epochs
        seconds += passes * _epoch_seconds(settings, config.model, epoch)
        if config.features in ENCODERS and shares_eigenvectors(config.strategy):
            seen.add((settings.dataset, config.features))
    return (seconds + sum(_features_seconds(*one) for one in seen)) / 3600


@lru_cache
def _epoch_seconds(settings: FederationSettings, model: str, how: TrainingSettings) -> float:
    """Return how long all images of all clients take once."""
    federation = simulate_federation(settings)
    data, some = federation.dataset, slice(_STEPS * how.batch_size)
    network = build_model(model, data.image_shape, data.num_classes, 0)
    images, labels = data.train_images[some], data.train_labels[some]
    once = _measured(lambda: train(network, images, labels, how, torch.Generator()))
    return sum(len(own) for own in federation.partition.train) * once / len(labels)


@lru_cache
def _features_seconds(dataset: str, features: str) -> float:
    """Return how long the features of all training images take."""
    images = load_dataset(dataset).train_images
    some, computed = images[:_FEATURES], feature_map(features)
    return len(images) * _measured(lambda: computed(some)) / len(some)


def _measured(call: Callable[[], object]) -> float:
    """Return its processor time on one thread, which what else runs here hardly changes."""
    with one_thread():
        call()  # the first finds its memory
        started = time.process_time()
        call()
        return time.process_time() - started
