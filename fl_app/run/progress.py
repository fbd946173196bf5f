"""Live progress: one line for each evaluated round, with the time left."""

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
    """Prints how far a run is, of the rounds of all strategies and seeds together.

    Lines, not a moving bar: Flower's log stream carries lines.
    """

    def __init__(self, total_rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_rounds = total_rounds
        self.done = 0
        self._clock = clock
        self._started = self._rounds_started = clock()
        self._width = 8

    def begin(
        self,
        config: Config,
        num_clients: int,
        folder: Path,
        data: Dataset,
        names: Sequence[str] = (),
    ) -> None:
        """Say what is about to happen; clients may have names."""
        self._width = _longest(config)
        if names:
            print(f"clients: {listed(names, _MOST_NAMES)}")
        if data.column_names:
            print(f"{_columns(data.column_names)}\n{_asked(data)}")
        changed = {
            key: value
            for key, (value, default) in changed_options(config.as_run_config()).items()
            # What is a keyword by default has been replaced by what it stands for.
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

    def meet(
        self, names: Sequence[str], agreement: Agreement, config: Config, folder: Path
    ) -> None:
        """Say which devices have come together, and what they have agreed."""
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
        """Say which features `auto` is here, and why."""
        print(f"features=auto: {features}, since samples are {_kind(samples)}", flush=True)

    def resumed(self, strategy: str, seed: int, done: int) -> None:
        """Say that rounds before an interruption need not be done again."""
        self.total_rounds -= done
        print(f"{strategy:<{self._width}}  seed {seed}  resumed after round {done}", flush=True)

    def ended(self, strategy: str, seed: int, report: RoundReport) -> None:
        """Say that a strategy ends early, and count on no more rounds of it."""
        self.total_rounds -= report.num_rounds - report.round
        said = f"ends after round {report.round}: its validation scores improve no more"
        print(f"{strategy:<{self._width}}  seed {seed}  {said}", flush=True)

    def chose(self, label: str, seed: int, count: int) -> None:
        """Say which of the values that a strategy tried it takes."""
        said = f"is the best of {count} on validation samples"
        print(f"{label:<{self._width}}  seed {seed}  {said}", flush=True)

    def joined(self, name: str, server_round: int, cluster: int) -> None:
        """Say where a device belongs that was not there at the start."""
        print(f"{name} joined in round {server_round}, in cluster {cluster}", flush=True)

    def handed_out(self, not_kept: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Say which devices do not have their model."""
        for client, reason in not_kept.items():
            print(f"{names[client]} did not keep its model: {reason}", flush=True)
        print(f"{len(names) - len(not_kept)} of {len(names)} devices keep their model", flush=True)

    def clients_ready(self) -> None:
        """Say how long it took until the clients had their data; rounds are timed from here."""
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
        """Return how many rounds of all strategies and seeds are still to come."""
        return self.total_rounds - self.done

    def seconds_left(self) -> float:
        """Return for how long they will last if they are like those so far, of which there is one.

        Pre-rounds and tests count among the rounds so far.
        """
        return (self._clock() - self._rounds_started) / max(self.done, 1) * self.rounds_left

    def line(self, strategy: str, seed: int, report: RoundReport) -> str:
        """Return the line for one round."""
        now, left = self._clock(), self.seconds_left()
        main = report.metrics.main
        spread = main.shown(float(np.std(list(report.tested.values()))))
        unit = "%" if main.is_share else ""
        return (
            f"{strategy:<{self._width}}  seed {seed}  round {report.round:>3}/{report.num_rounds}  "
            f"{main.title} {main.shown(report.score):>5}{unit} ± {spread}{unit} "
            "over clients  "
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
    return (
        f"{', '.join(config.strategy)} {how_long}, {config.repeats} seed(s)\nresults go to {folder}"
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
