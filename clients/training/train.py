"""Local training and evaluation on tensors, with no data loader and no per-sample Python."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's convention

from clients.settings import TrainingSettings
from clients.training.losses import Measure, each_loss, loss_of
from fl_core.models.build import seeded
from fl_core.objectives.objective import GradientTerm, no_term

logger = logging.getLogger(__name__)


class Scores(NamedTuple):
    """How well a model does on a client's test samples; shares are in [0, 1].

    Macro-F1 and balanced accuracy are plain means over the classes of the test samples, of F1 (2 ·
    right / (labelled + predicted as the class)) and of the share that was recognised.
    """

    loss: float  # mean cross-entropy, or a user-defined loss
    accuracy: float
    macro_f1: float
    balanced_accuracy: float
    user_metric: float | None = None  # a user-defined metric


class Errors(NamedTuple):
    """How far a model is off the numbers of a client's test samples; R² is scikit-learn's."""

    loss: float  # mean squared error, or a user-defined loss
    rmse: float
    mae: float
    r2: float | None  # 1 − squared error / squared distance from the test samples' mean
    user_metric: float | None = None


class OtherTest(NamedTuple):
    """A second test of the same model, which shares samples with the first one."""

    shared: torch.Tensor  # the indices of the first test's samples that are in this one, shape (s,)
    images: torch.Tensor  # all others of this one, shape (n, …)
    labels: torch.Tensor


def as_pixels(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images, shape (n, C, H, W), as float32 in [0, 1]; float32 as it is."""
    if images.dtype == torch.float32:
        return images
    return images.to(torch.float32).div_(255)


def build_optimizer(settings: TrainingSettings, model: nn.Module) -> torch.optim.Optimizer:
    """Return a fresh optimizer over the model's parameters."""
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), rate, weight_decay=decay, fused=True)
    return torch.optim.SGD(
        model.parameters(), rate, momentum=settings.momentum, weight_decay=decay, fused=True
    )


def train(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    generator: torch.Generator,
    add_term: GradientTerm = no_term,
) -> float:
    """Train `model` in place on a client's samples; return the last epoch's mean loss, or NaN.

    Parameters
    ----------
    model : nn.Module
        Takes pixels in [0, 1] and returns one logit per class; of a number, the number, (n, 1).
    images, labels : torch.Tensor
        On the model's device: uint8, (n, C, H, W); int64 classes or float32 numbers, (n,).
    generator : torch.Generator
        Draws the order of the samples in each epoch, on the CPU.
    add_term : callable
        Called in each step after `backward`: a local objective adds its gradient.
    """
    model.train()
    loss_function = loss_of(settings.loss, labels)
    optimizer = build_optimizer(settings, model)
    lengths: list[int] = []
    losses: list[torch.Tensor] = []
    for _ in range(settings.local_epochs):
        lengths, losses = [], []
        for samples, truth in epoch_batches(images, labels, settings.batch_size, generator):
            optimizer.zero_grad()
            loss = loss_function(model(samples), truth)
            loss.backward()  # type: ignore[no-untyped-call]
            add_term()
            optimizer.step()
            lengths.append(len(truth))
            losses.append(loss.detach())
    if not losses:
        return math.nan
    sizes = torch.tensor(lengths, dtype=torch.float64)
    return float(torch.stack(losses).cpu().double() @ sizes / sizes.sum())


def epoch_batches(
    images: torch.Tensor, labels: torch.Tensor, size: int, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of an epoch, in an order that `generator` draws, samples as float32."""
    order = torch.randperm(len(labels), generator=generator).to(images.device)
    for batch in split_batches(order, size):
        # Measured: gathering bytes and converting a batch, which stays in the cache, is 5 %
        # faster in all than converting and shuffling all samples first.
        yield as_pixels(images[batch]), labels[batch]


class UsualTraining:
    """The usual training of a client (`fl_core.objectives.objective.Loop`), on its samples.

    Each call draws again, from the same seed, the order of the samples and what a model draws, such
    as dropout. Samples and labels, as in `train`, and settings are read when they are needed.
    """

    def __init__(
        self,
        read_data: Callable[[], tuple[torch.Tensor, torch.Tensor]],
        read_settings: Callable[[], TrainingSettings],
        seed: int,
    ) -> None:
        self._read_data, self._read_settings, self._seed = read_data, read_settings, seed

    @cached_property
    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the samples and labels."""
        return self._read_data()

    @cached_property
    def settings(self) -> TrainingSettings:
        """Return how the client trains."""
        return self._read_settings()

    def __call__(
        self, model: nn.Module, add_term: GradientTerm = no_term, epochs: int | None = None
    ) -> float:
        """Train a model by `train`."""
        images, labels = self.data
        settings = self.settings if epochs is None else replace(self.settings, local_epochs=epochs)
        with seeded(self._seed, images.device):
            generator = torch.Generator().manual_seed(self._seed)
            return train(model, images, labels, settings, generator, add_term)

    def batches(self, epochs: int | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches that `train` would take."""
        generator = torch.Generator().manual_seed(self._seed)
        for _ in range(self.settings.local_epochs if epochs is None else epochs):
            yield from epoch_batches(*self.data, self.settings.batch_size, generator)

    def losses(self, model: nn.Module) -> torch.Tensor:
        """Return a model's loss on each sample, (n,), as in a test."""
        images, labels = self.data
        with torch.no_grad():
            return each_loss(self.settings.loss, _outputs(model, images), labels)

    def fit_weighted(self, model: nn.Module, weights: torch.Tensor) -> float:
        """Train a model by `train`'s batches, each sample's loss times its weight, (n,).

        Return the mean product of the last epoch; without an epoch, NaN.
        """
        (images, labels), total = self.data, math.nan
        places = torch.arange(len(labels), device=images.device)
        with seeded(self._seed, images.device):
            generator = torch.Generator().manual_seed(self._seed)
            optimizer = self.optimizer(model)
            model.train()
            for _ in range(self.settings.local_epochs):
                products = []
                for samples, batch in epoch_batches(
                    images, places, self.settings.batch_size, generator
                ):
                    optimizer.zero_grad()
                    losses = each_loss(self.settings.loss, model(samples), labels[batch])
                    products.append(losses * weights[batch])
                    products[-1].mean().backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                total = float(torch.cat(products).detach().double().mean())
        return total

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the configured loss."""
        return loss_of(self.settings.loss, labels)(outputs, labels)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the configured optimizer."""
        return build_optimizer(self.settings, model)


def split_batches(order: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    """Return an epoch's batches; a single last sample, which no batch norm takes, joins another."""
    batches = torch.split(order, size)
    if size == 1 or len(batches) == 1 or len(batches[-1]) > 1:
        return batches
    return (*batches[:-2], torch.cat(batches[-2:]))


@torch.inference_mode()
def evaluate(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, loss: str = ""
) -> Scores | Errors:
    """Test a model on a client's samples, in one pass; `loss` is as in `loss_of`."""
    return _found(_outputs(model, images), labels, loss)


@torch.inference_mode()
def evaluate_both(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    other: OtherTest | None,
    loss: str = "",
    measure: Measure | None = None,
) -> tuple[Scores | Errors, Scores | Errors | None]:
    """Test a model as `evaluate` does, and by another test; `measure` is as in `measure_of`."""
    outputs = _outputs(model, images)
    found = _found(outputs, labels, loss, measure)
    if other is None:
        return found, None
    said, truth = outputs[other.shared], labels[other.shared]
    if len(other.labels):
        said = torch.cat([said, _outputs(model, other.images)])
        truth = torch.cat([truth, other.labels])
    return found, _found(said, truth, loss, measure)


@torch.inference_mode()
def each_score(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, loss: str = ""
) -> tuple[NDArray[np.uint8] | NDArray[np.float32], float]:
    """Return a model's score of each sample, shape (n,), and its loss on all, in one pass.

    A score is 1 or 0, right or wrong, uint8; of a number, how far the model is off, float32.
    """
    outputs = _outputs(model, images)
    whole = _found(outputs, labels, loss).loss
    if labels.is_floating_point():
        off: NDArray[np.float32] = (outputs.squeeze(1) - labels).abs().float().cpu().numpy()
        return off, whole
    right: NDArray[np.uint8] = (outputs.argmax(dim=1) == labels).byte().cpu().numpy()
    return right, whole


def _outputs(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Return a model's outputs for samples, shape (n, outputs)."""
    model.eval()
    # So few at once are in the cache. To the bit as in one go.
    return torch.cat([model(as_pixels(part)) for part in torch.split(images, 250)])


def _found(
    outputs: torch.Tensor, labels: torch.Tensor, loss: str, measure: Measure | None = None
) -> Scores | Errors:
    user_loss = float(loss_of(loss, labels)(outputs, labels)) if loss else None
    found: Scores | Errors
    if labels.is_floating_point():
        found = _errors(outputs.squeeze(1).double().cpu(), labels.double().cpu(), user_loss)
    else:
        found = _scores(outputs, labels, user_loss)
    if measure is None:
        return found
    try:
        return found._replace(user_metric=measure(outputs, labels))
    except ValueError as error:  # of samples of one class, say, many a metric is undefined
        logger.warning("%s", error)
        return found


def _scores(outputs: torch.Tensor, labels: torch.Tensor, loss: float | None) -> Scores:
    """Return how well outputs classify; `loss` is a user-defined one."""
    if loss is None:
        loss = float(F.cross_entropy(outputs.double(), labels))
    num_classes = outputs.shape[1]
    guessed, truth = outputs.argmax(dim=1).cpu(), labels.cpu()
    right, labelled, predicted = (
        torch.bincount(of_class, minlength=num_classes).double()
        for of_class in (truth[guessed == truth], truth, guessed)
    )
    there = labelled > 0
    return Scores(
        loss,
        int(right.sum()) / len(labels),
        macro_f1=float((2 * right / (labelled + predicted))[there].mean()),
        balanced_accuracy=float((right / labelled)[there].mean()),
    )


def _errors(numbers: torch.Tensor, truths: torch.Tensor, loss: float | None) -> Errors:
    """Return how far predicted numbers, float64 (n,), are off; `loss` is a user-defined one."""
    off = numbers - truths
    squared, r2 = float(off.square().sum()), None
    if len(truths) > 1:
        constant = bool((truths == truths[0]).all())
        spread = float((truths - truths.mean()).square().sum())
        r2 = float(squared == 0) if constant else 1 - squared / spread
    mean = squared / len(truths)
    return Errors(mean if loss is None else loss, math.sqrt(mean), float(off.abs().mean()), r2)
