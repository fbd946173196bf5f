"""The clients of a run, simulated or devices, and what is different between the two."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flwr.app import ConfigRecordValues
from flwr.serverapp import Grid

from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import Setting
from fl_app.results.run_result import RunResult
from fl_app.results.verdict import SeedVerdicts
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.client_states import ConfigValues
from fl_app.run.writer import ResultsFolder
from strategies import ClientRegistry, ClusteredStrategy, RoundReport


class ClientPool(Protocol):
    """The clients of a run; methods stand in the order in which a run calls them."""

    num_clients: int
    num_at_start: int  # of these, how many are there when the training begins
    message_config: dict[str, ConfigRecordValues]  # in every message, beside the seed

    @property
    def known_clients(self) -> ClientRegistry:
        """Return names, and nodes where strategies need not register the clients again."""
        ...

    def setting(self, seed: int) -> Setting:
        """Return the values that strategies are built from."""
        ...

    def resolved(self, config: Config) -> Config:
        """Return the configuration with what it leaves open spelled out."""
        return config

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the clients, if they have some."""
        ...

    def start(self, results: ResultsFolder) -> None:
        """Get ready to train; what clients do goes to `results`, too."""

    def begin_run(self, setting: Setting, done: int) -> Grid:
        """Return the way to the clients for a strategy of which `done` rounds are done."""
        ...

    def restore_states(self, states: Mapping[int, Any], sent: ConfigValues) -> None:
        """Give clients back their private state of before an interruption."""

    def after_round(self, report: RoundReport, strategy: ClusteredStrategy) -> None:
        """Do what is due after a round, before it is shown."""

    def save_states(self, strategy: ClusteredStrategy, sent: ConfigValues) -> dict[int, Any]:
        """Let clients save their private state; return what a checkpoint is to hold of it."""
        ...

    def note_uninformative(self, setting: Setting, strategy: ClusteredStrategy) -> None:
        """Note in a strategy's clusters which clients' features say little, if it is known."""

    def end_run(self, run: RunResult, strategy: ClusteredStrategy, sent: ConfigValues) -> None:
        """Do what is due when a strategy has ended, before its results are written.

        `sent` is what every message of the strategy holds.
        """

    def end_seed(self, seed: int, verdicts: SeedVerdicts | None) -> None:
        """Do what is due when all strategies have ended on a seed, and clients are judged."""


ConnectClients = Callable[[Config, Grid, Checkpoints], ClientPool]
"""Waits for the clients and returns them; a ValueError or RuntimeError if they do not come."""
