"""The run configuration: the only place that reads run-config values, and checks every one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from clients.features import FEATURES
from clients.training import OPTIMIZERS, TrainingSettings
from fl_core.datasets import DATASETS
from fl_core.federation import FederationSettings
from fl_core.models import MODELS, paper_model
from fl_core.noise import NOISES
from fl_core.partition import PARTITIONS, Kind, parse_tasks
from strategies.grouping import LINKAGES

BASELINES = ("optimum", "random", "single", "local")
STRATEGIES = ("rcc-pfl", *BASELINES)

ALL_CLIENTS = "all"
AUTO = "auto"
AS_TASKS = "num-tasks"


@dataclass(frozen=True)
class Config:
    """A checked run configuration; the fields are the run-config keys, `-` written as `_`.

    `strategy` is a tuple of names; `num_clients` is 0 for "all"; `num_clusters` is a number, or
    "auto", or "num-tasks".
    """

    strategy: tuple[str, ...]
    repeats: int
    seed: int
    dataset: str
    data_dir: str
    num_clients: int
    num_tasks: int
    tasks: str
    partition: Kind
    dirichlet_alpha: float
    minority: float
    min_samples: int
    noise: str
    noise_rate: float
    features: str
    feature_weights: str
    num_eigenvectors: int
    linkage: str
    num_clusters: int | str
    model: str
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    local_epochs: int
    num_server_rounds: int
    fraction_train: float
    weighted_mean: bool
    evaluate_every: int
    output_dir: str

    def federation_settings(self, num_clients: int, seed: int) -> FederationSettings:
        """Return what decides who holds which image, for one seed."""
        return FederationSettings(
            dataset=self.dataset,
            data_dir=self.data_dir,
            num_clients=num_clients,
            num_tasks=self.num_tasks,
            tasks=self.tasks,
            partition=self.partition,
            dirichlet_alpha=self.dirichlet_alpha,
            minority=self.minority,
            min_samples=self.min_samples,
            noise=self.noise,
            noise_rate=self.noise_rate,
            seed=seed,
        )

    def training_settings(self) -> TrainingSettings:
        """Return how a client trains."""
        return TrainingSettings(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            local_epochs=self.local_epochs,
        )

    def as_run_config(self) -> dict[str, str | int | float | bool]:
        """Return the configuration under its run-config keys, as scalars."""
        values = {f.name.replace("_", "-"): getattr(self, f.name) for f in fields(self)}
        values["strategy"] = ",".join(self.strategy)
        values["num-clients"] = self.num_clients or ALL_CLIENTS
        return values


def parse_config(run_config: Mapping[str, Any]) -> Config:
    """Read and check a Flower run config.

    Parameters
    ----------
    run_config : mapping
        Every key of `[tool.flwr.app.config]` in pyproject.toml.

    Raises
    ------
    ValueError
        For the first key that is unknown, missing or has a value that is not allowed: one sentence
        that names the key, the value and what is allowed.
    """
    unknown = sorted(set(run_config) - set(_READERS))
    if unknown:
        raise ValueError(
            f"{unknown[0]} is not a run-config key: the keys are {', '.join(sorted(_READERS))}."
        )
    missing = sorted(set(_READERS) - set(run_config))
    if missing:
        raise ValueError(f"the run-config key {missing[0]} is missing: set it in pyproject.toml.")
    values = {key.replace("-", "_"): read(key, run_config[key]) for key, read in _READERS.items()}
    if values["model"] == "paper":
        values["model"] = paper_model(values["dataset"])
    return Config(**values)


def output_folder(output_dir: str) -> Path:
    """Return the absolute output folder: the one given, else results/DATE-TIME right here.

    Raises
    ------
    ValueError
        If it holds results already.
    """
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    folder = Path(output_dir or f"results/{stamp}").expanduser().absolute()
    if (folder / "summary.json").exists():
        raise ValueError(
            f"output-dir is {folder}, which holds results already: name another folder, or move "
            "them away."
        )
    return folder


Reader = Callable[[str, Any], Any]


def _complain(key: str, value: Any, allowed: str) -> ValueError:
    shown = f'"{value}"' if isinstance(value, str) else value
    return ValueError(f"{key} is {shown}, but it must be {allowed}.")


def _number(
    kind: type[int] | type[float],
    low: float,
    high: float = float("inf"),
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> Reader:
    """Read an int or a float within bounds; TOML's and the command line's spellings both count."""
    what = "a whole number" if kind is int else "a number"
    allowed = f"{what} {'above' if low_open else 'of at least'} {low:g}"
    if high < float("inf"):
        allowed += f" and {'below' if high_open else 'at most'} {high:g}"

    def read(key: str, value: Any) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _complain(key, value, allowed)
        try:
            number = float(value)
        except ValueError:
            raise _complain(key, value, allowed) from None
        inside = (low < number if low_open else low <= number) and (
            number < high if high_open else number <= high
        )
        if not inside or number == float("inf") or (kind is int and number != int(number)):
            raise _complain(key, value, allowed)
        return kind(number)

    return read


def _one_of(names: Collection[str]) -> Reader:
    def read(key: str, value: Any) -> str:
        if value not in names:
            raise _complain(key, value, f"one of {', '.join(names)}")
        return str(value)

    return read


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _complain(key, value, "true or false")


def _word_or_count(*words: str) -> Reader:
    def read(key: str, value: Any) -> int | str:
        if value in words:
            return str(value)
        try:
            return int(_number(int, 1)(key, value))
        except ValueError:
            choices = " or ".join(f'"{word}"' for word in words)
            raise _complain(key, value, f"a whole number of at least 1, or {choices}") from None

    return read


def _client_count(key: str, value: Any) -> int:
    count = _word_or_count(ALL_CLIENTS)(key, value)
    return 0 if isinstance(count, str) else count


def _strategies(key: str, value: Any) -> tuple[str, ...]:
    names = tuple(name.strip() for name in str(value).split(","))
    for name in names:
        if name not in STRATEGIES:
            raise _complain(
                key, name, f"one of {', '.join(STRATEGIES)}, or several separated by commas"
            )
    if len(set(names)) < len(names):
        raise _complain(key, str(value), "without repetition (use repeats for more seeds)")
    return names


def _tasks(key: str, value: Any) -> str:
    if value != "":
        parse_tasks(str(value))
    return str(value)


def _text(key: str, value: Any) -> str:
    return str(value)


_READERS: dict[str, Reader] = {
    "strategy": _strategies,
    "repeats": _number(int, 1),
    "seed": _number(int, 0),
    "dataset": _one_of(DATASETS),
    "data-dir": _text,
    "num-clients": _client_count,
    "num-tasks": _number(int, 1),
    "tasks": _tasks,
    "partition": _one_of(PARTITIONS),
    "dirichlet-alpha": _number(float, 0, low_open=True),
    "minority": _number(float, 0, 1),
    "min-samples": _number(int, 1),
    "noise": _one_of(NOISES),
    "noise-rate": _number(float, 0, 1, high_open=True),
    "features": _one_of(FEATURES),
    "feature-weights": _text,
    "num-eigenvectors": _number(int, 1),
    "linkage": _one_of(LINKAGES),
    "num-clusters": _word_or_count(AUTO, AS_TASKS),
    "model": _one_of(("paper", *MODELS)),
    "optimizer": _one_of(OPTIMIZERS),
    "learning-rate": _number(float, 0, low_open=True),
    "momentum": _number(float, 0, 1, high_open=True),
    "weight-decay": _number(float, 0),
    "batch-size": _number(int, 1),
    "local-epochs": _number(int, 1),
    "num-server-rounds": _number(int, 1),
    "fraction-train": _number(float, 0, 1, low_open=True),
    "weighted-mean": _boolean,
    "evaluate-every": _number(int, 1),
    "output-dir": _text,
}
