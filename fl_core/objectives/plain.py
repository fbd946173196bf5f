"""FedAvg's objective: the default where a message names none."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigRecordValues

from fl_core.objectives.objective import LocalObjective


@dataclass(frozen=True)
class Plain(LocalObjective):
    """Minimise the loss on the client's samples, from the model received: FedAvg's."""

    name: ClassVar[str] = "plain"
    may_be_noisy: ClassVar[bool] = True

    def message_entries(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return nothing: it is the default."""
        return {}
