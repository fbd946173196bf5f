"""Progress of a run in lines: one for each evaluated round, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fl_app.config.run_config import Config
from fl_app.config.tuning import combinations, label_of
from fl_app.report.sentences import changed_options
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.samples import SampleKind, are_images, described, grey_or_colour
from fl_core.options import key_values
from fl_core.text import clock, listed, printable
from strategies import RoundReport

_MOST_NAMES = 30
_IN_FIRST_LINE = (
    *("strategy", "dataset", "num-clients", "model", "num-server-rounds", "repeats"),
    "output-dir",
)


class Progress:
    """Prints the progress of a run over all strategies and seeds, in lines for Flower's log."""

    def __init__(self, total_rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_rounds = total_rounds
        self.done = 0
        self._clock = clock
        self._started = self._rounds_started = clock()
        self._width = 8

    def show_simulation(
        self,
        config: Config,
        num_clients: int,
        folder: Path,
        data: Dataset,
        names: Sequence[str] = (),
    ) -> None:
        """Print the plan of a run; `names` are those of its clients, if they have any."""
        self._width = _longest(config)
        if names:
            print(f"clients: {listed(names, _MOST_NAMES)}")
        if data.column_names:
            print(f"{_columns(data.column_names)}\n{_asked(data)}")
        changed = {
            key: value
            for key, (value, default) in changed_options(config.as_run_config()).items()
            # Keywords have been replaced by the values that they stand for.
            if key not in _IN_FIRST_LINE and default not in ("auto", "paper")
        }
        print(
            f"{config.dataset} on {num_clients} clients, {config.model}; {_plan(config, folder)}\n"
            f"options: {' '.join(key_values(changed)) or 'the defaults'}",
            flush=True,
        )
        if num_clients == 2 and data.given_partition is None and config.num_server_rounds:
            print(
                "Two clients, Flower's default, are few to be clustered; for the papers' 25: "
                "flwr run . --stream --federation-config "
                '"num-supernodes=25 client-resources-num-cpus=1"',
                flush=True,
            )

    def show_devices(
        self, names: Sequence[str], agreement: Agreement, config: Config, folder: Path
    ) -> None:
        """Print the devices of a run, and their agreement on the data."""
        columns = agreement.column_names
        kind = f"{_columns(columns)}\n" if columns else f"{_kind(agreement)}, "
        self._width = _longest(config)
        print(
            f"{len(names)} devices: {', '.join(names)}\n"
            f"{_asked(agreement)}\n"
            f"{kind}{config.model}; {_plan(config, folder)}",
            flush=True,
        )
        self._rounds_started = self._clock()

    def took_features(self, features: str, samples: SampleKind) -> None:
        """Print the features that `auto` stands for, and why."""
        print(f"features=auto: {features}, since samples are {_kind(samples)}", flush=True)

    def resumed(self, strategy: str, seed: int, done: int) -> None:
        """Print after which round a strategy is resumed."""
        self.total_rounds -= done
        print(f"{strategy:<{self._width}}  seed {seed}  resumed after round {done}", flush=True)

    def ended(self, strategy: str, seed: int, report: RoundReport) -> None:
        """Print that a strategy ends early, and count no more rounds of it."""
        self.total_rounds -= report.num_rounds - report.round
        said = f"ends after round {report.round}: its validation scores no longer improve"
        print(f"{strategy:<{self._width}}  seed {seed}  {said}", flush=True)

    def chose(self, label: str, seed: int, count: int) -> None:
        """Print the best of the values that a strategy tried."""
        said = f"is the best of {count} on validation samples"
        print(f"{label:<{self._width}}  seed {seed}  {said}", flush=True)

    def joined(self, name: str, server_round: int, cluster: int) -> None:
        """Print the cluster of a device that has joined after the start."""
        print(f"{name} joined in round {server_round}, in cluster {cluster}", flush=True)

    def show_delivery(self, failures: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Print which devices did not store their model, and why."""
        for client, reason in failures.items():
            print(f"{names[client]} did not store its model: {reason}", flush=True)
        print(
            f"{len(names) - len(failures)} of {len(names)} devices have stored their model",
            flush=True,
        )

    def clients_ready(self) -> None:
        """Print how long the clients took to load their data, and time rounds from now."""
        print(f"clients are ready after {self._clock() - self._started:.0f} s", flush=True)
        self._rounds_started = self._clock()

    def reporter(self, strategy: str, seed: int) -> Callable[[RoundReport], None]:
        """Return a callback for the rounds of one strategy and seed."""

        def report(round_report: RoundReport) -> None:
            self.done += 1
            if round_report.tested:
                print(self.line(strategy, seed, round_report), flush=True)

        return report

    @property
    def rounds_left(self) -> int:
        """Return the number of rounds left of all strategies and seeds."""
        return self.total_rounds - self.done

    def seconds_left(self) -> float:
        """Return the seconds left if rounds take as long as those so far, pre-rounds included."""
        return (self._clock() - self._rounds_started) / max(self.done, 1) * self.rounds_left

    def line(self, strategy: str, seed: int, report: RoundReport) -> str:
        """Return the line for one round."""
        now, left = self._clock(), self.seconds_left()
        main = report.metrics.main
        spread = main.shown(float(np.std(list(report.tested.values()))))
        unit = "%" if main.is_share else ""
        tested, all_clients = len(report.tested), len(report.clusters)
        clients = "clients" if tested == all_clients else f"{tested} of {all_clients} clients"
        return (
            f"{strategy:<{self._width}}  seed {seed}  round {report.round:>3}/{report.num_rounds}  "
            f"{main.title} {main.shown(report.score):>5}{unit} ± {spread}{unit} "
            f"over {clients}  "
            f"{clock(now - self._started)} elapsed, {clock(left)} left"
        )


def _longest(config: Config) -> int:
    labels = (
        label_of(strategy, values)
        for strategy in config.strategy
        for values in combinations(config.tune, strategy)
    )
    return max(map(len, labels))


def _plan(config: Config, folder: Path) -> str:
    rounds = config.num_server_rounds
    how_long = f"for {rounds} rounds" if rounds else "without training"
    folds = config.validation_folds
    often = f", {folds} validation folds: each trains {folds} times" if folds > 1 else ""
    return (
        f"{', '.join(config.strategy)} {how_long}, {config.repeats} seed(s){often}\n"
        f"results go to {folder}"
    )


def _asked(data: Agreement | Dataset) -> str:
    what = "a number" if data.is_regression else f"{data.num_classes} classes"
    return f"{what}: {printable(listed(data.class_names, _MOST_NAMES, ', '))}"


def _columns(names: Sequence[str]) -> str:
    return f"{len(names)} columns: {printable(listed(names, _MOST_NAMES, ', '))}"


def _kind(samples: SampleKind) -> str:
    shape, is_float = samples.sample_shape, samples.is_float
    if not are_images(shape, is_float=is_float):
        return described(shape, is_float=is_float)
    channels, height, width = shape
    return f"{grey_or_colour(channels)} images of {height}×{width} pixels"
