"""A check of a user-defined strategy, as scikit-learn's `check_estimator`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.client import Client, Images
from clients.handlers import answer_queries, answer_training
from clients.secure_aggregation import mask_mod
from clients.settings import TrainingSettings
from fl_app.simulation.in_process_grid import InProcessGrid
from fl_core.messages import protocol
from fl_core.models.build import seeded
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from strategies import ClusteredStrategy, Round, RoundReport, Training

TASKS = (0, 1, 0, 2, 1)
"""The task of each client: which rows of its images show the class."""
_ROUNDS, _DISTURBED = 3, 2  # in round 2 clients fail, and after it the run resumes
_SAMPLES, _SIDE, _CLASSES = 8, 8, 2


def check_strategy(strategy: ClusteredStrategy) -> None:
    """Raise an AssertionError that says what is wrong with a strategy, if anything is.

    Five clients of three `TASKS` train `initial_model` in this process. A second start, with nodes
    and replies in another order, must change no bit; nor may a training that resumes from a
    checkpoint. Clusterings and aggregations may change nothing in place. Models must be finite,
    and keep names, shapes and types. Clients that fail, all those of a cluster, must end no run.
    """
    strategy, usual = deepcopy(strategy), Training.as_round
    resumes = not strategy.secure_aggregation  # whose rounds are not to be trained again

    def read_only(training: Training, *arguments: Any) -> Round:
        state = usual(training, *arguments)
        updates = [model for one in state.updates for model in (one.arrays, one.received)]
        for model in (state.initial, *state.models, *updates):
            for array in filter(np.ndim, model.values()):
                array.flags.writeable = False
        return state

    with TemporaryDirectory() as folder, patch.object(Training, "as_round", read_only):
        path, contexts, grid = Path(folder) / "checkpoint", dict[int, Context](), _Grid()

        def on_round(report: RoundReport) -> None:
            if report.round == _DISTURBED and resumes:
                save_checkpoint(path, strategy.checkpoint())
                contexts.update(deepcopy(grid.contexts))

        strategy.on_round = on_round
        expected, clusters = _outcome(strategy, grid), strategy.clusters
        strategy.on_round = lambda report: None
        others = {"starts again, in another order": _outcome(strategy, _Grid(order=-1))}
        if resumes:
            strategy.resume(load_checkpoint(path))
            grid.contexts = contexts
            others["resumes from a checkpoint"] = _outcome(strategy, grid)
        for when, found in others.items():
            for what, value in expected.items():
                _check(found[what] == value, f"the {what} are others when the strategy {when}")
        members = clusters.members(clusters.of_client[0])
        failing = set(members if len(members) < len(TASKS) else members[:1])
        _outcome(strategy, disturbed := _Grid(failing))
        named = {failure.client for failure in strategy.training.registry.log}
        _check(named >= disturbed.failed, f"of the failed {disturbed.failed}, the log has {named}")


def initial_model(seed: int = 0) -> nn.Module:
    """Return the model that clients train, with the layers hidden, norm and output."""
    with seeded(seed):
        layers = (nn.Linear(_SIDE**2, 8), nn.BatchNorm1d(8), nn.Linear(8, _CLASSES))
    named = dict(zip(("hidden", "norm", "output"), layers, strict=True))
    return nn.Sequential(OrderedDict[str, nn.Module]({"flatten": nn.Flatten(), **named}))


class _Client(Client):
    def training_data(self) -> Images:
        rng, task = np.random.default_rng(self.index), TASKS[self.index]
        images = rng.integers(0, 60, (_SAMPLES, 1, _SIDE, _SIDE))
        labels = np.arange(_SAMPLES) % _CLASSES
        images[:, :, 2 * task : 2 * task + 2] += 60 + 60 * labels[:, None, None, None]
        return torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels)

    test_data = training_data

    def features(self) -> NDArray[np.float32]:
        return self.training_data()[0].flatten(1).numpy().astype(np.float32)

    def model(self) -> nn.Module:
        return initial_model()

    def training_settings(self) -> TrainingSettings:
        return TrainingSettings("sgd", learning_rate=0.02, batch_size=4, local_epochs=1)


class _Grid(InProcessGrid):
    """The clients, of which some fail in round 2; nodes and replies in an order, 1 or -1."""

    def __init__(self, failing: Collection[int] = (), order: int = 1) -> None:
        def open_client(message: Message, context: Context) -> Client:
            now = protocol.setting(message, protocol.SERVER_ROUND, 0)
            client, kind = _Client(message, context), message.metadata.message_type
            if (kind, now) == (protocol.TRAIN, _DISTURBED) and client.index in failing:
                self.failed.add(client.index)
                raise RuntimeError("this client fails on purpose")
            return client

        app, self.order, self.failed = ClientApp(mods=[mask_mod]), order, set[int]()
        answer_queries(app, open_client)
        answer_training(app, open_client)
        clients = range(len(TASKS))[::order]
        super().__init__(app, [{"partition-id": client} for client in clients], {})

    def send_and_receive(self, *asked: Any, **options: Any) -> Iterable[Message]:
        return list(super().send_and_receive(*asked, **options))[:: self.order]


def _outcome(strategy: ClusteredStrategy, grid: _Grid) -> dict[str, Any]:
    """Train, check the result, and return what has to be the same in another run."""
    first, config = ArrayRecord(initial_model().state_dict()), ConfigRecord({protocol.SEED: 0})
    result = strategy.start(grid, first, _ROUNDS, 60, config, config)
    forms = {n: (a.shape, a.dtype) for n, a in protocol.to_arrays(first).items()}
    models = [protocol.to_arrays(model) for model in protocol.unpack_models(result.arrays)]
    for name, array in ((name, array) for model in models for name, array in model.items()):
        form = array.shape, array.dtype
        _check(form == forms.get(name), f"a model has {name} of {form}, not {forms.get(name)}")
        _check(bool(np.isfinite(array).all()), f"{name} of a model is not finite")
    tested = [report.tested for report in strategy.reports]
    for found in ({*strategy.model_of_client}, {*tested[-1]}):
        _check(len(found) == len(TASKS), f"only clients {found} have a model, or a score")
    arrays = [{name: array.tobytes() for name, array in model.items()} for model in models]
    return {"clusters": strategy.clusters.of_client, "scores": tested, "models": arrays}


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise AssertionError(f"{problem}.")
