"""A client's options, which are read without PyTorch, so a wrong one is refused at once."""

from dataclasses import dataclass
from typing import Any

from fl_core.data.settings import DATASETS, PLUS
from fl_core.options import (
    BY_STRATEGY,
    COUNT,
    POSITIVE,
    NotAllowedError,
    Rule,
    number,
    one_of,
    option,
    or_words,
)
from fl_core.relevance import USUAL_EIGENVECTORS
from fl_core.user_code import IMPORT_PATH_OR_EMPTY, or_import_path

AUTO = "auto"
CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True)
class AcceleratorSettings:
    """Where clients compute."""

    device: str = option(
        AUTO,
        one_of((AUTO, CPU, CUDA)),
        f"where clients compute: `{CUDA}`: on a GPU; `{AUTO}`: on one if there is one for them, "
        "docs/scale.md",
    )


ATTACKS = ("none", "sign-flip", "scaled-update", "zero-model", "label-flip", "random-signature")


@dataclass(frozen=True)
class AttackSettings:
    """What malicious clients do."""

    attack: str = option(
        "none", one_of(ATTACKS), "what they send; `random-signature`: in the pre-round"
    )
    malicious: float = option(
        0.2,
        number(float, 0, 1, low_open=True, high_open=True),
        "share of clients that attack",
        needs="attack",
    )
    attack_scale: float = option(
        10.0,
        number(float, -1000, 1000),
        "factor by which `scaled-update` enlarges an update",
        needs="attack=scaled-update",
    )


FEATURES = ("hog", "raw", "fourier", "power-spectrum", "resnet18", "efficientnet-lite0")


@dataclass(frozen=True)
class FeatureSettings:
    """How clients see their samples."""

    features: str = option(
        AUTO,
        or_import_path(one_of((AUTO, *FEATURES))),
        f"`{AUTO}`: `hog` of images, `power-spectrum` of series, `fourier` of tables: "
        "docs/comparing-clients.md; `raw`: pixels, or the numbers of other samples; "
        "`efficientnet-lite0` comes with its weights, `resnet18`'s are downloaded; "
        "user-defined: docs/own-code.md",
    )


# What `auto` pre-trains on, by channels: the first whose images the clients do not have.
_AUTOMATIC = {1: ("fashion-mnist", "mnist"), 3: ("cifar100", "cifar10")}
_ORIGINS = {  # of images that have come into several data sets
    **{"mnist-5k": {"mnist"}, "rotated-mnist": {"mnist"}, "cifar20": {"cifar10", "cifar100"}},
    **{name: {"mnist", "emnist"} for name in ("emnist-balanced", "femnist", "mnist")},
}
WITHOUT_FILES = "mnist-5k"
# A folder of images is not among them: its name does not say which images it holds.
PRETRAINING_DATASETS = tuple(
    name for name, entry in DATASETS.items() if entry.known and not entry.has_group_tasks
)


def share_images(dataset: str, other: str) -> bool:
    """Return whether two data sets, by names that may be joined, have images of one origin."""
    first, second = (
        set().union(*(_ORIGINS.get(part, {part}) for part in name.split(PLUS)))
        for name in (dataset, other)
    )
    return not first.isdisjoint(second)


def automatic_source(dataset: str, channels: int) -> str:
    """Return the data set that `auto` pre-trains an encoder on, for clients with `dataset`."""
    sources = _AUTOMATIC[channels]
    return next((one for one in sources if not share_images(dataset, one)), sources[0])


def _parse_source(value: Any) -> str:
    if value in ("auto", *PRETRAINING_DATASETS) or str(value).endswith(".safetensors"):
        return str(value)
    raise NotAllowedError


SOURCE = Rule(
    f'a .safetensors file, "auto", or one of {", ".join(PRETRAINING_DATASETS)}', _parse_source
)


@dataclass(frozen=True)
class EncoderSettings:
    """What FLT's clients encode their images with."""

    encoder: str = option(
        "auto",
        SOURCE,
        f"`flt`: a file, or the data set to pre-train the encoder on (cached for the next run); "
        f"`auto`: `{_AUTOMATIC[1][0]}` for grey images, `{_AUTOMATIC[3][0]}` for colour, or "
        "another one if the clients have these",
    )


@dataclass(frozen=True)
class PrivacySettings:
    """What one sample can at most change of what its client shares."""

    pre_round_epsilon: float = option(
        0.0,
        number(float, 0, 100),
        "`spectral`: differential privacy of the pre-round by noise on the Gram matrix: smaller is "
        "more private; 0: none; docs/privacy.md has ARI against it",
    )
    training_epsilon: float = option(
        0.0,
        number(float, 0, 100),
        "differential privacy of all rounds of training together, by DP-SGD (Opacus); 0: none",
    )
    privacy_delta: float = option(
        1e-5,
        number(float, 0, 1, low_open=True, high_open=True),
        "δ of each of the two: well below one by the number of a client's samples",
    )
    training_clip: float = option(
        1.0,
        POSITIVE,
        "with `training-epsilon`: the length to which each sample's gradient is cut",
        needs="training-epsilon",
    )


@dataclass(frozen=True)
class SpectrumSettings:
    """How clients compare with each other."""

    num_eigenvectors: int | str = option(
        AUTO,
        or_words(COUNT, AUTO),
        f"leading eigenvectors that each client shares; `{AUTO}`: "
        + ", ".join(f"{k} with `{name}`" for name, k in USUAL_EIGENVECTORS.items())
        + ", 3 with `pacfl`; 30 for `efficientnet-lite0` and many small tasks",
    )
    relevance: str = option(
        BY_STRATEGY,
        or_words(one_of(USUAL_EIGENVECTORS), BY_STRATEGY),
        "how clients are compared; `missed-energy` is right in harder cases: "
        f"docs/comparing-clients.md; `{BY_STRATEGY}`: `missed-energy` with `fedkin`, otherwise "
        "`paper`",
    )


OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class TrainingSettings:
    """How a client trains."""

    optimizer: str = option("adam", one_of(OPTIMIZERS), "starts afresh in every round")
    learning_rate: float = option(0.001, POSITIVE, "step size of the optimizer")
    momentum: float = option(
        0.0, number(float, 0, 1, high_open=True), "for `sgd` only", needs="optimizer=sgd"
    )
    weight_decay: float = option(0.001, number(float, 0), "of the optimizer", default=0.0)
    loss: str = option(
        "",
        IMPORT_PATH_OR_EMPTY,
        "what a client minimises, as MODULE:NAME: `torch.nn.functional:huber_loss`, or "
        "user-defined, docs/own-code.md; empty: cross-entropy, or squared error of a number",
    )
    metric: str = option(
        "",
        IMPORT_PATH_OR_EMPTY,
        "what tests measure beside accuracy or RMSE, as MODULE:NAME: docs/own-code.md",
    )
    batch_size: int = option(32, COUNT, "samples in each step")
    local_epochs: int = option(2, COUNT, "passes over a client's samples in each round")
