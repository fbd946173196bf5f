"""FedAvg's objective: what clients do that are told nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigRecordValues

from fl_core.objectives.objective import LocalObjective


@dataclass(frozen=True)
class Plain(LocalObjective):
    """Minimise the loss on the client's own samples, from the model received: FedAvg's."""

    name: ClassVar[str] = "plain"

    def told(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return nothing: it is what clients do that are told nothing."""
        return {}
