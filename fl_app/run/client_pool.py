"""Where the clients of a run are: simulated or devices, and what is different then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flwr.app import ConfigRecordValues
from flwr.serverapp import Grid

from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import Setting
from fl_app.results.run_result import RunResult
from fl_app.results.verdict import SeedVerdicts
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.personal_store import ConfigValues
from fl_app.run.progress import Progress
from fl_app.run.writer import ResultsFolder
from strategies import ClusteredStrategy, Roster, RoundReport


class World(Protocol):
    """The clients of a run; methods stand in the order in which a run comes to them.

    Attributes
    ----------
    num_clients, num_at_start : int
        All of them, and those that are there when the training begins.
    told : dict
        What every message tells a client, beside the seed.
    met : Roster
        What they are called, and who they are, where strategies need not ask them again.
    """

    num_clients: int
    num_at_start: int
    told: dict[str, ConfigRecordValues]

    @property
    def met(self) -> Roster:
        """Return what they are called, and who they are, where strategies need not ask again."""
        ...

    def setting(self, seed: int) -> Setting:
        """Return the values that strategies are built from."""
        ...

    def resolved(self, config: Config) -> Config:
        """Return the configuration with what it leaves open spelled out."""
        ...

    def begin(self, results: ResultsFolder, progress: Progress) -> None:
        """Say what is about to happen."""
        ...

    def begin_run(self, setting: Setting, done: int) -> Grid:
        """Return the way to the clients for a strategy of which `done` rounds are done."""
        ...

    def restore_states(self, states: Mapping[int, Any], told: ConfigValues) -> None:
        """Give clients back what they kept for themselves until an interruption."""
        ...

    def after_round(
        self,
        report: RoundReport,
        strategy: ClusteredStrategy,
        show: Callable[[RoundReport], None],
    ) -> None:
        """Show a round."""
        ...

    def keep_states(self, strategy: ClusteredStrategy, told: ConfigValues) -> dict[int, Any]:
        """Return clients' own layers and models, as far as a checkpoint is to hold them."""
        ...

    def note_uninformative(self, setting: Setting, strategy: ClusteredStrategy) -> None:
        """Note in a strategy's clusters which clients' features say little, where that is known."""
        ...

    def end_run(self, run: RunResult, strategy: ClusteredStrategy) -> None:
        """Do what is due when a strategy has ended, before its results are written."""
        ...

    def end_seed(self, seed: int, verdicts: SeedVerdicts | None) -> None:
        """Do what is due when all strategies have ended on a seed, and clients are judged."""
        ...


Meet = Callable[[Config, Grid, Checkpoints], World]
"""Waits for the clients and returns them; a ValueError or RuntimeError if they do not come."""
