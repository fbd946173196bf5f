"""The run configuration: reads and checks every run-config value."""

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from clients.features.dimensions import chosen_features
from clients.privacy import Promise
from clients.settings import (
    AUTO,
    AcceleratorSettings,
    AttackSettings,
    EncoderSettings,
    FeatureSettings,
    PrivacySettings,
    SpectrumSettings,
    TrainingSettings,
)
from fl_app.config.keywords import ALL, AS_PAPER, TRIAL, resolve_keywords
from fl_app.config.rules import (
    LAST_SEED,
    broken_rules,
    broken_secure_sums,
    field_of,
    shares_eigenvectors,
)
from fl_app.config.tuning import AS_TASKS, NUMBER_OF_CLUSTERS, TUNE, num_trainings
from fl_core.data.dataset_info import num_sites
from fl_core.data.samples import SampleKind
from fl_core.data.settings import DATASET, MODELS, REAL_DEVICES, SYNTHETIC
from fl_core.objectives.known import OBJECTIVES, USUAL
from fl_core.options import (
    BOOLEAN,
    BY_STRATEGY,
    COUNT,
    NATURAL,
    POSITIVE,
    SHARE,
    TEXT,
    Option,
    Refusals,
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
from fl_core.partitions.settings import FederationSettings
from fl_core.relevance import USUAL_EIGENVECTORS
from fl_core.user_code import is_import_path, or_import_path
from strategies.catalogue import (
    AGGREGATIONS,
    CLUSTERINGS,
    SYSTEMS,
    is_user_defined,
    parameters,
    system_of,
    user_options,
)
from strategies.clusterings.spectral import SpectralClustering

TRACKERS = ("tensorboard", "mlflow", "wandb")

PAPER_CLIENTS = 25  # the number of simulated clients if neither the user nor the data set gives one
USUAL_VALUES: Mapping[str, Scalar] = {
    "num-clusters": AS_TASKS,
    "relevance": SpectralClustering.relevance,
    "relevance-at": SpectralClustering.relevance_at,
    "outliers": SpectralClustering.outliers,
}
"""What `by-strategy` means unless a strategy's line in the catalogue says otherwise, by key."""

Settings = TypeVar("Settings")

_STRATEGY_WORDS = (
    f"one of {', '.join(SYSTEMS)}, several separated by commas, or all (those without a "
    "special local objective); or parts such as spectral+lps-gps or spectral+mean+ditto, each of "
    "which may be user-defined as MODULE:NAME"
)


def _parse_strategies(value: Any) -> tuple[str, ...]:
    if value == ALL:
        return tuple(name for name, system in SYSTEMS.items() if system.objective in USUAL)
    names = tuple(name.strip() for name in str(value).split(","))
    for name in names:
        clustering, plus, others = name.partition("+")
        aggregation, third, objective = others.partition("+")
        if plus:
            if clustering in SYSTEMS and clustering not in CLUSTERINGS:
                part = SYSTEMS[clustering].clustering.name
                raise ValueError(
                    f'strategy is "{name}", but the clustering of {clustering} is called {part}: '
                    f"write {part}+{others or 'mean'}."
                )
            or_import_path(one_of(CLUSTERINGS)).read("strategy's clustering", clustering)
            or_import_path(one_of(AGGREGATIONS)).read("strategy's aggregation", aggregation)
            if third:
                or_import_path(one_of(OBJECTIVES)).read("strategy's local objective", objective)
        elif name not in SYSTEMS and not is_import_path(name):
            raise refusal("strategy", name, _STRATEGY_WORDS, SYSTEMS)
    if len(set(names)) < len(names):
        raise refusal("strategy", value, "without repetition (use repeats for more seeds)")
    return names


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

    The fields are run-config keys, `-` written as `_`; `of_strategies` has the options of parts of
    strategies. `num_clients` is 0 for "all".
    """

    strategy: tuple[str, ...] = option(
        "rcc-pfl,single",
        Rule(_STRATEGY_WORDS, _parse_strategies),
        "what to compare, on the same partitions",
    )
    num_clusters: int | str = option(
        BY_STRATEGY,
        or_words(NUMBER_OF_CLUSTERS, BY_STRATEGY),
        f"how many groups; `{BY_STRATEGY}`: `auto` with `fedkin`, otherwise `{AS_TASKS}`; `elbow`: "
        "where the dendrogram has its widest gap, never one; `auto`: one or more, by relevance, "
        "docs/grouping.md; of strategies without it `elbow`, and of `fedhc` `silhouette`",
    )
    weighted_mean: bool | None = option(
        AS_PAPER,
        or_none(BOOLEAN, AS_PAPER),
        "weight clients by their number of samples, in `mean`, `graph` and `lps-gps`; `paper`: as "
        "each strategy's paper does (docs/methods.md#local-objectives)",
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
        number(int, 0, LAST_SEED),
        "decides partition, noise, initial models, order of samples, participants",
    )
    dataset: str = option(
        "mnist-5k",
        or_import_path(or_words(DATASET, SYNTHETIC, REAL_DEVICES)),
        "`rotated-mnist`: tasks are rotations; `synthetic`: needs no files, see `heterogeneity`; "
        "`devices`: the local samples of real devices; samples of any shape: docs/own-code.md",
    )
    num_clients: int = option(
        ALL,
        or_words(COUNT, ALL),
        "SuperNodes that must be connected; with the data set `devices`, to wait for; `all` in "
        "`fedkin run`: 25, or as many as the data set has",
        default=0,
    )
    model: str = option(
        AS_PAPER,
        or_import_path(one_of((AS_PAPER, *MODELS))),
        "`paper`: the paper's for the data set, `mlp` for user-defined data; `mlp` has 200 hidden "
        "units; user-defined models: docs/own-code.md",
    )
    num_server_rounds: int = option(
        10,
        or_words(NATURAL, TRIAL),
        "rounds of training; 0: only group the clients, docs/grouping.md; `trial`: at most 20, "
        "fewer if validation samples show it, docs/verdicts.md",
    )
    fraction_train: float = option(1.0, SHARE, "share of the clients that train in a round")
    evaluate_every: int = option(
        1, COUNT, "test the models every so many rounds, and after the last"
    )
    early_stopping: int = option(
        0,
        NATURAL,
        "end a strategy after so many tests in a row without a better score or loss on most "
        "clients' validation samples; 0: never",
        needs="validation-share",
    )
    tune: str = option(
        "",
        TUNE,
        "values that each strategy tries, such as `learning-rate=0.001,0.003 ditto-weight=0.1,1`; "
        "the best on clients' validation samples is reported: docs/verdicts.md",
        needs="validation-share",
    )
    validation_folds: int = option(
        1,
        COUNT,
        "train each strategy so often, each time with another `validation-share` of the samples "
        "held out, and count all of them; a small `fedkin trial` has 5: docs/verdicts.md",
        needs="validation-share",
    )
    fraction_evaluate: float = option(1.0, SHARE, "share of the clients that test the models")
    pre_round_deadline: float = option(
        3600.0,
        POSITIVE,
        "seconds to wait for each answer needed to find clusters; late clients are named and "
        "asked again in later rounds",
    )
    round_deadline: float = option(3600.0, POSITIVE, "seconds to wait for training or testing")
    min_answers: float = option(
        1.0,
        SHARE,
        "share of the clients of a round whose answers it waits for; then it waits at most as long "
        "again for the others, and names them; 1: all, until the deadline",
    )
    checkpoint_every: int = option(
        0, NATURAL, "rounds between checkpoints in the results folder; 0: none"
    )
    keep_spectra: bool = option(
        True,
        BOOLEAN,
        "`spectral`: store the eigenvectors that clients shared in the results folder, for "
        "`fedkin place`: docs/privacy.md",
    )
    track: str = option(
        "none",
        one_of(("none", *TRACKERS)),
        "show each round in a tracker while the run goes on: docs/simulation.md",
    )
    resume: str = option("", TEXT, "the results folder of an interrupted run to resume")
    output_dir: str = option(
        "",
        TEXT,
        "folder for the results; empty: `results/DATE-TIME` where the SuperLink was started",
    )
    figure_format: str = option(
        "png", one_of(("png", "pdf", "svg")), "format of the pictures; `pdf` and `svg` for papers"
    )
    of_strategies: Mapping[str, Any] = field(default_factory=dict)

    def federation_settings(self, num_clients: int, seed: int, fold: int = 0) -> FederationSettings:
        """Return the settings that decide which client has which samples, for one seed."""
        decided = {"num_clients": num_clients, "seed": seed, "validation_fold": fold}
        malicious = self.malicious if self.attack != "none" else 0.0
        return self._part(FederationSettings, malicious=malicious, **decided)

    def training_settings(self) -> TrainingSettings:
        """Return how a client trains."""
        return self._part(TrainingSettings)

    def promise(self) -> Promise:
        """Return clients' privacy promises."""
        trainings = self.num_server_rounds * len(self.strategy) * self.repeats
        return self._part(Promise, rounds=self.num_server_rounds, most_trainings=trainings)

    @property
    def num_trainings(self) -> int:
        """Return how many trainings of a strategy there are, of all values, folds and seeds."""
        return num_trainings(self.tune, self.strategy) * self.validation_folds * self.repeats

    @cached_property
    def simulated_clients(self) -> int:
        """Return the number of clients: as given, of the data set's partition, or the paper's."""
        return self.num_clients or num_sites(self.dataset, self.data_dir) or PAPER_CLIENTS

    def eigenvectors(self, default: object = None) -> int:
        """Return how many eigenvectors a client shares; `auto` is `default` or the usual number."""
        if self.num_eigenvectors != AUTO:
            return int(self.num_eigenvectors)
        return default if isinstance(default, int) else USUAL_EIGENVECTORS[self.relevance]

    def for_samples(self, kind: SampleKind) -> "Config":
        """Return the configuration with the features that `auto` stands for with such samples."""
        name = chosen_features(self.features, kind.sample_shape, is_float=kind.is_float)
        return replace(self, features=name)

    def with_values(self, values: Mapping[str, Any]) -> "Config":
        """Return the configuration with other values of options, by run-config key."""
        of_strategies = {key: values.get(key, value) for key, value in self.of_strategies.items()}
        others = {field_of(key): values[key] for key in values if key not in of_strategies}
        return replace(self, **others, of_strategies=of_strategies)

    def for_strategies(self, *names: str) -> "Config":
        """Return the configuration with what `by-strategy` means for these strategies.

        It stays where they disagree; a strategy that does not use an option agrees with all.
        """
        given, systems, found = self.by_key(), [system_of(name) for name in names], {}
        for key, usual in USUAL_VALUES.items():
            field_name = field_of(key)
            users = [one for one in systems if field_name in parameters(one.clustering)]
            values = {one.options.get(field_name, usual) for one in users} or {usual}
            if given[key] == BY_STRATEGY and len(values) == 1:
                found[key] = values.pop()
        return self.with_values(found)

    def options_of_line(self, name: str) -> dict[str, Scalar]:
        """Return the values of the options that a strategy's line in the catalogue decides."""
        values = self.for_strategies(name).by_key()
        decided = system_of(name).options
        return {key: values[key] for key in USUAL_VALUES if field_of(key) in decided}

    def spent(self) -> dict[str, float]:
        """Return the ε and δ for one sample of one client; empty without any noise.

        `pre-round-epsilon` is spent once, on the matrix that gets noise, and `training-epsilon` for
        each strategy on each seed, each with `privacy-delta`. `epsilon` and `delta` are their sums
        (basic composition) for the whole run. They are left out if anything that leaves the clients
        has no noise.
        """
        given = {"pre-round": self.pre_round_epsilon, "training": self.training_epsilon}
        parts = {f"{name}-epsilon": epsilon for name, epsilon in given.items() if epsilon}
        if not parts:
            return {}
        parts["privacy-delta"] = self.privacy_delta
        has_pre_round = shares_eigenvectors(self.strategy)
        noisy = self.training_epsilon and (self.pre_round_epsilon or not has_pre_round)
        if not noisy or self.validation_share:  # comparisons of models have no noise
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
        values = {key: getattr(self, field_of(key)) for key in options_of(Config)}
        return {**values, **self.of_strategies}

    def as_run_config(self) -> dict[str, Scalar]:
        """Return the configuration under its run-config keys, as scalars."""
        options = options_for(self.strategy)
        values = {
            key: options[key].rule.none if value is None else value
            for key, value in self.by_key().items()
        }
        values["strategy"] = ",".join(self.strategy)
        values["num-clients"] = self.num_clients or ALL
        return values


OF_STRATEGIES: dict[str, Option] = {
    key: one
    for part in (*CLUSTERINGS.values(), *AGGREGATIONS.values(), *OBJECTIVES.values())
    for key, one in options_of(part).items()
}
"""The options of parts of the catalogue's strategies, by run-config key."""

OPTIONS: dict[str, Option] = {**options_of(Config), **OF_STRATEGIES}

DEFAULTS: dict[str, Scalar] = {key: one.default for key, one in OPTIONS.items()}


def options_for(strategies: Iterable[str]) -> dict[str, Option]:
    """Return all options by run-config key, with those of strategies' user-defined parts."""
    found = user_options(strategies)
    for key in found.keys() & OPTIONS:
        theirs, ours = found[key], OPTIONS[key]
        if (theirs.default, theirs.rule.allowed) != (ours.default, ours.rule.allowed):
            raise ValueError(
                f"a user-defined part declares the option {key}, which the app has with another "
                "default or other values: give it another key."
            )
    return {**OPTIONS, **found}


def parse_config(run_config: Mapping[str, Any], *, at_client: bool = False) -> Config:
    """Read and check a Flower run config: every key of `[tool.flwr.app.config]` in pyproject.toml.

    User-defined strategies are imported, except `at_client`, which runs none and reads none of
    their options. A ValueError has a sentence for each wrong key or value and each contradiction.
    """
    wrong, options, names = Refusals(), OPTIONS, tuple[str, ...]()
    with suppress(ValueError):  # it is read again below
        names = OPTIONS["strategy"].rule.read("strategy", run_config.get("strategy"))
    imports_nothing = at_client and any(map(is_user_defined, names))
    if not imports_nothing:
        with wrong:
            options = options_for(names)
        wrong.extend(_unknown(key, options) for key in sorted(run_config.keys() - options))
    if missing := sorted(set(OPTIONS) - set(run_config)):
        wrong.append(f"the run-config key {missing[0]} is missing: set it in pyproject.toml.")
    read = {}
    for key in (key for key in options if key not in missing):
        with wrong:
            read[key] = options[key].rule.read(key, run_config.get(key, options[key].default))
    wrong.refuse()
    values = {field_of(key): read[key] for key in options_of(Config)}
    with wrong:
        values = resolve_keywords(values)
    wrong.refuse()
    of_strategies = {key: read[key] for key in options if key not in options_of(Config)}
    # Where a client does not import the strategies, only the server checks what they need.
    if not imports_nothing:
        with wrong:
            for name in values["strategy"]:
                system_of(name)
        wrong.refuse()  # the rules need to know all strategies
        wrong.extend(broken_rules(values))
    else:
        wrong.extend(broken_secure_sums(values))
    wrong.refuse()
    return Config(**values, of_strategies=of_strategies)


def parse_override(word: str) -> tuple[str, Any]:
    """Read KEY=VALUE; it is text where the default is, or where it is not a TOML scalar."""
    key, separator, value = word.partition("=")
    if not separator:
        raise ValueError(f"{word} is not of the form KEY=VALUE, such as repeats=3.")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
    if isinstance(read, str):
        return key, read
    is_text = isinstance(DEFAULTS.get(key), str)
    return key, value if is_text or not isinstance(read, int | float | bool) else read


def _unknown(key: str, options: Iterable[str]) -> str:
    meant = did_you_mean(key, options) or f"The keys are {', '.join(sorted(options))}."
    return f"{key} is not a run-config key. {meant} docs/options.md has all."
