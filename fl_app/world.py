"""Where the clients of a run are, in a simulation or on devices: all that an experiment sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from flwr.app import ConfigRecordValues
from flwr.serverapp import Grid

from fl_app.config import Config
from fl_app.report.progress import Progress
from fl_app.report.results import Results, RunResult
from fl_app.systems import Setting
from strategies import ClusteredStrategy, Conversation, RoundReport


class World(ABC):
    """The clients of a run, and what only a simulation or only devices need, in a run's order.

    Attributes
    ----------
    num_clients : int
        How many there are.
    num_at_start : int
        How many of them the first strategy begins with.
    told : mapping
        What every message tells a client, beside the seed.
    roll : Conversation, optional
        Where they said who they are; None: each strategy asks them again.
    """

    num_clients: int
    num_at_start: int
    told: Mapping[str, ConfigRecordValues]
    roll: Conversation | None = None

    @abstractmethod
    def setting(self, seed: int) -> Setting:
        """Return what strategies are built from, on one seed."""

    def resolved(self, config: Config) -> Config:
        """Return the configuration with what this world knows of its clients' data."""
        return config

    @abstractmethod
    def begin(self, results: Results, progress: Progress) -> None:
        """Say what is about to happen; nothing stands in its way any more."""

    @abstractmethod
    def begin_run(self, setting: Setting, done: int) -> Grid:
        """Return the way to the nodes for a strategy, of which so many rounds are done already."""

    @abstractmethod
    def after_round(
        self,
        report: RoundReport,
        strategy: ClusteredStrategy,
        show: Callable[[RoundReport], None],
    ) -> None:
        """Show what is to be shown of a round."""

    @abstractmethod
    def end_run(self, run: RunResult, strategy: ClusteredStrategy) -> None:
        """Do what is left to do with a strategy, before its results are written."""
