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
    """Clients that have been met; what is done for them, in the order of a run.

    Attributes
    ----------
    num_clients : int
        How many there are.
    num_at_start : int
        How many of them the first strategy begins with.
    told : mapping
        What every message tells a client, beside the seed.
    roll : Conversation, optional
        In which they were met, if strategies need not ask them again who they are.
    """

    num_clients: int
    num_at_start: int
    told: Mapping[str, ConfigRecordValues]
    roll: Conversation | None = None

    @abstractmethod
    def setting(self, seed: int) -> Setting:
        """Return what strategies are built from, on one seed."""

    @abstractmethod
    def resolved(self, config: Config) -> Config:
        """Return the configuration, references that only this world has replaced by their values.

        Parameters
        ----------
        config : Config
            In which the rest is replaced.
        """

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
