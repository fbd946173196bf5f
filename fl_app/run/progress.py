"""The progress of a run: lines of its log, and a file that `fedkin watch` shows."""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message

from fl_app.config.run_config import Config
from fl_app.config.tuning import combinations, label_of
from fl_app.report.sentences import changed_options
from fl_app.run.log import COURSE, log
from fl_app.run.quorum import Listener
from fl_app.run.watch import (
    FAILED,
    FINISHED,
    HEARTBEAT,
    RUNNING,
    STATUS_FILE,
    VERSION,
    how_to_resume,
)
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.samples import SampleKind, are_images, described, grey_or_colour
from fl_core.data.settings import REAL_DEVICES
from fl_core.files import replacing
from fl_core.messages import protocol
from fl_core.options import key_values
from fl_core.text import clock, listed, one_line, printable
from fl_core.user_code import is_shutdown
from strategies import ClientRegistry, RoundReport

_TICK = 1.0
_MOST_NAMES = 20
_MOST_FAILURES = 10
_MOST_FALLS = 5
_FIRST_LINE = 10.0  # seconds of a phase; the next line comes after twice as long
_IN_FIRST_LINE = (
    *("strategy", "dataset", "num-clients", "model", "num-server-rounds", "repeats"),
    "output-dir",
)
_log = logging.getLogger(__name__)
_listed = partial(listed, most=_MOST_NAMES, between=", ")


class Progress(Listener):
    """The progress of a run over all strategies and seeds; a thread writes its status.

    A status that cannot be written is a warning, and does not end a run. `clock` returns seconds
    since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._folder: Path | None = None
        self.registry: Callable[[], ClientRegistry] = ClientRegistry  # returns names and nodes
        self._asking: dict[str, Any] | None = None
        self._waiting: dict[int, str] = {}
        self._late: list[str] = []
        self._clients: list[str] = []
        self._left_out_of_sums: Mapping[int, str] = {}
        self._failures: list[str] = []
        self._falls: list[str] = []
        self._runs: list[dict[str, Any]] = []
        now = clock()
        self._known: dict[str, Any] = {"state": RUNNING, "began": now, "doing": "", "since": now}
        self._changed, self._written, self._said, self._warned = True, 0.0, _FIRST_LINE, False
        self._rounds_started, self._rounds_done, self._rounds_left = now, 0, 0
        self._width = 8  # of a strategy in a line

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write the status during a run, and at its end how it ended."""
        thread = threading.Thread(target=self._write_now_and_then, daemon=True)
        thread.start()
        ended: dict[str, Any] = {"state": FINISHED}
        try:
            yield
        except BaseException as error:
            ended = {"state": FAILED, "error": self._why(error)}
            raise
        finally:
            self._stopped.set()
            thread.join()
            self._known |= {**ended, "doing": "", "ended": self._clock()}
            self._asking = None
            self._write()

    def _why(self, error: BaseException) -> str:
        if self._folder and (isinstance(error, KeyboardInterrupt) or is_shutdown(error)):
            return f"it was stopped from outside: {how_to_resume(self._folder)}."
        return one_line(str(error)) or type(error).__name__

    def write_to(self, folder: Path) -> None:
        """Write to this results folder from now on, and at once."""
        self._folder = folder
        self._write()

    def doing(self, what: str) -> None:
        """Note a new phase of the run."""
        with self._lock:
            self._known |= {"doing": what, "since": self._clock()}
            self._said, self._changed = _FIRST_LINE, True

    def show_plan(
        self,
        config: Config,
        names: Sequence[str],
        num_clients: int,
        data: Dataset | Agreement,
        folder: Path,
    ) -> None:
        """Log what is about to be run, by which clients; `names` are theirs, if they have any."""
        labels = [
            label_of(strategy, values)
            for strategy in config.strategy
            for values in combinations(config.tune, strategy)
        ]
        self._width = max(map(len, labels))
        rounds = config.num_server_rounds
        self._rounds_left = config.num_trainings * rounds
        changed = {
            key: value
            for key, (value, default) in changed_options(config.as_run_config()).items()
            # Keywords have been replaced by the values that they stand for.
            if key not in _IN_FIRST_LINE and default not in ("auto", "paper")
        }
        columns, classes = data.column_names, data.class_names
        kind = (
            f"{len(columns)} columns: {printable(_listed(columns))}" if columns else kind_of(data)
        )
        what = "a number" if data.is_regression else f"{len(classes)} classes"
        start = f"{config.dataset} on {num_clients} clients"
        if config.dataset == REAL_DEVICES:
            start = f"{num_clients} devices"
        length = f"for {rounds} rounds" if rounds else "without training"
        folds = config.validation_folds
        often = f", {folds} validation folds: each trains {folds} times" if folds > 1 else ""
        log.log(
            COURSE,
            "%s",
            f"{start}{': ' if names else ''}"
            f"{printable(_listed(names))}\n"
            f"{kind}; {what}: {printable(_listed(classes))}\n"
            f"{config.model}; {', '.join(config.strategy)} {length}, {config.repeats} seed(s)"
            f"{often}\n"
            f"options: {' '.join(key_values(changed)) or 'the defaults'}\nresults go to {folder}",
        )

    def start_rounds(self) -> None:
        """Time rounds from now."""
        self._rounds_started = self._clock()

    def begin_run(self, name: str, seed: int, done: int, num_rounds: int) -> None:
        """Note a strategy and seed that starts, or resumes after `done` rounds."""
        run = {"strategy": name, "seed": seed, "round": done, "rounds": num_rounds, "failures": 0}
        with self._lock:
            self._runs.append(run)
            self._left_out_of_sums = {}
        if done:
            self._rounds_left -= done
            self._say(f"resumed after round {done}")
            self._start_round(done + 1)
        else:
            self.doing(f"{name}, seed {seed}, pre-round")

    def end_run_early(self, report: RoundReport) -> None:
        """Note that the present strategy ends early, and count no more rounds of it."""
        self._rounds_left -= report.num_rounds - report.round
        self._say(f"ends after round {report.round}: its validation scores no longer improve")

    def _say(self, what: str) -> None:
        """Log a line about the present strategy and seed."""
        run = self._runs[-1]
        log.log(COURSE, "%s", f"{run['strategy']:<{self._width}}  seed {run['seed']}  {what}")

    def after_round(self, report: RoundReport, registry: ClientRegistry, fell: str = "") -> None:
        """Note the results of a round.

        `fell` is a sentence on the clients whose score fell, if there are any.
        """
        clusters = len(set(report.clusters.values()))
        found: dict[str, Any] = {"round": report.round, "clusters": clusters}
        self._rounds_done += 1
        self._rounds_left -= 1
        taken = self._clock() - self._rounds_started
        left = taken / self._rounds_done * self._rounds_left  # pre-rounds included
        if report.tested:
            main = report.metrics.main
            found |= {main.name: report.score, "worst": main.worst(report.tested.values())}
            self._say(f"{_result_of(report)}  {clock(taken)} elapsed, {clock(left)} left")
        if fell:
            fell = f"{self._runs[-1]['strategy']}, seed {self._runs[-1]['seed']}: {fell}"
            log.info("%s", fell)
        with self._lock:
            self._runs[-1] |= found
            self._falls = [*self._falls, fell][-_MOST_FALLS:] if fell else self._falls
            self._note_failures(registry)
            self._known |= {"rounds-left": self._rounds_left, "seconds-left": left}
            self._left_out_of_sums = report.left_out_of_sums
            self._clients = _clients(registry, self._left_out_of_sums)
        self._start_round(report.round + 1)

    def _start_round(self, number: int) -> None:
        run = self._runs[-1]
        phase = f"round {number}" if number <= run["rounds"] else "results"
        self.doing(f"{run['strategy']}, seed {run['seed']}, {phase}")

    # ---------------------------------------------------------------- notifications of QuorumGrid

    def sent(self, messages: Sequence[Message], late: Iterable[Message], timeout: float) -> None:
        """Note which clients were sent a message, which are late, and the timeout."""
        registry, now = self.registry(), self._clock()
        kind = messages[0].metadata.message_type if messages else ""
        if kind == protocol.TRAIN and self._runs and not self._runs[-1]["round"]:
            self._start_round(1)
        with self._lock:
            self._waiting = _names(registry, messages)
            what = kind.removeprefix(protocol.query(""))
            self._asking = {"what": what, "since": now, "asked": len(messages)}
            if math.isfinite(timeout):
                self._asking["until"] = now + timeout
            self._late = _owing(late, registry)
            self._clients = _clients(registry, self._left_out_of_sums)
            self._note_failures(registry)
            self._changed = True

    def received(self, replies: Iterable[Message]) -> None:
        """Note which clients have answered."""
        with self._lock:
            for reply in replies:
                self._waiting.pop(reply.metadata.src_node_id, "")
            self._changed = True

    def ended(self, late: Iterable[Message]) -> None:
        """Note that the run waits for no more answers."""
        with self._lock:
            self._waiting, self._asking = {}, None
            self._late = _owing(late, self.registry())
            self._changed = True

    def _note_failures(self, registry: ClientRegistry) -> None:
        """Describe the latest failures, and count all of this run."""
        failures = sorted(registry.log, key=lambda failure: failure.rounds[-1])
        self._failures = [
            failure.describe(registry.name_of(failure.client))
            for failure in failures[-_MOST_FAILURES:]
        ]
        if self._runs:
            self._runs[-1]["failures"] = sum(len(failure.rounds) for failure in failures)

    # ----------------------------------------------------------------------------------- the file

    def content(self) -> dict[str, Any]:
        """Return the content of the file."""
        with self._lock:
            content: dict[str, Any] = {"version": VERSION, "written": self._clock(), **self._known}
            content["runs"] = [dict(run) for run in self._runs]
            if self._asking is not None:
                answered = self._asking["asked"] - len(self._waiting)
                content["asking"] = {**self._asking, "answered": answered}
            content["clients"] = [
                *([f"waiting for {_listed([*self._waiting.values()])}"] if self._waiting else []),
                *([f"late, with an earlier answer: {_listed(self._late)}"] if self._late else []),
                *self._clients,
            ]
            content |= {"failures": list(self._failures), "falls": list(self._falls)}
        return content

    def _write_now_and_then(self) -> None:
        while not self._stopped.wait(_TICK):
            if self._changed or self._clock() - self._written > HEARTBEAT:
                self._write()
            if line := self._line():
                log.log(COURSE, "%s", line)

    def _write(self) -> None:
        if self._folder is None:
            return
        self._changed, self._written = False, self._clock()
        try:
            with replacing(self._folder / STATUS_FILE) as path:
                path.write_text(json.dumps(self.content(), allow_nan=False) + "\n", "utf-8")
        except OSError as error:
            if not self._warned:
                _log.warning("cannot write the status for fedkin watch: %s", error)
            self._warned = True

    def _line(self) -> str:
        """Return a line on a long phase after 10, 20, 40 seconds and so on; else an empty text."""
        with self._lock:
            seconds = self._clock() - self._known["since"]
            if seconds < self._said or not self._known["doing"]:
                return ""
            while self._said <= seconds:
                self._said *= 2
            line = f"{self._known['doing']}: {seconds:.0f} s so far"
            if self._asking is not None:
                answered = self._asking["asked"] - len(self._waiting)
                line += f", {answered:,} of {self._asking['asked']:,} have answered"
            return line


def kind_of(samples: SampleKind) -> str:
    """Return what samples are: images of a size, or numbers of a shape."""
    shape, is_float = samples.sample_shape, samples.is_float
    if not are_images(shape, is_float=is_float):
        return described(shape, is_float=is_float)
    channels, height, width = shape
    return f"{grey_or_colour(channels)} images of {height}×{width} pixels"


def _result_of(report: RoundReport) -> str:
    main = report.metrics.main
    unit, spread = "%" if main.is_share else "", float(np.std(list(report.tested.values())))
    tested, all_clients = len(report.tested), len(report.clusters)
    clients = "clients" if tested == all_clients else f"{tested} of {all_clients} clients"
    return (
        f"round {report.round:>3}/{report.num_rounds}  {main.title} "
        f"{main.shown(report.score):>5}{unit} ± {main.shown(spread)}{unit} over {clients}"
    )


def _names(registry: ClientRegistry, messages: Iterable[Message]) -> dict[int, str]:
    """Return the names of the nodes to which messages were sent."""
    names = {node: registry.name_of(client) for client, node in registry.nodes.items()}
    nodes = [message.metadata.dst_node_id for message in messages]
    return {node: names.get(node) or registry.name_of_node(node) for node in nodes}


def _owing(late: Iterable[Message], registry: ClientRegistry) -> list[str]:
    late = list(late)
    names = _names(registry, late)
    return [
        f"{names[m.metadata.dst_node_id]} (asked at {time.ctime(m.metadata.created_at)[11:19]})"
        for m in late
    ]


def _clients(registry: ClientRegistry, left_out_of_sums: Mapping[int, str]) -> list[str]:
    """Return sentences on the clients that take part, and on excluded ones."""
    away = [registry.name_of(client) for client in set(registry.nodes) - set(registry.connected())]
    connected = len(registry.nodes) - len(away)
    sentences = [f"{len(registry.nodes):,} clients take part, {connected:,} are connected"]
    left_out = [f"{registry.name_of(client)} ({why})" for client, why in registry.failures.items()]
    left_out += [f"{name} ({why})" for name, why in registry.unknown_by_name.items()]
    of_sums = [f"{registry.name_of(c)} ({why})" for c, why in left_out_of_sums.items()]
    for what, names in (
        ("away", sorted(away)),
        ("left out", left_out),
        ("left out of secure sums", of_sums),
    ):
        if names:
            sentences.append(f"{what}: {_listed(names)}")
    return sentences
