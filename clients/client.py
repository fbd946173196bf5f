"""A client, as the handlers of its messages see it: its data, and what it can compute."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecordValues, Context, Message
from numpy.typing import NDArray
from torch import nn

from clients.privacy import Promise, Randomness, SystemRandomness
from clients.settings import TrainingSettings
from clients.training.personal import Personal
from clients.training.train import OtherTest, evaluate
from fl_core.data.scaling import Scaling
from fl_core.messages import protocol
from fl_core.objectives.objective import LocalObjective

Images = tuple[torch.Tensor, torch.Tensor]
"""uint8, shape (n, C, H, W), and labels, int64, shape (n,)."""


class Client:
    """The client that answers one message; an app's subclass defines its data.

    A clustering needs `features` (RCC-PFL, MT-HFL), `training_data` (FLT, PCA + k-means + HC),
    `losses` (IFCA), or nothing at all. Only `answer_training` needs the rest. Where samples, and so
    features, stay the same (`has_fixed_samples`), noise before training is drawn for one set alone.
    """

    has_fixed_samples: ClassVar[bool] = True

    def __init__(self, message: Message, context: Context) -> None:
        self.message = message
        self.context = context

    @property
    def index(self) -> int:
        """Return its stable index, of Flower's simulation or `--node-config`, or a ValueError."""
        if "partition-id" not in self.context.node_config:
            raise ValueError(
                "this node has no partition-id: start its SuperNode with "
                '--node-config "partition-id=0 num-partitions=3", a different number for each '
                "node."
            )
        return int(self.context.node_config["partition-id"])

    def description(self) -> Mapping[str, ConfigRecordValues]:
        """Describe the client when it registers; a `name` may replace its index."""
        return {}

    def features(self) -> NDArray[np.float32]:
        """Return its samples' features Φ(X), shape (n, d), in the order of `training_data`."""
        raise self._lacks("features")

    def training_data(self) -> Images:
        """Return its training samples and their labels."""
        raise self._lacks("training_data")

    def validation_data(self) -> Images | None:
        """Return samples for comparing models, never trained on; by default, none."""
        return None

    def test_data(self) -> Images:
        """Return its test samples and their labels."""
        raise self._lacks("test_data")

    def other_test_data(self) -> OtherTest | None:
        """Return the samples of a second test beside `test_data`; by default, none."""
        return None

    def model(self) -> nn.Module:
        """Return a model of the right architecture; its weights come with the message."""
        raise self._lacks("model")

    def training_settings(self) -> TrainingSettings:
        """Return how it trains, and what it minimises and measures; by default, as the app does."""
        return TrainingSettings()

    def scaling(self) -> Scaling | None:
        """Return the scale of its numbers to predict; by default, none."""
        return None

    def losses(self, models: Sequence[ArrayRecord]) -> list[float]:
        """Return each model's mean loss on its training data, labels as they are."""
        model, data, loss = self.model(), self.training_data(), self.training_settings().loss
        found = []
        for arrays in models:
            model.load_state_dict(arrays.to_torch_state_dict())
            found.append(evaluate(model, *data, loss=loss).loss)
        return found

    def user_objectives(self) -> Collection[type[LocalObjective]]:
        """Return the user-defined local objectives that a message may name; by default, none."""
        return ()

    def personal(self) -> Personal:
        """Return its store from round to round: by default, in its context's state."""
        return Personal(self.message, self.context)

    def promise(self) -> Promise:
        """Return its privacy promises; by default, none: no noise."""
        return Promise()

    def randomness(self) -> Randomness:
        """Return the source of its noise: by default, one that no other party can reproduce."""
        return SystemRandomness()

    def _lacks(self, method: str) -> NotImplementedError:
        name = type(self).__name__
        return NotImplementedError(
            f"the server asks for what {name}.{method} returns: define it, as clients/client.py "
            "says, or choose another strategy."
        )


OpenClient = Callable[[Message, Context], Client]
"""What makes a client of a message and its node's context: a subclass of `Client`, say."""


def seed_of(client: Client, purpose: int) -> int:
    """Return a seed that depends on run, round, client and purpose alone."""
    entropy = [*protocol.entropy(client.message), client.index, purpose]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
