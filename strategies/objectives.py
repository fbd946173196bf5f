"""Local objectives: what a client optimises, and what of its model it keeps for itself.

Here is what a server must know of each: its options, which clients are told, and which arrays it
never sees again. What clients do is in `clients/training/gradient_terms.py`, by the same name.

T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020 (FedProx);
T. Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021;
M. G. Arivazhagan et al., "Federated Learning with Personalization Layers", 2019 (FedPer);
L. Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021 (FedRep); X. Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from flwr.app import ConfigRecordValues

from fl_core.messages import protocol
from fl_core.models.layers import LAST, LAYER_NAMES, named_layers
from fl_core.options import COUNT, number, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LocalObjective:
    """What a client optimises.

    Attributes
    ----------
    name : str
        By which a configuration names it, and a server tells clients of it.
    keeps_state : bool
        Whether a client keeps something of its own from round to round.
    may_be_noisy : bool
        Whether `training-epsilon` covers all that depends on a client's samples, test scores of
        what it keeps among them.
    """

    name: ClassVar[str] = ""
    keeps_state: ClassVar[bool] = False
    may_be_noisy: ClassVar[bool] = True

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the layers that stay at the clients, of a model whose arrays have these names.

        Raises
        ------
        ValueError
            If the model has no such layer, or no other one.
        """
        return ()

    def told(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return the values that every message carries to clients, for a model of these names.

        The objective's name, its fields with `-` for `_`, and the private layers.
        """
        own = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        layers = list(self.private_layers_of(names))
        private = {protocol.PRIVATE_LAYERS: layers} if layers else {}
        return {protocol.OBJECTIVE: self.name, **own, **private}


@dataclass(frozen=True)
class Plain(LocalObjective):
    """Minimise the loss on the client's own samples, from the model received: FedAvg's."""

    name: ClassVar[str] = "plain"

    def told(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return nothing: it is what clients do that are told nothing."""
        return {}


@dataclass(frozen=True)
class Prox(LocalObjective):
    """FedProx (equation 2): add μ/2 ‖w − w_t‖², w_t the model received."""

    name: ClassVar[str] = "prox"
    prox_weight: float = option(
        1.0,
        number(float, 0),
        "μ, how strongly a client is pulled back to the model that it was sent; the paper's for "
        "MNIST, whose authors try 0.001, 0.01, 0.1, 0.5 and 1",
    )


@dataclass(frozen=True)
class Ditto(LocalObjective):
    """Ditto (Algorithm 1): beside the shared model w, each client keeps a model v of its own.

    In each round w is trained as usual, and v on the loss and λ/2 ‖v − w_t‖², w_t the model
    received. v is what is tested and kept. It starts as the first model that its client receives.
    """

    name: ClassVar[str] = "ditto"
    keeps_state: ClassVar[bool] = True
    may_be_noisy: ClassVar[bool] = False
    ditto_weight: float = option(
        1.0,
        number(float, 0),
        "λ, how strongly a personal model is pulled to the shared one; 1 as in the authors' "
        "scripts for Fashion-MNIST; 0: not at all",
    )


@dataclass(frozen=True)
class PrivateLayers(LocalObjective):
    """FedPer: base layers are shared, personalization layers stay at the client.

    All are trained together. The first layers instead of the last ones make it LG-FedAvg (P. P.
    Liang et al., 2020).
    """

    name: ClassVar[str] = "private-layers"
    keeps_state: ClassVar[bool] = True
    private_layers: str = option(
        LAST,
        LAYER_NAMES,
        f"layers that never leave a client; `{LAST}`: the last one, as FedRep's authors have it "
        "for FedPer and FedRep",
    )

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that are named."""
        return named_layers("private-layers", self.private_layers, names)


@dataclass(frozen=True)
class PrivateHead(PrivateLayers):
    """FedRep (Algorithm 1): first the private head is trained, then the shared body beneath it."""

    name: ClassVar[str] = "private-head"
    may_be_noisy: ClassVar[bool] = False
    head_epochs: int = option(
        10, COUNT, "passes over the samples for the head alone, with the body's weights as received"
    )
    body_epochs: int = option(
        1,
        COUNT,
        "passes for the body, after the head's; these two take the place of `local-epochs`, and "
        "are those of the authors' script for CIFAR-10 with two classes a client; most others have "
        "5",
    )


@dataclass(frozen=True)
class PrivateNorms(LocalObjective):
    """FedBN: norm layers stay at the client, their running statistics among them.

    Attributes
    ----------
    norm_layers : str
        Their names, separated by commas: see `norm_layers`.
    """

    name: ClassVar[str] = "private-norms"
    keeps_state: ClassVar[bool] = True
    norm_layers: str

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the norm layers."""
        return named_layers("norm-layers", self.norm_layers, names)


def norm_layers(model: nn.Module, model_name: str = "the model") -> str:
    """Return the names of a model's norm layers, of any of torch's kinds, by commas.

    Raises
    ------
    ValueError
        If it has none.
    """
    from torch.nn.modules import batchnorm, instancenorm, normalization  # noqa: PLC0415 - as above

    kinds = (
        batchnorm._NormBase,
        instancenorm._InstanceNorm,
        normalization.GroupNorm,
        normalization.LayerNorm,
        normalization.RMSNorm,
    )
    names = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    kept = [name for name in names if any(True for _ in model.get_submodule(name).state_dict())]
    if not kept:
        raise ValueError(
            f"private-norms (fedbn) keeps norm layers at the clients, but {model_name} has none: "
            "choose the model cnn-norm, or another objective."
        )
    return ",".join(kept)
