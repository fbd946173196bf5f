"""IFCA where a client that is tested has just chosen, as in its authors' code.

There all clients choose among the present models before each test. The IFCA of this project asks
those that take part in a round, and all clients before the last test alone: with a fifth of the
clients in each round, some are tested in between by a choice of ten rounds ago or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strategies.clusterings.ifca import FreeLossClustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round

_EVERY = 10  # `evaluate-every` of the tables that have this


@dataclass
class AskedBeforeTests(FreeLossClustering):
    """In each round that is tested, all clients choose, not its participants alone."""

    name: ClassVar[str] = "loss-before-tests"

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Ask all clients in a round that is tested."""
        if state.number % _EVERY or state.number == 1:
            return super().before_training(state, conversation)
        return self._associate(state, tuple(conversation.nodes), conversation)
