"""Whether models, features and encoders suit the samples of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from clients.features.dimensions import compared_dimension
from fl_app.config.checks import shares_eigenvectors
from fl_app.config.run_config import Config
from fl_core.data.settings import SampleKind, are_images, described
from fl_core.options import key_of
from fl_core.own_code import is_own
from strategies.catalogue import parameters, system_of
from strategies.clusterings.flt import SignatureClustering
from strategies.objectives import Plain

if TYPE_CHECKING:  # PyTorch takes seconds: it is imported where it is needed
    from torch import Tensor, nn

    from fl_core.data.dataset import Dataset


def check_fits(config: Config, kind: SampleKind, samples: Tensor) -> None:
    """Refuse what such samples do not suit, a few of which are tried.

    Parameters
    ----------
    samples : Tensor, uint8 or float32, shape (n, …)
        At least two, of this kind.

    Raises
    ------
    ValueError
        If the model, the features or an encoder cannot take them, or there are more eigenvectors
        than features.
    """
    from clients.features.own_features import check_own_features  # noqa: PLC0415
    from clients.training.train import as_pixels  # noqa: PLC0415
    from fl_core.models.build import build_model  # noqa: PLC0415
    from fl_core.models.own_model import check_model  # noqa: PLC0415

    model = build_model(config.model, kind.image_shape, kind.num_classes, config.seed)
    if is_own(config.model):
        check_model(config.model, model, as_pixels(samples), kind.num_classes)
        _check_noise(config, model)
    if shares_eigenvectors(config.strategy):
        if is_own(config.features):
            check_own_features(config.features, samples)
        check_num_eigenvectors(config, kind)
    for name in config.strategy:
        if issubclass(system_of(name).clustering, SignatureClustering):
            _check_encoder(name, kind)


def _check_noise(config: Config, model: nn.Module) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm  # noqa: PLC0415

    if config.training_epsilon and any(isinstance(one, _BatchNorm) for one in model.modules()):
        raise ValueError(
            f'model is "{config.model}", which has batch normalisation, but training-epsilon is '
            f"{config.training_epsilon:g}, and noise is for each image by itself: use group or "
            "layer normalisation, or set training-epsilon to 0."
        )


def check_objectives(config: Config, kind: SampleKind) -> None:
    """Refuse local objectives whose layers the model for such samples does not have.

    Raises
    ------
    ValueError
        If it has no such layers, or no others.
    """
    names = [name for name in config.strategy if system_of(name).objective is not Plain]
    if not names:
        return
    from fl_app.config.systems import Setting, check_objective  # noqa: PLC0415

    # Only the kind of the samples matters for that.
    setting = Setting(config, cast("Dataset", kind), config.seed)
    for name in names:
        check_objective(name, setting)


def _check_encoder(strategy: str, kind: SampleKind) -> None:
    if not are_images(kind.image_shape, is_float=kind.is_float):
        raise ValueError(
            f"strategy names {strategy}, but its encoder takes images, grey or in colour, of "
            f"bytes, and these samples are {described(kind.image_shape, is_float=kind.is_float)}: "
            "leave that strategy out, or use pca-km-hc."
        )


def check_num_eigenvectors(config: Config, kind: SampleKind) -> None:
    """Refuse more eigenvectors, or singular vectors, than features have dimensions: a ValueError.

    A client with fewer images than eigenvectors has fewer of these, which is no error.
    """
    dimension = compared_dimension(
        config.features,
        kind.image_shape,
        is_float=kind.is_float,
        is_private=config.pre_round_epsilon > 0,
    )
    counts = {"num-eigenvectors": config.num_eigenvectors, **config.of_strategies}
    asked = {
        key_of(field)
        for name in config.strategy
        for field in parameters(system_of(name).clustering).values()
    }
    for key in ("num-eigenvectors", "principal-vectors"):
        if key in asked and counts[key] > dimension:
            raise ValueError(
                f"{key} is {counts[key]}, but {config.features} features of these images have "
                f"{dimension} dimensions: choose 1 to {dimension}."
            )
