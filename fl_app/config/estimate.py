"""How long a simulation will take, from a few seconds of its training loop on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property

import torch

from clients.features.compute import feature_map
from clients.training.objectives import nothing, pull, trained_alone
from clients.training.train import evaluate, train
from fl_app.config.run_config import PAPER_CLIENTS, Config
from fl_core.data.settings import Known, known_of
from fl_core.models.build import build_model
from fl_core.models.layers import named_layers
from strategies.catalogue import System, system_of
from strategies.objectives import Ditto, PrivateHead, Prox

# Seconds on two cores beside the work: until clients are ready (SuperLink, Ray, imports) and after
# the last round (pictures, report, leaving no process behind); and those that each message costs a
# worker beside its computation, as in docs/example/summary.json. docs/watching.md has how far off
# they were.
_BESIDE, _MESSAGE = 25.0, 0.02
_LEAST = 0.2  # seconds that each thing is measured for, at least
_BATCHES = 20
_FREE_FEATURES = ("hog", "raw")  # the others need weights, and are remembered


def estimated(config: Config, workers: int) -> str:
    """Return a sentence that says how long a run will take, and what that is based on."""
    if known_of(config.dataset) is None:
        return "no estimate of the time: nobody knows how many images there are before reading them"
    seconds, per_image = estimated_seconds(config, workers)
    about = timedelta(seconds=round(seconds))
    return (
        f"about {about} with {workers} workers on CPUs: {_BESIDE:.0f} s to start and end, and what "
        f"training an image takes here, {1e3 * per_image:.3g} ms, measured just now"
        f"{_not_counted(config)}{_busy()}"
    )


def estimated_seconds(config: Config, workers: int) -> tuple[float, float]:
    """Return the seconds that a run will take, and those in which an image is trained on.

    One batch after the other is trained, on random images, by one thread of this machine's CPU.

    Raises
    ------
    ValueError
        If nobody knows how many images the data set has before it is read.
    """
    known = known_of(config.dataset)
    if known is None:
        raise ValueError(f"dataset is {config.dataset}, whose size is not known beforehand.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        per_image = _Seconds(config, known)
        systems = map(system_of, config.strategy)
        work = sum(_of_training(config, known, system, per_image) for system in systems)
    finally:
        torch.set_num_threads(threads)
    return _BESIDE + config.repeats * work / workers, per_image.training


def _not_counted(config: Config) -> str:
    left_out = []
    if any(system_of(name).clustering.name == "signature" for name in config.strategy):
        left_out.append("pre-training of an encoder")
    if config.features not in _FREE_FEATURES:
        left_out.append(f"{config.features}'s features")
    if config.training_epsilon:
        left_out.append("what privacy costs")
    return f"; without {' and '.join(left_out)}" if left_out else ""


def _busy() -> str:
    """Say that other programs compute here: they take their share of the time to come, too."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores / 2:
        return ""
    return f"; longer while other programs compute here (load {load:.0f} on {cores} cores)"


class _Seconds:
    """What one image costs in training, in testing and in the pre-round.

    Attributes
    ----------
    training, testing, comparing : float
        Seconds: of a pass in training, of a test, and of the pre-round's features.
    pulled, head : float
        Of a pass in training towards another model (FedProx, Ditto), and of one that trains the
        private head alone (FedRep).
    """

    def __init__(self, config: Config, known: Known) -> None:
        count = _BATCHES * config.batch_size
        draw = torch.Generator().manual_seed(0)
        shape = (count, *known.image_shape)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
        labels = torch.randint(0, known.num_classes, (count,), generator=draw)
        model = self._model = build_model(config.model, known.image_shape, known.num_classes, 0)
        settings = config.training_settings()

        def seconds(between: Callable[[], None] = nothing) -> float:
            passes = count * settings.local_epochs
            return _timed(lambda: train(model, images, labels, settings, draw, between), passes)

        self._seconds, self._config = seconds, config
        self.training = seconds()
        self.testing = _timed(lambda: evaluate(model, images, labels), count)
        self.comparing = 0.0
        if config.features in _FREE_FEATURES:
            phi = feature_map(config.features)
            self.comparing = _timed(lambda: phi(images), count)

    @cached_property
    def pulled(self) -> float:
        return self._seconds(pull(self._model, 0.01))

    @cached_property
    def head(self) -> float:
        wanted = self._config.of_strategies["private-layers"]
        layers = named_layers("private-layers", wanted, self._model.state_dict())
        with trained_alone(self._model, layers, within=True):
            return self._seconds()


def _timed(act: Callable[[], object], images: int) -> float:
    """Return the seconds for one image; the first time does not count."""
    act()
    started, times = time.perf_counter(), 0
    while (seconds := time.perf_counter() - started) < _LEAST:
        act()
        times += 1
    return seconds / (times * images)


def _of_an_image(config: Config, system: System, per_image: _Seconds) -> float:
    """Return the seconds that one image takes in one client's training of a round."""
    if issubclass(system.objective, PrivateHead):
        head, body = (config.of_strategies[f"{part}-epochs"] for part in ("head", "body"))
        return float(head * per_image.head + body * per_image.training)
    seconds = 0.0 if system.objective is Prox else per_image.training
    if system.objective in (Prox, Ditto):
        seconds += per_image.pulled
    return config.local_epochs * seconds


def _of_training(config: Config, known: Known, system: System, per_image: _Seconds) -> float:
    """Return one worker's seconds for all rounds of one strategy on one seed."""
    clients = config.num_clients or PAPER_CLIENTS
    own = known.num_train * (1 + config.minority) / clients
    tested = known.num_test / (clients if config.client_test == "own" else config.num_tasks)
    rounds = config.num_server_rounds
    trained = config.fraction_train * clients * rounds
    tests = config.fraction_evaluate * clients * -(-rounds // config.evaluate_every)
    seconds = trained * (own * _of_an_image(config, system, per_image) + _MESSAGE)
    seconds += tests * (tested * per_image.testing + _MESSAGE)
    if system.clustering.shares == "eigenvectors":
        seconds += clients * (own * per_image.comparing + 2 * _MESSAGE)
    if system.clustering.shares == "losses":
        models = config.num_clusters if isinstance(config.num_clusters, int) else config.num_tasks
        seconds += trained * (models * own * per_image.testing + _MESSAGE)
    return seconds
