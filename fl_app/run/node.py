"""The base class of simulated clients and devices."""

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray
from torch import nn

from clients.accelerator import torch_device
from clients.client import Client
from clients.features.compute import FeatureMap, feature_map
from clients.privacy import Promise
from clients.settings import TrainingSettings
from clients.signatures.uninformative import why_little_to_compare
from fl_app.config.allowed_code import check_code_allowed, objective_paths
from fl_app.config.rules import field_of
from fl_app.config.run_config import Config, parse_config
from fl_app.config.tuning import read_tuned_values
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.folders import cache_dir
from fl_core.data.samples import sample_word
from fl_core.data.scaling import ColumnStatistics
from fl_core.messages import protocol
from fl_core.models.build import empty_model
from fl_core.objectives.objective import LocalObjective
from strategies.catalogue import objective_class


def config_of(context: Context) -> Config:
    """Return the run's configuration, which is parsed and checked once per process."""
    return _parsed(json.dumps(dict(context.run_config)))


@lru_cache(maxsize=2)
def _parsed(run_config: str) -> Config:
    return parse_config(json.loads(run_config), at_client=True)


@lru_cache(maxsize=2)
def _feature_map(name: str, device: str) -> FeatureMap:
    return feature_map(name, cache_dir=cache_dir(), device=torch.device(device))


class Node(Client, ABC):
    """A client of this app, simulated or a device."""

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        self.config = config_of(context)
        check_code_allowed(self.config, context.node_config)
        self.device = torch_device(self.config.device)

    @property
    @abstractmethod
    def kind(self) -> Dataset | Agreement:
        """Return the shape of samples and the classes, which all clients share."""

    def features(self) -> NDArray[np.float32]:
        """Return the configured features of the training samples, float32 (n, d)."""
        images, _ = self.training_data()
        phi = _feature_map(self.config.for_samples(self.kind).features, self.device.type)
        found = phi(images.cpu()).numpy()
        if not found.any():
            what = sample_word(self.kind)
            raise ValueError(f"the client's features are all zero: check its {what}s.")
        return found

    def why_uninformative(self, features: NDArray[np.float32]) -> str:
        """Return why its features do not tell clients apart, or an empty text."""
        name = self.config.for_samples(self.kind).features
        samples = self.training_data()[0].cpu().numpy()
        return why_little_to_compare(name, samples, features, self.kind.column_names)

    def model(self) -> nn.Module:
        """Return the configured model without weights."""
        shape, classes = self.kind.sample_shape, self.kind.num_classes
        return empty_model(self.config.model, shape, classes, self.device)

    def training_settings(self) -> TrainingSettings:
        """Return the configured settings, with the values that the strategy tries (`tune`)."""
        tried = self.message.content.config_records[protocol.CONFIG].get(protocol.TUNED, "{}")
        values = {field_of(key): value for key, value in read_tuned_values(str(tried)).items()}
        return replace(self.config.training_settings(), **values)

    def user_objectives(self) -> list[type[LocalObjective]]:
        """Return those of the run's strategies, which the owner of this node allows."""
        return [objective_class(path) for path in objective_paths(self.config)]

    def promise(self) -> Promise:
        """Return the configured one, for the rounds of a strategy, and of all together."""
        return self.config.promise()

    def column_statistics(self) -> ColumnStatistics:
        """Return the statistics of the training samples; only devices are asked for them."""
        raise self._lacks("column_statistics")

    def save_model(self) -> bool:
        """Store the final model; return whether it did. A simulated client does not."""
        return False

    def deploy_model(self) -> bool:
        """Use the model of a strategy; return whether it did. A simulated client does not."""
        return False

    def tested_model(self) -> RecordDict:
        """Return the model that this client tests, which only simulated clients send."""
        raise ValueError("the model of a device stays on the device.")

    @abstractmethod
    def save_state(self) -> RecordDict:
        """Save this client's private state for a run that is resumed."""

    @abstractmethod
    def restore_state(self) -> RecordDict:
        """Restore the private state that this client has sent for a checkpoint."""
