"""Checkpoints of a run, in its results folder, from which an interrupted run is resumed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fl_app.config.run_config import Config
from fl_app.results.layout import CHECKPOINTS, WHOLE, file_name, output_folder
from fl_app.run.watch import LOCK_FILE
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.samples import SampleKind
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from strategies import ClusteredStrategy, RoundReport

# Options that may differ in a resumed run: they decide when and where, but no result.
_MAY_DIFFER = {
    "resume",
    "output-dir",
    "data-dir",
    "checkpoint-every",
    "pre-round-deadline",
    "round-deadline",
    "track",
}

PATIENCE = 90.0  # seconds


class Checkpoints:
    """One file for each strategy and seed, of its last round only.

    A checkpoint of a run with other options than `config`, or a damaged one, is refused by a
    ValueError or an OSError.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        self.folder = folder
        self.every = config.checkpoint_every
        # Of an interrupted run; agreement and number of clients are to be set in a new one.
        self.agreement: Agreement | None = None  # of devices
        self.names: dict[int, str] = {}  # of devices, by client index
        self.took_part: set[int] = set()  # in a training: a refused client has a name, too
        self.num_clients = 0  # of a simulation
        self._options = config.as_run_config()
        self._resumes = bool(config.resume)
        self._found: dict[Path, dict[str, Any]] = {}
        self._digests: dict[int, str] = {}
        self._find()

    def _find(self) -> None:
        """Read all checkpoints of a resumed run, so that a damaged one is known at the start."""
        if self._resumes:
            for path in sorted((self.folder / CHECKPOINTS).glob(WHOLE)):
                self._found[path] = load_checkpoint(path)
                self._take_over(self._found[path])

    def _take_over(self, saved: Mapping[str, Any]) -> None:
        for key, value in self._options.items():
            before = saved["options"].get(key, value)
            if key not in _MAY_DIFFER and before != value:
                raise ValueError(
                    f"{key} is {value}, but the run in {self.folder} was started with {before}: "
                    "resume it with the options it had."
                )
        if saved["agreement"] is not None:
            self.agreement = Agreement.from_config(saved["agreement"])
        self.num_clients = saved["num-clients"]
        self.names.update(saved["names"])
        self.took_part |= saved["strategy"]["clusters"]["of_client"].keys()

    @contextmanager
    def only_run(self) -> Iterator[None]:
        """Keep other runs out of the results folder.

        A RuntimeError if another run does not leave it soon: that of a SuperLink that was killed
        ends within a minute.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self.folder / LOCK_FILE, mode=0o600)
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise RuntimeError(
                f"another run uses {self.folder}: watch it with flwr log, or stop it with "
                "flwr stop, before you resume it."
            ) from None
        try:
            # The run that used it may have written more until now.
            self._find()
            if not self._resumes:
                output_folder(str(self.folder))
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def is_due(self, report: RoundReport) -> bool:
        """Return whether to write a checkpoint after this round."""
        last = report.round == report.num_rounds
        return self.every > 0 and (last or report.round % self.every == 0)

    def save(
        self,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        seconds: float,
        data: SampleKind,
        states: Mapping[int, Any],
    ) -> None:
        """Replace a strategy's checkpoint, completely or not at all.

        `states` is the private state of simulated clients.
        """
        save_checkpoint(
            self._path(name, seed),
            {
                "options": self._options,
                "agreement": self.agreement and self.agreement.as_config(),
                "names": dict(strategy.training.registry.names),
                "num-clients": self.num_clients,
                "data": self._digest(seed, data),
                "seconds": seconds,
                "strategy": strategy.checkpoint(),
                "states": states,
            },
        )

    def load(self, name: str, seed: int, data: SampleKind) -> dict[str, Any] | None:
        """Return a strategy's checkpoint, if the run is resumed and has one.

        A ValueError if it was trained on other data: `data-dir` may have moved, its files may not
        have changed.
        """
        found = self._found.pop(self._path(name, seed), None)
        if found is not None and found["data"] != self._digest(seed, data):
            raise ValueError(
                f"the data have changed since the run in {self.folder} was started: resume it "
                "with the same data, or start a new run."
            )
        return found

    def _digest(self, seed: int, data: SampleKind) -> str:
        """Return the checksum of a simulation's data on a seed; of devices, nothing."""
        if seed not in self._digests:
            self._digests[seed] = data.checksum() if isinstance(data, Dataset) else ""
        return self._digests[seed]

    def _path(self, name: str, seed: int) -> Path:
        return self.folder / CHECKPOINTS / f"{file_name(name)}-seed-{seed}.safetensors"
