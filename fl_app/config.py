"""The run configuration: the only place that reads run-config values, and checks every one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from clients.attacks import ATTACKS
from clients.autoencoder import PRETRAINING_DATASETS
from clients.features import FEATURES
from clients.spectrum import RELEVANCES, USUAL_EIGENVECTORS
from clients.training import OPTIMIZERS, TrainingSettings
from fl_core.datasets import DATASETS
from fl_core.federation import FederationSettings
from fl_core.models import MODELS, paper_model
from fl_core.noise import NOISES
from fl_core.partition import PARTITIONS, Kind, parse_tasks
from strategies.catalogue import AGGREGATIONS, CLUSTERINGS, SYSTEMS, system_of
from strategies.fedhc import DISTANCES, Distance
from strategies.flt import FINE_TUNE
from strategies.grouping import COUNT_RULES, LINKAGES

OWN_IMAGES = "own"
"""The data set of real devices: each has images of its own."""

CHECKPOINTS = "checkpoints"
WHOLE = "[!.]*.safetensors"
"""Checkpoints but not what a killed process had begun to write."""

EVERY_STRATEGY = "all"
ALL_CLIENTS = "all"
AUTO = "auto"
AS_TASKS = "num-tasks"
AS_PAPER = "paper"
NEVER = "never"


@dataclass(frozen=True)
class Config:
    """A checked run configuration; the fields are the run-config keys, `-` written as `_`.

    `strategy` is a tuple of names, the pair that `clustering` and `aggregation` name included;
    `num_clients` is 0 for "all"; `num_clusters` is a number or a word; `weighted_mean` is None for
    "paper" and `max_changed` is None for "never".
    """

    strategy: tuple[str, ...]
    clustering: str
    aggregation: str
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
    relevance: str
    sharing_noise: float
    linkage: str
    num_clusters: int | str
    update_distance: Distance
    common_layers: str
    local_rounds: int
    stop_reassociation: int
    encoder: str
    num_centroids: int
    num_components: int
    graph_threshold: float
    fine_tune: str
    fine_tune_epochs: int
    max_changed: int | None
    refresh_every: int
    cfl_mean_norm: float
    cfl_max_norm: float
    newcomers: int
    newcomer_round: int
    drift_clients: int
    drift_round: int
    attack: str
    malicious: float
    attack_scale: float
    model: str
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    local_epochs: int
    num_server_rounds: int
    fraction_train: float
    weighted_mean: bool | None
    evaluate_every: int
    pre_round_deadline: float
    round_deadline: float
    checkpoint_every: int
    resume: str
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
            newcomers=self.newcomers,
            newcomer_round=self.newcomer_round,
            drift_clients=self.drift_clients,
            drift_round=self.drift_round,
            malicious=self.malicious if self.attack != "none" else 0.0,
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
        values["weighted-mean"] = AS_PAPER if self.weighted_mean is None else self.weighted_mean
        values["max-changed"] = NEVER if self.max_changed is None else self.max_changed
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
    if values["num_eigenvectors"] == AUTO:
        values["num_eigenvectors"] = USUAL_EIGENVECTORS[values["relevance"]]
    if values["model"] == AS_PAPER:
        values["model"] = paper_model(values["dataset"])
    if values["clustering"] or values["aggregation"]:
        pair = f"{values['clustering'] or 'spectral'}+{values['aggregation'] or 'mean'}"
        values["strategy"] = tuple(dict.fromkeys([*values["strategy"], pair]))
    if not values["strategy"]:
        raise _complain("strategy", "", _STRATEGY_WORDS)
    if values["sharing_noise"]:
        _check_for_noise(values["strategy"])
    if values["dataset"] == OWN_IMAGES:
        _check_for_devices(values)
    for what in ("newcomer", "drift"):
        count = values["newcomers" if what == "newcomer" else "drift_clients"]
        if count and values[f"{what}_round"] > values["num_server_rounds"]:
            raise _complain(
                f"{what}-round",
                values[f"{what}_round"],
                f"at most num-server-rounds, which is {values['num_server_rounds']}",
            )
    return Config(**values)


def _check_for_noise(strategies: Sequence[str]) -> None:
    for strategy in strategies:
        if system_of(strategy).clustering.shares not in ("eigenvectors", "nothing"):
            raise ValueError(
                f"sharing-noise protects what spectral clustering shares, and {strategy} shares "
                "other things: leave that strategy out, or set sharing-noise to 0."
            )


# What only a simulation can have, and the value that stands for not having it.
_SIMULATED_ONLY: dict[str, Any] = {
    "tasks": "",
    "noise": "none",
    "newcomers": 0,
    "drift_clients": 0,
    "attack": "none",
}


def _check_for_devices(values: dict[str, Any]) -> None:
    """Refuse what needs to know the tasks of devices; the number of clusters is found."""
    for name, absent in _SIMULATED_ONLY.items():
        if values[name] != absent:
            raise ValueError(
                f'{name.replace("_", "-")} is {values[name]}, but dataset is "{OWN_IMAGES}", and '
                "that is for simulations only: leave it "
                f"{'empty' if absent == '' else f'at {absent}'}."
            )
    for strategy in values["strategy"]:
        if system_of(strategy).clustering.needs_tasks:
            raise ValueError(
                f'strategy names {strategy}, but dataset is "{OWN_IMAGES}", and nobody knows the '
                "tasks of real devices: choose a strategy that finds clusters, or single or local."
            )
    if values["num_clusters"] == AS_TASKS:
        values["num_clusters"] = AUTO


def output_folder(output_dir: str, resume: str = "") -> Path:
    """Return the absolute output folder: the one given, else results/DATE-TIME right here.

    A run that is resumed goes on in its own folder.

    Raises
    ------
    ValueError
        If it holds results already, or there is nothing to resume.
    """
    if resume:
        folder = Path(resume).expanduser().absolute()
        if output_dir and Path(output_dir).expanduser().absolute() != folder:
            raise ValueError(
                f"output-dir is {output_dir}, but resume is {resume}, and a resumed run goes on in "
                "its own folder: leave output-dir out."
            )
        if not any(folder.glob(f"{CHECKPOINTS}/{WHOLE}")):
            raise ValueError(
                f"resume is {resume}, but there is no checkpoint in {folder / CHECKPOINTS}: name "
                "the results folder of a run with checkpoint-every, or start anew without resume."
            )
        return folder
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    folder = Path(output_dir or f"results/{stamp}").expanduser().absolute()
    if (folder / "summary.json").exists() or (folder / CHECKPOINTS).exists():
        raise ValueError(
            f"output-dir is {folder}, which holds results already: name another folder, move them "
            "away, or go on with an interrupted run by resume."
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
            raise _complain(key, value, f"one of {', '.join(name or 'nothing' for name in names)}")
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


_STRATEGY_WORDS = (
    f"one of {', '.join(SYSTEMS)}, or several separated by commas, or all; or a pair such as "
    "spectral+lps-gps"
)


def _strategies(key: str, value: Any) -> tuple[str, ...]:
    if value == EVERY_STRATEGY:
        return tuple(SYSTEMS)
    if value == "":
        return ()
    names = tuple(name.strip() for name in str(value).split(","))
    for name in names:
        clustering, plus, aggregation = name.partition("+")
        if plus:
            _one_of(CLUSTERINGS)("clustering", clustering)
            _one_of(AGGREGATIONS)("aggregation", aggregation)
        elif name not in SYSTEMS:
            raise _complain(key, name, _STRATEGY_WORDS)
    if len(set(names)) < len(names):
        raise _complain(key, str(value), "without repetition (use repeats for more seeds)")
    return names


def _tasks(key: str, value: Any) -> str:
    if value != "":
        parse_tasks(str(value))
    return str(value)


def _word_or(word: str, read_other: Reader, allowed: str) -> Reader:
    """Read `word` as None, and anything else as `read_other` does."""

    def read(key: str, value: Any) -> Any:
        if value == word:
            return None
        try:
            return read_other(key, value)
        except ValueError:
            raise _complain(key, value, f'{allowed}, or "{word}"') from None

    return read


def _encoder(key: str, value: Any) -> str:
    if value in ("auto", *PRETRAINING_DATASETS) or str(value).endswith(".safetensors"):
        return str(value)
    raise _complain(
        key, value, f'a .safetensors file, "auto", or one of {", ".join(PRETRAINING_DATASETS)}'
    )


def _layers(key: str, value: Any) -> str:
    names = [name.strip() for name in str(value).split(",")]
    if all(name.replace(".", "_").isidentifier() for name in names):
        return ",".join(names)
    raise _complain(key, value, '"paper", "conv", or names of modules separated by commas')


def _text(key: str, value: Any) -> str:
    return str(value)


_READERS: dict[str, Reader] = {
    "strategy": _strategies,
    "clustering": _one_of(("", *CLUSTERINGS)),
    "aggregation": _one_of(("", *AGGREGATIONS)),
    "repeats": _number(int, 1),
    "seed": _number(int, 0),
    "dataset": _one_of((*DATASETS, OWN_IMAGES)),
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
    "num-eigenvectors": _word_or_count(AUTO),
    "relevance": _one_of(RELEVANCES),
    "sharing-noise": _number(float, 0, 1000),
    "linkage": _one_of(LINKAGES),
    "num-clusters": _word_or_count(AUTO, AS_TASKS, *COUNT_RULES),
    "update-distance": _one_of(DISTANCES),
    "common-layers": _layers,
    "local-rounds": _number(int, 1),
    "stop-reassociation": _number(int, 0),
    "encoder": _encoder,
    "num-centroids": _number(int, 1),
    "num-components": _number(int, 1),
    "graph-threshold": _number(float, 0),
    "fine-tune": _one_of(FINE_TUNE),
    "fine-tune-epochs": _number(int, 1),
    "max-changed": _word_or(NEVER, _number(int, 0), "a whole number of at least 0"),
    "refresh-every": _number(int, 0),
    "cfl-mean-norm": _number(float, 0, low_open=True),
    "cfl-max-norm": _number(float, 0),
    "newcomers": _number(int, 0),
    "newcomer-round": _number(int, 2),
    "drift-clients": _number(int, 0),
    "drift-round": _number(int, 1),
    "attack": _one_of(ATTACKS),
    "malicious": _number(float, 0, 1, low_open=True, high_open=True),
    "attack-scale": _number(float, -1000, 1000),
    "model": _one_of(("paper", *MODELS)),
    "optimizer": _one_of(OPTIMIZERS),
    "learning-rate": _number(float, 0, low_open=True),
    "momentum": _number(float, 0, 1, high_open=True),
    "weight-decay": _number(float, 0),
    "batch-size": _number(int, 1),
    "local-epochs": _number(int, 1),
    "num-server-rounds": _number(int, 1),
    "fraction-train": _number(float, 0, 1, low_open=True),
    "weighted-mean": _word_or(AS_PAPER, _boolean, "true or false"),
    "evaluate-every": _number(int, 1),
    "pre-round-deadline": _number(float, 0, low_open=True),
    "round-deadline": _number(float, 0, low_open=True),
    "checkpoint-every": _number(int, 0),
    "resume": _text,
    "output-dir": _text,
}
