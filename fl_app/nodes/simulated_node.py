"""The clients of this app: what simulated ones and devices have in common, and a simulated one."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import threadpoolctl
import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import nn

from clients.accelerator import torch_device
from clients.attacks import flip_labels
from clients.client import Client, Images
from clients.features.compute import FeatureMap, feature_map
from clients.pre_round.uninformative import why_little_to_compare
from clients.privacy.mechanisms import Promise, Randomness
from clients.settings import CPU, TrainingSettings
from clients.training.train import OtherTest
from fl_app.config.allowed_code import refuse_unallowed
from fl_app.config.checks import field_of
from fl_app.config.run_config import Config, parse_config
from fl_app.config.tuning import tried_values
from fl_core.data.dataset import Dataset
from fl_core.data.folders import cache_dir
from fl_core.data.samples import sample_word
from fl_core.data.scaling import ColumnStatistics, Scaling
from fl_core.federation.federation import Federation, simulate_federation
from fl_core.models.build import empty_model
from fl_core.own.agreement import Agreement
from fl_core.own.own_samples import DATA
from fl_core.wire import protocol

_NOISE_STREAM = 0x5EC2E7


def config_of(context: Context) -> Config:
    """Return the run's configuration; it is read and checked once, not with every message.

    Raises
    ------
    ValueError
        If it is wrong.
    """
    return _parsed(json.dumps(dict(context.run_config)))


@lru_cache(maxsize=2)
def _parsed(run_config: str) -> Config:
    return parse_config(json.loads(run_config), at_client=True)


@lru_cache(maxsize=2)
def _feature_map(name: str, device: str) -> FeatureMap:
    return feature_map(name, cache_dir=cache_dir(), device=torch.device(device))


class Node(Client, ABC):
    """A client of this app, in a simulation or on a device, which say whose data it has.

    Attributes
    ----------
    config : Config
        The run's.
    device : torch.device
        Where its model and its samples are.

    Raises
    ------
    ValueError
        If the configuration is wrong, or asks for a GPU that is not there, or for code that the
        node's owner does not allow.
    """

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        self.config = config_of(context)
        refuse_unallowed(self.config, context.node_config)
        self.device = torch_device(self.config.device)

    @property
    @abstractmethod
    def kind(self) -> Dataset | Agreement:
        """Return the shape and the classes that all clients' samples have in common."""

    def features(self) -> NDArray[np.float32]:
        """Return the configured features of its training samples."""
        images, _ = self.training_data()
        phi = _feature_map(self.config.for_samples(self.kind).features, self.device.type)
        found = phi(images.cpu()).numpy()
        if not found.any():
            what = sample_word(self.kind)
            raise ValueError(f"the client's features are all zero: check its {what}s.")
        return found

    def why_uninformative(self, features: NDArray[np.float32]) -> str:
        """Return why its features say little of whom it is like; nothing if they may say more."""
        name = self.config.for_samples(self.kind).features
        samples = self.training_data()[0].cpu().numpy()
        return why_little_to_compare(name, samples, features, self.kind.column_names)

    def model(self) -> nn.Module:
        """Return the configured model, whose weights are still to be loaded."""
        shape, classes = self.kind.image_shape, self.kind.num_classes
        return empty_model(self.config.model, shape, classes, self.device)

    def training_settings(self) -> TrainingSettings:
        """Return the configured ones, or what the strategy tries in their place.

        Raises
        ------
        ValueError
            If it tries what cannot be tuned, or a value that is not allowed.
        """
        told = self.message.content.config_records[protocol.CONFIG].get(protocol.TUNED, "{}")
        values = {field_of(key): tried for key, tried in tried_values(str(told)).items()}
        return replace(self.config.training_settings(), **values)

    def loss(self) -> str:
        """Return the configured one."""
        return self.config.loss

    def metric(self) -> str:
        """Return the configured one."""
        return self.config.metric

    def promise(self) -> Promise:
        """Return the configured one, for the rounds of a strategy, and of all together."""
        return self.config.promise()

    def column_statistics(self) -> ColumnStatistics:
        """Return the statistics of its training samples; a simulation has all samples itself."""
        raise self._lacks("column_statistics")

    def keep_model(self) -> bool:
        """Keep the final model that the message carries, and say so; a simulation has no need."""
        return False

    def deploy_model(self) -> bool:
        """Use the model of the strategy that the message names; a simulation has no need."""
        return False

    @abstractmethod
    def keep_state(self) -> RecordDict:
        """Hold what is this client's own, so that it is there when the run is resumed."""

    @abstractmethod
    def restore_state(self) -> RecordDict:
        """Take back what this client has handed over for a checkpoint."""


class SimulatedNode(Node):
    """A client of a simulation, which attacks if it is one of the malicious.

    Attributes
    ----------
    federation : Federation
        All clients' data.
    is_malicious : bool

    Raises
    ------
    ValueError, OSError
        If the configuration is wrong, the node is a device, its index is not one of the clients',
        or the data cannot be had.
    """

    keeps_its_images: ClassVar[bool] = False  # another seed, or a drift, gives it others

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        if context.node_config.get("data-path") or context.node_config.get(DATA):
            raise ValueError(
                f'this device has data of its own, but dataset is "{self.config.dataset}", which '
                "is for simulations: start the run with --run-config pyproject-flwr.toml."
            )
        _one_thread()
        settings = self.config.federation_settings(
            *(protocol.setting(message, key) for key in (protocol.NUM_CLIENTS, protocol.SEED))
        )
        if not 0 <= self.index < settings.num_clients:
            raise ValueError(
                f"this node's partition-id is {self.index}, but there are {settings.num_clients} "
                f"clients: start SuperNodes with partition-id 0 to {settings.num_clients - 1}."
            )
        self.federation = _resident(simulate_federation(settings), self.device)
        self.is_malicious = self.index in self.federation.malicious
        self._round = protocol.setting(message, protocol.SERVER_ROUND, 0)

    @property
    def kind(self) -> Dataset:
        """Return the simulation's data set."""
        return self.federation.dataset

    def keep_state(self) -> RecordDict:
        """Return its store, and the round after which it was saved.

        A simulated client is no more than its run, which has a file for it.
        """
        content, personal = RecordDict(), self.personal()
        if (arrays := personal.load()) is not None:
            content[protocol.ARRAYS] = arrays
            saved = MetricRecord({protocol.KEPT: float(personal.round_of_state)})
            content[protocol.METRICS] = saved
        return content

    def restore_state(self) -> RecordDict:
        """Keep it again."""
        content = self.message.content
        if (arrays := content.array_records.get(protocol.ARRAYS)) is not None:
            saved = int(protocol.number(protocol.metrics_of(content), protocol.KEPT) or 0)
            self.personal().save(arrays, server_round=saved)
        return RecordDict()

    def randomness(self) -> Randomness:
        """Return a generator that draws the same again in the same run, other numbers each time."""
        query = zlib.crc32(self.message.metadata.message_type.encode())
        entropy = [*protocol.entropy(self.message), self.index, query, _NOISE_STREAM]
        return np.random.default_rng(entropy)

    def training_data(self) -> Images:
        """Return its training data of this round; one that flips its labels sees them flipped."""
        images, labels = self.federation.training_data(self.index, self._round)
        if self.config.attack == "label-flip" and self.is_malicious:
            labels = flip_labels(labels, self.kind.num_classes)
        return images, labels

    def validation_data(self) -> Images | None:
        """Return what it keeps from training in this round, labels as it knows them."""
        return self.federation.validation_data(self.index, self._round)

    def test_data(self) -> Images:
        """Return its test data of this round, with clean labels."""
        return self.federation.test_data(self.index, self._round)

    def scaling(self) -> Scaling | None:
        """Return the scale of its numbers to predict, if they were standardised."""
        return self.federation.scaling(self.index, self._round)

    def other_test_data(self) -> OtherTest | None:
        """Return what belongs to the test that `client-test` does not name, in the last round.

        Tables need no more, and a whole task can be many more samples than a client's own mix. With
        early stopping, each round may be the last one.
        """
        if self._round < self.config.num_server_rounds and not self.config.early_stopping:
            return None
        found = self.federation.other_test_data(self.index, self._round)
        return None if found is None else OtherTest(*found)


@lru_cache(maxsize=2)
def _resident(federation: Federation, device: torch.device) -> Federation:
    """Return the federation with all samples on a device, where they stay between rounds."""
    if device.type == CPU:
        return federation
    return replace(federation, dataset=federation.dataset.to(device))


def _one_thread() -> None:
    """Give each simulated client one thread, whatever Ray grants: they share a machine.

    Sums are then added up in the same order on any number of workers. Asked for every time, since
    libraries that are loaded later (numba) raise the number again. A device is its own master.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    _limit_threads_of_libraries()


@lru_cache(maxsize=1)
def _limit_threads_of_libraries() -> None:
    threadpoolctl.threadpool_limits(1)
