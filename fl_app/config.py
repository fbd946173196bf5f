"""The run configuration: the only place that reads run-config values, and checks every one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from clients.privacy import PROJECTED, Promise
from clients.settings import (
    AUTO,
    CHOSEN_EIGENVECTORS,
    AcceleratorSettings,
    AttackSettings,
    EncoderSettings,
    FeatureSettings,
    PrivacySettings,
    SpectrumSettings,
    TrainingSettings,
)
from fl_app.own_strategies import add_named_strategies
from fl_core.options import (
    BOOLEAN,
    COUNT,
    NATURAL,
    POSITIVE,
    TEXT,
    NotAllowedError,
    Option,
    Rule,
    Scalar,
    did_you_mean,
    number,
    one_of,
    option,
    options_of,
    or_none,
    or_words,
    refusal,
)
from fl_core.protocol import CLASS_ENERGY
from fl_core.settings import (
    DATASET_WORDS,
    DATASETS,
    MODELS,
    SYNTHETIC,
    FederationSettings,
    is_dataset,
    paper_model,
)
from strategies.catalogue import AGGREGATIONS, CLUSTERINGS, SYSTEMS, parameters, system_of
from strategies.grouping import COUNT_RULES
from strategies.secure_aggregation import why_not
from strategies.spectral import AT_CLIENTS, AT_SERVER

TRACKERS = ("tensorboard", "mlflow", "wandb")
OWN_IMAGES = "own"
"""The data set of real devices: each has images of its own."""

CHECKPOINTS = "checkpoints"
WHOLE = "[!.]*.safetensors"
"""Checkpoints but not what a killed process had begun to write."""

ALL = "all"
AS_TASKS = "num-tasks"
AS_PAPER = "paper"

Settings = TypeVar("Settings")

_STRATEGY_WORDS = (
    f"one of {', '.join(SYSTEMS)}, or several separated by commas, or all; or a pair such as "
    "spectral+lps-gps"
)


def _parse_strategies(value: Any) -> tuple[str, ...]:
    if value == ALL:
        return tuple(SYSTEMS)
    if value == "":
        return ()
    names = tuple(name.strip() for name in str(value).split(","))
    for name in names:
        clustering, plus, aggregation = name.partition("+")
        if plus:
            one_of(CLUSTERINGS).read("clustering", clustering)
            one_of(AGGREGATIONS).read("aggregation", aggregation)
        elif name not in SYSTEMS:
            raise refusal("strategy", name, _STRATEGY_WORDS, SYSTEMS)
    if len(set(names)) < len(names):
        raise refusal("strategy", value, "without repetition (use repeats for more seeds)")
    return names


def _parse_dataset(value: Any) -> str:
    if not is_dataset(str(value)):
        raise NotAllowedError
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Config(
    AttackSettings,
    PrivacySettings,
    EncoderSettings,
    SpectrumSettings,
    FeatureSettings,
    FederationSettings,
    AcceleratorSettings,
    TrainingSettings,
):
    """What runs, on what, and how long: a checked run configuration.

    The fields are run-config keys, `-` written as `_`; `of_strategies` has those that clusterings
    and aggregations declare. `strategy` is a tuple of names, the pair that `clustering` and
    `aggregation` name included; `num_clients` is 0 for "all"; `num_clusters` is a number or a word.
    """

    strategy: tuple[str, ...] = option(
        "rcc-pfl,single",
        Rule(_STRATEGY_WORDS, _parse_strategies),
        "what to compare, on the same partitions",
    )
    clustering: str = option(
        "",
        one_of(("", *CLUSTERINGS)),
        "half of a pair of your own, run beside `strategy` (which may then be empty); where only "
        "one is named, the other is `spectral` or `mean`",
    )
    aggregation: str = option("", one_of(("", *AGGREGATIONS)), "the other half of that pair")
    num_clusters: int | str = option(
        AS_TASKS,
        or_words(COUNT, AUTO, AS_TASKS, *COUNT_RULES),
        "how many groups; `elbow`: where the dendrogram has its widest gap; `auto`: `elbow`, and "
        "`silhouette` for `fedhc`",
    )
    weighted_mean: bool | None = option(
        False,
        or_none(BOOLEAN, AS_PAPER),
        "weight clients by their number of images, in `mean`, `graph` and `lps-gps`; `paper`: as "
        "each strategy's paper does",
    )
    secure_aggregation: bool = option(
        False,
        BOOLEAN,
        "`true`: the server learns the sum over each cluster's models and no single one; for "
        "strategies that need no more, docs/privacy.md",
    )
    repeats: int = option(1, COUNT, "how many seeds, from `seed` on")
    seed: int = option(
        0,
        number(int, 0, 2**32 - 1),
        "decides partition, noise, first models, order of images, participants",
    )
    dataset: str = option(
        "mnist-5k",
        or_words(Rule(DATASET_WORDS, _parse_dataset, words=DATASETS), SYNTHETIC, OWN_IMAGES),
        "`rotated-mnist`: tasks are rotations; `synthetic`: needs no files, see `heterogeneity`; "
        "`own`: on real devices, each one's own images",
    )
    num_clients: int = option(
        ALL,
        or_words(COUNT, ALL),
        "SuperNodes that must be connected; with the data set `own`, that are waited for",
        default=0,
    )
    model: str = option(
        AS_PAPER,
        one_of((AS_PAPER, *MODELS)),
        "`paper`: the paper's for the data set; `mlp` has 200 hidden units",
    )
    num_server_rounds: int = option(
        10, NATURAL, "rounds of training; 0: only group the clients, docs/grouping.md"
    )
    fraction_train: float = option(
        1.0, number(float, 0, 1, low_open=True), "share of the clients that train in a round"
    )
    evaluate_every: int = option(
        1, COUNT, "test the models every so many rounds, and after the last"
    )
    fraction_evaluate: float = option(
        1.0, number(float, 0, 1, low_open=True), "share of the clients that test them then"
    )
    pre_round_deadline: float = option(
        3600.0,
        POSITIVE,
        "seconds to wait for each answer needed to find clusters; latecomers are named and asked "
        "again in later rounds",
    )
    round_deadline: float = option(
        3600.0, POSITIVE, "seconds to wait for training, and for testing"
    )
    min_answers: float = option(
        1.0,
        number(float, 0, 1, low_open=True),
        "share of the clients asked to train or test that must have answered; the others are then "
        "waited for as long again at most, and named; 1: all, until the deadline",
    )
    checkpoint_every: int = option(
        0, NATURAL, "rounds between checkpoints in the results folder; 0: none"
    )
    keep_spectra: bool = option(
        True,
        BOOLEAN,
        "`spectral`: keep the eigenvectors that clients shared in the results folder, for `fedkin "
        "place`: docs/privacy.md",
    )
    track: str = option(
        "none",
        one_of(("none", *TRACKERS)),
        "show each round elsewhere, while the run goes on: docs/watching.md",
    )
    resume: str = option("", TEXT, "the results folder of an interrupted run that is to go on")
    output_dir: str = option(
        "",
        TEXT,
        "folder for the results; empty: `results/DATE-TIME` where the SuperLink was started",
    )
    figure_format: str = option(
        "png", one_of(("png", "pdf", "svg")), "of the pictures: `pdf` and `svg` for papers"
    )
    of_strategies: Mapping[str, Any] = field(default_factory=dict)

    def federation_settings(self, num_clients: int, seed: int) -> FederationSettings:
        """Return what decides who holds which image, for one seed."""
        malicious = self.malicious if self.attack != "none" else 0.0
        return self._part(
            FederationSettings, num_clients=num_clients, seed=seed, malicious=malicious
        )

    def training_settings(self) -> TrainingSettings:
        """Return how a client trains."""
        return self._part(TrainingSettings)

    def promise(self) -> Promise:
        """Return what clients promise of what they share."""
        trainings = self.num_server_rounds * len(self.strategy) * self.repeats
        return self._part(Promise, rounds=self.num_server_rounds, most_trainings=trainings)

    def spent(self) -> dict[str, float]:
        """Return the ε and δ for one image of one client; empty without any noise.

        `pre-round-epsilon` counts once, as the matrix does on which a device adds noise,
        `training-epsilon` for each strategy on each seed, and each of these has `privacy-delta`.
        `epsilon` and `delta` are those of the whole run, their sums (basic composition). They are
        left out where something that leaves the clients has no noise: then there is no total.
        """
        parts = {
            f"{name}-epsilon": epsilon
            for name, epsilon in (
                ("pre-round", self.pre_round_epsilon),
                ("training", self.training_epsilon),
            )
            if epsilon
        }
        if not parts:
            return {}
        parts["privacy-delta"] = self.privacy_delta
        has_pre_round = _shares_eigenvectors(self.strategy)
        if not self.training_epsilon or (has_pre_round and not self.pre_round_epsilon):
            return parts
        trainings = len(self.strategy) * self.repeats
        return {
            **parts,
            "epsilon": self.pre_round_epsilon + trainings * self.training_epsilon,
            "delta": self.privacy_delta * (trainings + has_pre_round),
        }

    def _part(self, kind: type[Settings], **others: Any) -> Settings:
        names = {f.name for f in fields(kind)} - others.keys()  # type: ignore[arg-type]
        return kind(**{name: getattr(self, name) for name in names}, **others)

    def by_key(self) -> dict[str, Any]:
        """Return every option's value under its run-config key."""
        own = {key: getattr(self, _field_of(key)) for key in options_of(Config)}
        return {**own, **self.of_strategies}

    def as_run_config(self) -> dict[str, Scalar]:
        """Return the configuration under its run-config keys, as scalars."""
        values = {
            key: OPTIONS[key].rule.none if value is None else value
            for key, value in self.by_key().items()
        }
        values["strategy"] = ",".join(self.strategy)
        values["num-clients"] = self.num_clients or ALL
        return values


def _field_of(key: str) -> str:
    return key.replace("-", "_")


OF_STRATEGIES: dict[str, Option] = {
    key: one
    for half in (*CLUSTERINGS.values(), *AGGREGATIONS.values())
    for key, one in options_of(half).items()
}
"""What the catalogue's clusterings and aggregations declare, by run-config key."""

OPTIONS: dict[str, Option] = {**options_of(Config), **OF_STRATEGIES}


def parse_config(run_config: Mapping[str, Any]) -> Config:
    """Read and check a Flower run config: every key of `[tool.flwr.app.config]` in pyproject.toml.

    Raises
    ------
    ValueError
        For the first key that is unknown, missing or has a value that is not allowed: one sentence
        that names the key, the value and what is allowed.
    """
    add_named_strategies()
    unknown = sorted(set(run_config) - set(OPTIONS))
    if unknown:
        meant = did_you_mean(unknown[0], OPTIONS) or f"The keys are {', '.join(sorted(OPTIONS))}."
        raise ValueError(f"{unknown[0]} is not a run-config key. {meant} docs/options.md has all.")
    missing = sorted(set(OPTIONS) - set(run_config))
    if missing:
        raise ValueError(f"the run-config key {missing[0]} is missing: set it in pyproject.toml.")
    read = {key: one.rule.read(key, run_config[key]) for key, one in OPTIONS.items()}
    values = {_field_of(key): read[key] for key in options_of(Config)}
    if values["num_clients"] == ALL:
        values["num_clients"] = 0
    if values["num_eigenvectors"] == AUTO:
        values["num_eigenvectors"] = CHOSEN_EIGENVECTORS[values["relevance"]]
    if values["model"] == AS_PAPER:
        values["model"] = paper_model(values["dataset"])
    if values["clustering"] or values["aggregation"]:
        pair = f"{values['clustering'] or 'spectral'}+{values['aggregation'] or 'mean'}"
        values["strategy"] = tuple(dict.fromkeys([*values["strategy"], pair]))
    if not values["strategy"]:
        raise refusal("strategy", "", _STRATEGY_WORDS)
    if values["weighted_mean"]:
        _check_for_weights(values["strategy"])
    _check_for_privacy(values)
    if values["secure_aggregation"]:
        _check_for_secure_sums(values)
    if values["dataset"] == OWN_IMAGES:
        _check_for_devices(values)
    of_strategies = {key: read[key] for key in OF_STRATEGIES}
    _check_rounds(values, of_strategies["warm-up-rounds"])
    if (values["relevance"], of_strategies["relevance-at"]) == (CLASS_ENERGY, AT_SERVER):
        raise refusal(
            "relevance-at", AT_SERVER, f"{AT_CLIENTS} with {CLASS_ENERGY}, which needs their labels"
        )
    return Config(**values, of_strategies=of_strategies)


def _check_rounds(values: Mapping[str, Any], warm_up: int) -> None:
    """Check that what happens in a round does so before the last one."""
    rounds = values["num_server_rounds"]
    if not rounds:
        _check_for_grouping_alone(values)
    for what, count in (("newcomer", values["newcomers"]), ("drift", values["drift_clients"])):
        if count and values[f"{what}_round"] > rounds:
            allowed = f"at most num-server-rounds, which is {rounds}"
            raise refusal(f"{what}-round", values[f"{what}_round"], allowed)
    if warm_up >= rounds > 0:
        raise refusal("warm-up-rounds", warm_up, f"below num-server-rounds, which is {rounds}")


_ONE_SHOT = {"eigenvectors", "centroids"}  # what is shared to be grouped before any training


def one_shot(strategies: Sequence[str]) -> list[str]:
    """Return those strategies that ask clients before any training, and never need it."""
    return [name for name in strategies if system_of(name).clustering.shares in _ONE_SHOT]


def _check_for_grouping_alone(values: Mapping[str, Any]) -> None:
    """Refuse what cannot be without any training."""
    for name in values["strategy"]:
        if system_of(name).clustering.shares not in {*_ONE_SHOT, "nothing"}:
            raise ValueError(
                f"num-server-rounds is 0, which only groups clients, but {name} groups them while "
                "they train: choose a strategy that asks them once before, such as rcc-pfl, or at "
                "least 1 round."
            )
    if not one_shot(values["strategy"]):
        raise ValueError(
            "num-server-rounds is 0, which only groups clients, but "
            f"{', '.join(values['strategy'])} asks them nothing: choose rcc-pfl, mt-hfl, flt or "
            "pca-km-hc, or at least 1 round."
        )
    if values["track"] != "none":
        raise ValueError(
            f"track is {values['track']}, but num-server-rounds is 0, and only rounds are shown "
            "there: leave track out, or choose at least 1 round."
        )
    for key, usual in (("repeats", 1), ("training_epsilon", 0.0)):
        if values[key] != usual:
            raise refusal(
                key.replace("_", "-"), values[key], f"{usual:g} with num-server-rounds at 0"
            )


def _check_for_weights(strategies: Sequence[str]) -> None:
    if not any("weighted" in parameters(system_of(name).aggregation) for name in strategies):
        raise ValueError(
            f"weighted-mean is true, but {', '.join(strategies)} counts clients alike, since one "
            "may say anything of its number of images: set weighted-mean to false."
        )


def _check_for_privacy(values: Mapping[str, Any]) -> None:
    """Refuse what would share something without noise beside what has it."""
    asked = [key for key in ("pre-round-epsilon", "training-epsilon") if values[_field_of(key)]]
    if not asked:
        return
    protected = {"eigenvectors", "nothing"}
    if values["training_epsilon"]:
        protected.add("updates")
    for strategy in values["strategy"]:
        if system_of(strategy).clustering.shares not in protected:
            raise ValueError(
                f"{asked[0]} is {values[_field_of(asked[0])]:g}, and {strategy} shares things that "
                f"have no noise: leave that strategy out, or set {' and '.join(asked)} to 0."
            )
    if values["pre_round_epsilon"] and not _shares_eigenvectors(values["strategy"]):
        raise ValueError(
            f"pre-round-epsilon is {values['pre_round_epsilon']:g}, but no strategy of this run "
            "shares eigenvectors, which it protects: set it to 0, or add rcc-pfl."
        )
    if values["relevance"] == CLASS_ENERGY:
        raise refusal("relevance", CLASS_ENERGY, f"another with {asked[0]}: labels have no noise")
    if values["pre_round_epsilon"] and values["num_eigenvectors"] > PROJECTED:
        allowed = f"at most {PROJECTED} with pre-round-epsilon, which projects features to so many"
        raise refusal("num-eigenvectors", values["num_eigenvectors"], f"{allowed} dimensions")


def _shares_eigenvectors(strategies: Sequence[str]) -> bool:
    return any(system_of(one).clustering.shares == "eigenvectors" for one in strategies)


def _check_for_secure_sums(values: Mapping[str, Any]) -> None:
    """Refuse what needs single models, or sums the same updates over other clients once more.

    All strategies of a seed start from one model, and a round that is trained again repeats its
    updates: the difference of two such sums can be a single update.
    """
    for strategy in values["strategy"]:
        system = system_of(strategy)
        if reason := why_not(system.clustering, system.aggregation):
            raise ValueError(
                f"secure-aggregation is true, but {reason}: leave the strategy {strategy} out, or "
                "set secure-aggregation to false."
            )
    if len(values["strategy"]) > 1:
        raise ValueError(
            f"secure-aggregation is true, but strategy names {', '.join(values['strategy'])}, "
            "whose sums together can show single updates: name one, or set secure-aggregation to "
            "false."
        )
    for key, absent in (("resume", ""), ("checkpoint-every", 0)):
        if values[_field_of(key)] != absent:
            raise ValueError(
                f"secure-aggregation is true, but {key} is {values[_field_of(key)]}, and a round "
                "that is trained again can show single updates: leave it "
                f"{'empty' if absent == '' else f'at {absent}'}, or set secure-aggregation to "
                "false."
            )


# What only a simulation can have, and the value that stands for not having it.
_SIMULATED_ONLY: dict[str, Any] = {
    "tasks": "",
    "clients_per_task": "",
    "shift": "label",
    "noise": "none",
    "client_test": "task",
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
    there = ("summary.json", "grouping.json", CHECKPOINTS)
    if any((folder / name).exists() for name in there):
        raise ValueError(
            f"output-dir is {folder}, which holds results already: name another folder, move them "
            "away, or go on with an interrupted run by resume."
        )
    return folder
