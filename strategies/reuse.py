"""No training twice: what one depends on, as a hash, and how another takes its rounds over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fl_core.wire.protocol import NDArrays
from strategies.base import ClusteredStrategy
from strategies.engine.training import RoundReport, Training
from strategies.parts import is_ours


@dataclass(frozen=True)
class Finished:
    """A training that has ended, and the label of the strategy that did it."""

    label: str
    training: Training


@dataclass(eq=False)
class Trainings:
    """Finished trainings of one process.

    Attributes
    ----------
    by_hash : dict of Finished
        By a hash of what they depended on, see `depends_on`.
    """

    by_hash: dict[str, Finished] = field(default_factory=dict)

    def find(self, key: str) -> Finished | None:
        """Return the training that depended on the same, if there is one."""
        return self.by_hash.get(key)

    def keep(self, key: str, finished: Finished) -> None:
        """Let others find a training that has ended."""
        self.by_hash[key] = finished


@dataclass(eq=False, repr=False)
class ReusingStrategy(ClusteredStrategy):
    """A strategy that trains nothing which another one has trained with the same clients.

    If clusters stay as they were found and are those of a finished training, and all else that
    decides its rounds is the same, so are its models, to the last bit. They, the rounds' reports,
    bytes and seconds are then taken from there; the pre-round is its own. `training.same_as` has
    the other's label, and Flower's Result only the models.

    Parameters
    ----------
    finished : Trainings, optional
        Of strategies with the same clients and data; what is trained is added. By default, each
        strategy trains.
    label : str
        What the others call this one.
    """

    finished: Trainings | None = field(default=None, kw_only=True)
    label: str = field(default="", kw_only=True)

    def _run_rounds(self, grid: Grid, *told: Any) -> Result:
        training, finished = self.training, self.finished
        if finished is None:
            return super()._run_rounds(grid, *told)
        if self._is_decided():
            drawn = [self.seed, self.fraction_train, self.evaluate_every, self.fraction_evaluate]
            # FLT's clients answer how far their images have moved: a few bytes more than others'.
            answers = type(self.clustering).told_for_training.__qualname__
            settings = [self.aggregation, self.local, answers, *drawn, *told]
            training.depends_on = depends_on(training, settings)
            if (other := finished.find(training.depends_on)) is not None:
                for report in taken_over(training, other):
                    self.on_round(report)
                return Result()
        result = super()._run_rounds(grid, *told)
        if training.depends_on and not training.same_as:
            finished.keep(training.depends_on, Finished(self.label, training))
        return result

    def _is_decided(self) -> bool:
        """Return whether clusters and settings decide all rounds, none of which has been.

        Clients with names are devices, whose images may change. A client that keeps models of the
        pre-round is not sent them again. An aggregation of somebody's own may look at more of a
        round than who is with whom.
        """
        if not is_ours(type(self.aggregation)):
            return False
        conversation = self._conversation
        at_clients = conversation.models_at or conversation.roster.by_name
        begins = not self.training.reports
        return begins and self.clustering.stays and not self.secure_aggregation and not at_clients


def depends_on(training: Training, settings: Iterable[object]) -> str:
    """Return a hash of what decides the rounds of a training that begins; empty if nobody knows.

    Parameters
    ----------
    training : Training
        Who is with whom, and the models that they start from.
    settings : iterable
        All else, as far as it differs, by its class and its `repr`. One that has an address in it,
        which another object may have later, or that leaves numbers out, does not say what it is.
    """
    told = [f"{type(one).__module__}.{type(one).__qualname__} {one!r}" for one in settings]
    if any(" at 0x" in text or "..." in text for text in told):
        return ""
    models = [training.private, *training.models]
    digests = {id(model): _digest(model) for model in {id(m): m for m in models}.values()}
    said = [*told, training.per_client, sorted(training.clusters.of_client.items())]
    said += [digests[id(model)] for model in models]
    if training.per_client and training.clusters.neighbours is not None:
        near = training.clusters.neighbours
        said.append(sorted((client, sorted(own)) for client, own in near.items()))
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _digest(model: NDArrays) -> str:
    found = hashlib.sha256()
    for name, array in model.items():
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def taken_over(training: Training, other: Finished) -> Iterator[RoundReport]:
    """Yield a finished training's rounds as those of one that begins, and leave it its models."""
    finished, training.same_as = other.training, other.label
    training.hold(finished.models)
    training.num_examples = dict(finished.num_examples)
    training.identity, training.holders = finished.identity, set(finished.holders)
    training.seconds.train = finished.seconds.train
    training.seconds.evaluate = finished.seconds.evaluate
    for name in ("train_traffic", "evaluate_traffic", "server_traffic"):
        setattr(training, name, replace(getattr(finished, name)))
    more = training.bytes - finished.bytes
    for report in finished.reports:
        training.reports.append(replace(report, bytes=report.bytes + more))
        yield training.reports[-1]
