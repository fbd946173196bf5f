"""A simulated client, which has a part of one data set and may attack."""

import zlib
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import threadpoolctl
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from clients.attacks import flip_labels
from clients.client import Images
from clients.handlers import tested_model
from clients.privacy import Randomness
from clients.settings import CPU
from clients.training.train import OtherTest
from fl_app.run.node import Node
from fl_core.agreement.local_data import DATA
from fl_core.data.dataset import Dataset
from fl_core.data.scaling import Scaling
from fl_core.messages import protocol
from fl_core.partitions.federation import Federation, simulate_federation

_NOISE_STREAM = 0x5EC2E7


class SimulatedNode(Node):
    """A client of a simulation: `federation` has all clients' data.

    A node that is a device, or with an index beyond the clients', is a ValueError.
    """

    has_fixed_samples: ClassVar[bool] = False  # another seed, or a drift, gives it others

    def __init__(self, message: Message, context: Context) -> None:
        super().__init__(message, context)
        if context.node_config.get("data-path") or context.node_config.get(DATA):
            raise ValueError(
                f'this device has local data, but dataset is "{self.config.dataset}", which is for '
                "simulations: start the run with --run-config pyproject-flwr.toml."
            )
        _one_thread()
        settings = self.config.federation_settings(
            protocol.setting(message, protocol.NUM_CLIENTS),
            protocol.setting(message, protocol.SEED),
            protocol.setting(message, protocol.VALIDATION_FOLD, 0),
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

    def tested_model(self) -> RecordDict:
        """Return the model that this client tests, which is not the one that it was sent."""
        return RecordDict({protocol.ARRAYS: ArrayRecord(tested_model(self).state_dict())})

    def save_state(self) -> RecordDict:
        """Return its private state, and the round after which it was saved."""
        content, personal = RecordDict(), self.personal()
        if (arrays := personal.load()) is not None:
            content[protocol.ARRAYS] = arrays
            saved = MetricRecord({protocol.STORED: float(personal.round_of_state)})
            content[protocol.METRICS] = saved
        return content

    def restore_state(self) -> RecordDict:
        """Store the private state that the server sent."""
        content = self.message.content
        if (arrays := content.array_records.get(protocol.ARRAYS)) is not None:
            saved = int(protocol.number(protocol.metrics_of(content), protocol.STORED) or 0)
            self.personal().save(arrays, server_round=saved)
        return RecordDict()

    def randomness(self) -> Randomness:
        """Return a generator, seeded by the run, the round, the client and the query."""
        query = zlib.crc32(self.message.metadata.message_type.encode())
        entropy = [*protocol.entropy(self.message), self.index, query, _NOISE_STREAM]
        return np.random.default_rng(entropy)

    def training_data(self) -> Images:
        """Return its training data of this round, with flipped labels if its attack flips them."""
        images, labels = self.federation.training_data(self.index, self._round)
        if self.config.attack == "label-flip" and self.is_malicious:
            labels = flip_labels(labels, self.kind.num_classes)
        return images, labels

    def validation_data(self) -> Images | None:
        """Return its validation samples of this round, with its (possibly noisy) labels."""
        return self.federation.validation_data(self.index, self._round)

    def test_data(self) -> Images:
        """Return its test data of this round, with clean labels."""
        return self.federation.test_data(self.index, self._round)

    def scaling(self) -> Scaling | None:
        """Return the scale of its numbers to predict, if they were standardised."""
        return self.federation.scaling(self.index, self._round)

    def other_test_data(self) -> OtherTest | None:
        """Return the samples of the test that `client-test` does not name, in the last round.

        Only the last round is reported, and a whole task can have many samples. With early
        stopping, each round may be the last one.
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

    Sums are then added up in the same order on any number of workers. It is set for each message,
    since libraries that are loaded later (numba) raise the number again.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    _limit_threads_of_libraries()


@lru_cache(maxsize=1)
def _limit_threads_of_libraries() -> None:
    threadpoolctl.threadpool_limits(1)
