"""A local objective: what both sides know of it, and what a client needs to train by it.

A server reads its options, sends its name and options to clients, and learns what stays at the
clients and what travels beside the model; a client builds it from a message, and trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from flwr.app import ArrayRecord, ConfigRecordValues

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays

if TYPE_CHECKING:
    import torch
    from torch import nn

GradientTerm = Callable[[], None]
"""Adds something to a model's gradients: called between `backward` and the optimizer's step."""


def no_term() -> None:
    """Add nothing to gradients."""


def proximal_term(
    model: nn.Module, weight: float, anchor: Sequence[torch.Tensor] | None = None
) -> GradientTerm:
    """Return a function that adds the gradient of weight/2 ‖w − anchor‖² to a model's.

    `anchor` has one tensor for each of the model's parameters; by default, their present values.
    With weight 0 not a bit is changed.
    """
    if not weight:
        return no_term
    import torch  # noqa: PLC0415 - it takes a second, and a server needs none

    there = weights_of(model) if anchor is None else anchor

    @torch.no_grad()
    def add() -> None:
        for parameter, place in zip(model.parameters(), there, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - place, alpha=weight)

    return add


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    """Return copies of a model's parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


class Fit(Protocol):
    """The usual training of a client; for objectives that only call it, a function will do."""

    def __call__(
        self, model: nn.Module, add_term: GradientTerm = no_term, epochs: int | None = None
    ) -> float:
        """Train a model's parameters that require a gradient, and return its mean loss.

        `add_term` is called between `backward` and each step; by default, epochs are as usual.
        """


class Loop(Fit, Protocol):
    """The parts of the usual training, for an objective that puts them together otherwise."""

    settings: Any  # with `optimizer`, `learning_rate`, and the other options of training

    def batches(self, epochs: int | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield samples, float32 (n, …), and labels, (n,), in the usual order, of all epochs."""

    @property
    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all samples, as they are stored, and labels, (n,)."""

    def losses(self, model: nn.Module) -> torch.Tensor:
        """Return a model's loss on each sample, (n,), as in a test, without gradients."""

    def fit_weighted(self, model: nn.Module, weights: torch.Tensor) -> float:
        """Train as usual, each sample's loss times its weight, (n,); return the mean product."""

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, a scalar, of a model's outputs, (n, …), for n samples."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the usual optimizer of a model's parameters."""


class PersonalStore(Protocol):
    """What a client stores for itself from round to round."""

    def load(self) -> ArrayRecord | None:
        """Return the stored arrays; None if there are none yet."""

    def save(self, arrays: ArrayRecord) -> None:
        """Store arrays in the place of those before."""


@dataclass
class LocalTraining:
    """What a client hands to its objective."""

    fit: Fit
    store: PersonalStore
    private_layers: tuple[str, ...] = ()  # those that stay at the client
    # What travels beside the model, by name: as it came, and after the training as it is to go
    beside: dict[str, torch.Tensor] = field(default_factory=dict)
    # The same for each model, where there are several
    besides: list[dict[str, torch.Tensor]] = field(default_factory=list)

    @property
    def loop(self) -> Loop:
        """Return the parts of the training; a ValueError if this client only has a function."""
        if not hasattr(self.fit, "batches"):
            raise ValueError(
                "this local objective trains by a loop of its own: hand train_by_objective a "
                "clients.training.train.UsualTraining in the place of a function."
            )
        return cast(Loop, self.fit)

    def load(self) -> dict[str, torch.Tensor] | None:
        """Return what this client stored in an earlier round, on the CPU; None without it."""
        stored = self.store.load()
        return None if stored is None else dict(stored.to_torch_state_dict())

    def load_into(self, model: nn.Module) -> None:
        """Give a model the state that this client stored in an earlier round, if any."""
        if (stored := self.load()) is not None:
            model.load_state_dict(stored)

    def last_epoch_loss(self, losses: Sequence[tuple[torch.Tensor, int]]) -> float:
        """Return the loss per sample of the last epoch, from each batch's mean loss and size."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        batches = len(losses) // self.loop.settings.local_epochs
        means, sizes = zip(*losses[-batches:], strict=True)
        weights = torch.tensor(sizes, dtype=torch.float64)
        return float(torch.stack(means).cpu().double() @ weights / weights.sum())

    def save(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Store tensors in the place of those before; the class must say `has_state`."""
        if self.private_layers:
            raise ValueError("an objective that has private layers cannot save a state: drop one.")
        self.store.save(ArrayRecord(dict(tensors)))


@dataclass(frozen=True)
class LocalObjective:
    """What a client optimises: FedAvg's objective, unless a method says otherwise.

    The server calls `private_layers_of`, `first_beside`, `combine_beside` and `common_beside`, a
    client `train` and `personalise`. PyTorch is imported in these two only: a server may have none.
    """

    name: ClassVar[str] = ""  # of one in `OBJECTIVES`; others go by their import path
    has_state: ClassVar[bool] = False  # whether a client stores something from round to round
    # Whether `training-epsilon` covers all that depends on a client's samples: a model that is
    # trained beside the shared one, and then tested, has no noise.
    may_be_noisy: ClassVar[bool] = False
    assumes_sgd: ClassVar[bool] = False  # without momentum
    unused_options: ClassVar[frozenset[str]] = frozenset()  # of training, by run-config key
    # Whether a client trains all clusters' models, and tests a mixture of them: see `train_several`
    trains_several: ClassVar[bool] = False
    uses_last_layer: ClassVar[bool] = False  # and takes it for the one of the outputs
    # Whether clients send back what travels beside the model
    returns_beside: ClassVar[bool] = True

    @classmethod
    def sent_name(cls) -> str:
        """Return the name by which messages call it."""
        is_ours = cls.__module__.startswith("fl_core.")
        return cls.name if is_ours else f"{cls.__module__}:{cls.__qualname__}"

    @property
    def is_personal(self) -> bool:
        """Return whether another model than the received one is tested and saved."""
        return type(self).personalise is not LocalObjective.personalise

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the layers that stay at the clients, of a model with arrays of these names."""
        return ()

    def first_beside(self, model: NDArrays) -> NDArrays:
        """Return the arrays that first travel beside a cluster's model, given its first values.

        Clients send back arrays of the same names, shapes and types, if it `returns_beside`. They
        are combined as models are, to the cluster's next ones.
        """
        return {}

    def check_beside(self, sent: NDArrays) -> None:
        """Raise a ValueError for impossible numbers that came beside one of several models."""

    def combine_beside(self, before: NDArrays, combined: NDArrays, share: float) -> NDArrays:
        """Return a cluster's next arrays, from those sent and what the received ones combine to.

        `share` is that of the cluster's clients that have trained in this round, in (0, 1].
        """
        return combined

    def common_beside(self, models: Sequence[NDArrays], trained: Sequence[int]) -> NDArrays:
        """Return arrays that are to travel beside all clusters' next models: by default, none.

        They are made of these models, and of how many clients `trained` each in this round, which
        some did.
        """
        return {}

    def message_entries(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return the entries of each message: its name, fields with `-` for `_`, private layers."""
        options = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        layers = list(self.private_layers_of(names))
        private = {protocol.PRIVATE_LAYERS: layers} if layers else {}
        return {protocol.OBJECTIVE: self.sent_name(), **options, **private}

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train at the client, and return the mean loss.

        `model` has the received weights; its final state leaves the client, but for
        `local.private_layers`, and so does what is then in `local.beside`.
        """
        return local.fit(model)

    def train_several(self, models: Sequence[nn.Module], local: LocalTraining) -> float:
        """Train the models of all clusters at the client, and return the mean loss.

        All leave the client, and so does what is then in `local.besides`. Beside each model must be
        its `share` at this client, (1,); the sum of the shares is 1.
        """
        raise NotImplementedError

    def mixture(self, models: Sequence[nn.Module], local: LocalTraining) -> Sequence[float]:
        """Return the share of each model's predictions in those that this client tests."""
        raise NotImplementedError

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Make a model with the received weights the one that the client tests and saves.

        The next round does not see it: what is to last is stored by `train`.
        """
