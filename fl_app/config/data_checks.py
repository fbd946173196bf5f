"""Checks that models, features and strategies suit the samples of a data set."""

from contextlib import suppress
from dataclasses import replace
from typing import cast

from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from clients.features.compute import feature_map
from clients.features.dimensions import compared_dimension
from clients.features.user_features import check_features_are_per_sample, random_samples
from clients.private_models import check_private_model
from clients.training.losses import check_user_loss, check_user_metric
from clients.training.train import as_pixels
from fl_app.config.rules import shares_eigenvectors
from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import PROVIDERS, Setting, check_strategy, runnable_strategies
from fl_app.config.tuning import AS_TASKS
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.samples import SampleKind, are_images, described, sample_word
from fl_core.data.settings import REAL_DEVICES
from fl_core.extras import MissingExtraError, need_extra
from fl_core.models.build import build_model
from fl_core.models.model_file import ModelCard
from fl_core.models.user_model import check_model
from fl_core.options import BY_STRATEGY
from fl_core.partitions.federation import Federation
from fl_core.user_code import is_import_path
from strategies.catalogue import parameters, system_of


def check_samples(config: Config, kind: SampleKind, federation: Federation | None = None) -> None:
    """Refuse what does not suit samples, or lacks a package or file, by a ValueError or OSError.

    The first samples of a `federation` are tried, by default random ones of this kind.
    """
    config = config.for_samples(kind)
    known = config
    if config.num_clusters in (AS_TASKS, BY_STRATEGY) and not federation:
        known = replace(config, num_clusters=config.num_tasks)
    known, _ = runnable_strategies(Setting(known, cast(Dataset, kind), config.seed, federation))
    config = replace(config, strategy=known.strategy)
    samples = random_samples(kind.sample_shape, is_float=kind.is_float)
    if federation:
        samples = federation.dataset.train_samples[:3]
    if kind.is_regression and config.attack == "label-flip":
        raise ValueError(
            'attack is "label-flip", but the label to predict is a number, not a class: choose '
            "another attack."
        )
    _check_model_can_be_saved(config, kind)
    if config.training_epsilon and config.dataset != REAL_DEVICES:  # devices check it themselves
        need_extra("opacus", "training-epsilon", "set it to 0")
    _check_model(config, kind, samples)
    if config.loss:
        check_user_loss(config.loss, kind.num_classes, is_regression=kind.is_regression)
    check_user_metric(config.metric, kind.num_classes, is_regression=kind.is_regression)
    if shares_eigenvectors(config.strategy):
        _check_num_eigenvectors(config, kind)
        feature_map(config.features)
        if is_import_path(config.features):
            check_features_are_per_sample(config.features, samples)
    for name in config.strategy:
        clustering = system_of(name).clustering
        for package in clustering.needs_packages:
            what = f"the clustering {clustering.name} ({name})"
            need_extra(package, what, "use another clustering")
        setting = Setting(known, cast(Dataset, kind), config.seed, federation)
        if "encoder" in parameters(clustering):
            _check_encoder(name, kind)
            if config.encoder.endswith(".safetensors"):  # it needs no training
                PROVIDERS["encoder"](setting)
        check_strategy(name, setting)


def _check_model_can_be_saved(config: Config, kind: SampleKind) -> None:
    """Refuse samples that the card of a saved model cannot describe, by a ValueError."""
    names = tuple(str(label) for label in range(kind.num_classes))
    if isinstance(kind, Dataset | Agreement):
        names = kind.class_names
    try:
        ModelCard(config.model, kind.sample_shape, names, strategy="", cluster=0, num_rounds=0)
    except ValueError as error:
        raise ValueError(
            f"models of {config.dataset} could not be saved: {error}; give smaller samples, fewer "
            "classes, or other names."
        ) from error


def _check_model(config: Config, kind: SampleKind, samples: Tensor) -> None:
    model = build_model(config.model, kind.sample_shape, kind.num_classes, config.seed)
    if not is_import_path(config.model):
        return
    pixels = as_pixels(samples)
    check_model(config.model, model, pixels, kind.num_classes)
    if config.training_epsilon:
        layers = model.modules()
        if any(isinstance(one, _NormBase) and one.track_running_stats for one in layers):
            raise ValueError(
                f'model is "{config.model}", which keeps statistics of batches, but '
                f"training-epsilon is {config.training_epsilon:g}, and noise is for each "
                f"{sample_word(kind)} by itself: use group or layer normalisation, or set "
                "training-epsilon to 0."
            )
        with suppress(MissingExtraError):  # a server of devices may lack Opacus
            check_private_model(config.model, model, pixels, config.training_epsilon)


def _check_encoder(strategy: str, kind: SampleKind) -> None:
    if not are_images(kind.sample_shape, is_float=kind.is_float):
        raise ValueError(
            f"strategy names {strategy}, but its encoder takes images, grey or in colour, of "
            f"bytes, and these samples are {described(kind.sample_shape, is_float=kind.is_float)}: "
            "leave that strategy out, or use pca-km-hc."
        )


def _check_num_eigenvectors(config: Config, kind: SampleKind) -> None:
    """Refuse more eigenvectors, or singular vectors, than features have dimensions."""
    for name in config.strategy:
        clustering = system_of(name).clustering
        field = parameters(clustering).get("num_eigenvectors")
        features = "raw" if clustering.compares_raw else config.features
        dimension = compared_dimension(
            features,
            kind.sample_shape,
            is_float=kind.is_float,
            is_private=config.pre_round_epsilon > 0,
        )
        if field and (count := config.for_strategies(name).eigenvectors(field.default)) > dimension:
            raise ValueError(
                f"num-eigenvectors is {count}, but {features} features of these "
                f"{sample_word(kind)}s have {dimension} dimensions: choose 1 to {dimension}."
            )
