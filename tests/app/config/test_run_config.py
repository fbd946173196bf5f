import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.writing import run_of
from fl_app.config.run_config import OPTIONS, parse_config, parse_override
from fl_app.report.tables import printed_strategies
from fl_app.report.text_table import render
from fl_core.objectives.known import USUAL
from strategies.catalogue import SYSTEMS
from tests.report_data import read_runs

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEFAULTS = PYPROJECT["tool"]["flwr"]["app"]["config"]


def config(**overrides):
    return parse_config(
        {**DEFAULTS, **{key.replace("_", "-"): value for key, value in overrides.items()}}
    )


def test_the_defaults_are_valid():
    found = config()
    assert found.strategy == ("rcc-pfl", "single")
    assert found.num_clients == 0
    assert found.model == "logistic-regression"


def test_all_strategies_are_those_of_the_catalogue():
    usual = tuple(name for name, one in SYSTEMS.items() if one.objective in USUAL)
    assert config(strategy="all").strategy == usual


def test_parts_are_named_as_a_strategy():
    text = "spectral+lps-gps , cfl,single+mean+plain"
    assert config(strategy=text).strategy == ("spectral+lps-gps", "cfl", "single+mean+plain")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"strategy": ""}, r'strategy is "", but it must be one of rcc-pfl'),
        ({"strategy": "spectral+"}, r'aggregation is "", but it must be one of mean, graph, lps'),
        ({"strategy": "+mean"}, r'clustering is "", but it must be one of spectral, fedkin, '),
        ({"strategy": "mean+spectral"}, r'clustering is "mean", but it must be one of spectral'),
        (
            {"strategy": "rcc-pfl+median"},
            r"but the clustering of rcc-pfl is called spectral: write spectral\+median",
        ),
        ({"strategy": "all,local"}, r'strategy is "all", but it must be one of rcc-pfl'),
        ({"strategy": "own+mean,own+mean"}, "without repetition"),
        ({"newcomers": 1, "newcomer_round": 11}, "newcomer-round is 11, .* which is 10"),
        (
            {"newcomers": 1, "early_stopping": 2, "validation_share": 0.2},
            "early-stopping is 2, but it must be 0 with newcomers",
        ),
        ({"drift_clients": 2, "num_server_rounds": 4}, "drift-round is 5, .* which is 4"),
        ({"dataset": "devices", "client_test": "own"}, "client-test is own, .* simulations only"),
        (
            {"strategy": "flt", "training_epsilon": 2},
            "training-epsilon is 2, but flt shares things",
        ),
        ({"strategy": "fedhc", "pre_round_epsilon": 2}, "epsilon is 2, but fedhc shares things"),
        ({"strategy": "rcc-pfl,pca-km-hc", "training_epsilon": 2}, "but pca-km-hc shares things"),
        (
            {"pre_round_epsilon": 1, "num_eigenvectors": 33},
            "num-eigenvectors is 33, but it must be at most 32 with pre-round-epsilon",
        ),
        (
            {"pre_round_epsilon": 1, "standardise": "site", "dataset": "devices"},
            "standardise is site, but pre-round-epsilon is 1, and means and deviations",
        ),
        (
            {"training_epsilon": 1, "dataset": "tables", "strategy": "single"},
            "standardise is all, but training-epsilon is 1, .* set standardise to none",
        ),
        (
            {"pre_round_epsilon": 1, "strategy": "single,local"},
            "pre-round-epsilon is 1, but it protects eigenvectors, which no strategy",
        ),
        (
            {"pre_round_epsilon": 1, "strategy": "rcc-pfl,pacfl"},
            "pre-round-epsilon is 1, but pacfl compares raw .* it twice: set features to raw,",
        ),
        (
            {"weighted_mean": True, "strategy": "spectral+median,update+krum"},
            r"^weighted-mean is true, but spectral\+median",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        config(**keys)


@pytest.mark.parametrize("keys", [{"features": "raw"}, {"strategy": "pacfl,single"}])
def test_strategies_that_compare_the_same_share_one_noisy_matrix(keys):
    keys = {"pre_round_epsilon": 1, "strategy": "rcc-pfl,pacfl", **keys}
    assert config(**keys).spent()["pre-round-epsilon"] == 1


def test_auto_eigenvectors_are_the_usual_ones_of_the_relevance_or_of_the_clustering():
    assert config(relevance="paper").eigenvectors() == 20
    assert config(relevance="missed-energy").eigenvectors() == 5
    assert config(relevance="missed-energy").eigenvectors(3) == 3
    assert config(relevance="missed-energy", num_eigenvectors="9").eigenvectors(3) == 9


def test_paper_and_never_stand_for_no_value():
    weighted = [config(weighted_mean=w).weighted_mean for w in ("paper", "true", False)]
    assert weighted == [None, True, False]
    changed = [config(max_changed=m).of_strategies["max-changed"] for m in ("never", 0, "3")]
    assert changed == [None, 0, 3]


def test_without_an_attack_nobody_is_malicious():
    assert config(malicious=0.4).federation_settings(10, 0).malicious == 0
    assert config(malicious=0.4, attack="sign-flip").federation_settings(10, 0).malicious == 0.4


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "optimum, local", "num_clients": 7, "num_clusters": "auto"},
        {"strategy": "update+lps-gps"},
        {"strategy": "fedrep,spectral+mean+ditto", "private_layers": "conv1, conv2"},
        {"weighted_mean": "true", "max_changed": "never", "num_clusters": "elbow"},
        {"weighted_mean": False, "max_changed": 2, "num_clusters": "silhouette"},
        {"common_layers": "conv1, conv2", "encoder": "fashion-mnist", "relevance": "missed-energy"},
        {"encoder": "/a/b.safetensors", "attack": "scaled-update", "attack_scale": -10},
    ],
)
def test_what_is_saved_can_be_run_again(keys):
    found = config(**keys)
    saved = found.as_run_config()
    assert set(saved) == set(DEFAULTS)
    assert parse_config(saved) == found
    assert parse_config(saved).as_run_config() == saved


def test_the_page_of_simulations_lists_a_dozen_keys_with_their_defaults():
    page = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| `([^`]*)` \|", page, re.MULTILINE))
    options = {key: value.strip('"') for key, value in listed.items() if key in DEFAULTS}
    assert len(options) == 13
    assert options == {key: str(DEFAULTS[key]) for key in options}


def test_the_readme_shows_the_table_of_the_committed_run():
    summary = run_of("make-run")
    table = render(printed_strategies(read_runs(summary["runs"])))
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
    by_name = {row["strategy"]: row["accuracy-mean"] for row in summary["table"]}
    assert abs(by_name["rcc-pfl"] - by_name["optimum"]) < 0.01
    assert by_name["rcc-pfl"] > by_name["fedavg"] + 0.05


def test_the_readme_says_how_close_training_alone_comes():
    """On clients' own data, with right labels."""
    noisy, clean = (run_of(name) for name in ("make-run", "make-run-clean-labels"))
    changed = {key for key, value in noisy["config"].items() if clean["config"][key] != value}
    assert changed == {"noise"}
    right = {row["strategy"]: row["accuracy-on-its-own-data-mean"] for row in clean["table"]}
    grouped, alone = 100 * right["rcc-pfl"], 100 * right["local"]
    text = f"reaches {grouped:.1f} % on clients' own data and *local* {alone:.1f} %"
    assert text in (ROOT / "README.md").read_text(encoding="utf-8")
    assert right["fedavg"] < right["local"] < right["rcc-pfl"]


def test_a_long_name_of_parts_is_broken_before_its_last_part():
    summary = run_of("make-run")
    runs = [{**run, "strategy": "single+mean+private-layers"} for run in summary["runs"]]
    lines = render(printed_strategies(read_runs(runs))).splitlines()
    names = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert names == ["single+mean", "+private-layers"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("strategy", "rcc-pfl,fedave", 'strategy is "fedave", but it must be one of rcc-pfl, fedk'),
        ("noise-rate", 1, "noise-rate is 1, but it must be a number of at least 0 and below 1"),
        ("noise-rate", float("nan"), "noise-rate is nan"),
        ("repeats", True, "repeats is True"),
        ("num-clients", 0, 'num-clients is 0, but it must be a whole number of at least 1, or "al'),
        ("num-clusters", "many", 'or "auto" or "num-tasks" or "elbow" or "silhouette"'),
        ("tasks", "0,1|1,1", "label 1 stands twice"),
        ("clients-per-task", "5,0", "numbers of at least 1 by commas"),
        ("dirichlet-alpha", float("inf"), "dirichlet-alpha is inf"),
        ("num-eigenvectors", "all", 'num-eigenvectors is "all", .* at least 1, or "auto"'),
        (
            "weighted-mean",
            "yes",
            'weighted-mean is "yes", but it must be true or false, or "paper"',
        ),
        ("common-layers", "", 'common-layers is "", but it must be "paper", or names of'),
        ("encoder", "resnet18", 'encoder is "resnet18", .* a .safetensors file, "auto", or one of'),
        ("max-changed", -1, 'max-changed is -1, .* whole number of at least 0, or "never"'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(key, value, message):
    with pytest.raises(ValueError, match=re.escape(message) if "(" in message else message):
        parse_config({**DEFAULTS, key: value})


BEYOND = {"at least": -1, "above": 0, "below": 0, "at most": 1}
BOUND = re.compile(rf"({'|'.join(BEYOND)}) (-?\d[\d.]*(?:e-?\d+)?)")
WRONG = [
    (key, float(bound) + BEYOND[side])
    for key, one in OPTIONS.items()
    for side, bound in BOUND.findall(one.rule.allowed)
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_what_is_beyond_the_bounds_that_the_page_of_options_has(key, value):
    with pytest.raises(ValueError, match=rf"^{key} is "):
        OPTIONS[key].rule.read(key, value)


def test_unknown_and_missing_keys():
    with pytest.raises(
        ValueError, match=r"learning-rat is not a run-config key\. Did you mean learning-rate\?"
    ):
        parse_config({**DEFAULTS, "learning-rat": 1})
    with pytest.raises(ValueError, match="the run-config key seed is missing"):
        parse_config({key: value for key, value in DEFAULTS.items() if key != "seed"})


FREE_TEXT = {"data-dir", "label", "output-dir", "resume"}


@pytest.mark.parametrize("key", sorted({*DEFAULTS} - FREE_TEXT))
def test_no_key_takes_everything(key):
    with pytest.raises(ValueError, match=f"^{key} is "):
        parse_config({**DEFAULTS, key: "no such thing"})


def test_numbers_may_come_as_text_or_as_the_other_kind():
    found = config(repeats="3", learning_rate=1, seed=2.0, weighted_mean="true")
    assert (found.repeats, found.learning_rate, found.seed) == (3, 1.0, 2)
    assert isinstance(found.seed, int)
    assert found.weighted_mean is True
    for share in (0.02, "0.02", 0.9, "0.9"):  # the bounds are within
        assert config(dataset="watch", train_share=share).train_share == float(share)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeats=3", ("repeats", 3)),
        ('tasks="0,1|2,3"', ("tasks", "0,1|2,3")),
        ("secure-aggregation=true", ("secure-aggregation", True)),
        ("learning-rate=5e-5", ("learning-rate", 5e-5)),
        ("output-dir=2026-11-21", ("output-dir", "2026-11-21")),
        ("output-dir=2024.10", ("output-dir", "2024.10")),
        ("data-dir=true", ("data-dir", "true")),
    ],
)
def test_overrides_on_the_command_line(text, expected):
    assert parse_override(text) == expected
    with pytest.raises(ValueError, match="repeats is not of the form KEY=VALUE"):
        parse_override("repeats")


def test_the_last_seed_is_one_that_seeds_can_be():
    largest = 2**32 - 1
    assert config(seed=largest).seed == config(seed=largest - 1, repeats=2).seed + 1
    wrong = "the last seed would be 4294967296, and seeds are at most 4294967295: choose"
    with pytest.raises(ValueError, match=f"seed is {largest}, but repeats is 2, {wrong}"):
        config(seed=largest, repeats=2)


def test_what_both_parts_spend_is_added_up_over_strategies_and_seeds():
    options = {"pre_round_epsilon": 0.5, "training_epsilon": 2, "privacy_delta": 1e-6}
    parts = {"pre-round-epsilon": 0.5, "training-epsilon": 2, "privacy-delta": 1e-6}
    one = config(**options, strategy="rcc-pfl").spent()
    assert one == {**parts, "epsilon": 2.5, "delta": 2e-6}
    # Two strategies on three seeds train six times.
    six = config(**options, strategy="rcc-pfl,single", repeats=3).spent()
    assert six == {**parts, "epsilon": 12.5, "delta": pytest.approx(7e-6)}
    assert config().spent() == {}
    assert config(strategy="fedhc", training_epsilon=2).spent()["training-epsilon"] == 2


def test_what_is_spent_has_no_total_if_something_has_no_noise():
    delta = {"privacy-delta": 1e-5}
    for strategy in ("rcc-pfl", "single,rcc-pfl"):
        pre_round = config(pre_round_epsilon=0.5, strategy=strategy).spent()
        assert pre_round == {"pre-round-epsilon": 0.5, **delta}  # models have none
        training = config(training_epsilon=2, strategy=strategy).spent()
        assert training == {"training-epsilon": 2, **delta}  # eigenvectors have none
    # Without a pre-round, the models are all there is.
    alone = config(training_epsilon=2, strategy="single").spent()
    assert alone == {"training-epsilon": 2, **delta, "epsilon": 2, "delta": 1e-5}
    # Models are compared on validation samples as they are.
    compared = config(training_epsilon=2, strategy="single,local", validation_share=0.2).spent()
    assert compared == {"training-epsilon": 2, **delta}


def test_a_wrong_word_is_refused_before_pytorch_is_loaded():
    """All in one process: what the last one finds unloaded, none before it loaded."""
    wrong = ("num-tasks=0", "datset=mnist", "relevance=paper-like")
    code = (
        "import sys; from fl_app.cli import main\n"
        f"assert [main(['run', wrong]) for wrong in {wrong!r}] == [2] * {len(wrong)}\n"
        "print(sorted({'torch', 'sklearn', 'matplotlib', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = re.findall("^error: ([a-z-]+)", done.stderr, re.MULTILINE)
    assert said == [word.partition("=")[0] for word in wrong], done.stderr
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "rcc-pfl,fedhc"},
            "the clustering update looks at each client's model: leave .* fedhc out",
        ),
        ({"strategy": "ifca"}, "looks at each client's model"),
        ({"strategy": "flt-graph"}, "the aggregation graph needs each client's model"),
        ({"strategy": "spectral+lps-gps"}, "the aggregation lps-gps needs each client's model"),
        ({"strategy": "local"}, "a single client's cluster is its model"),
        # Sums whose difference is a single update.
        ({"strategy": "rcc-pfl,single"}, "strategy names rcc-pfl, single, and .*: name one, or"),
        (
            {"strategy": "single", "resume": "results/x"},
            "resume is results/x, and a round .* again can show .*: leave it empty, or",
        ),
        ({"strategy": "single", "checkpoint_every": 2}, "checkpoint-every is 2, .* leave it at 0"),
    ],
)
def test_secure_sums_that_can_show_a_single_model_are_refused(options, message):
    config(**options)
    with pytest.raises(ValueError, match=f"^secure-aggregation is true, but .*{message}"):
        config(**options, secure_aggregation=True)


def test_secure_sums_of_one_strategy_on_several_seeds_are_allowed():
    """Each seed has a first model of its own."""
    assert config().secure_aggregation is False
    for strategy in ("rcc-pfl", "pca-km-hc", "optimum", "random", "single"):
        assert config(strategy=strategy, secure_aggregation=True, repeats=3).secure_aggregation


def test_a_trial_has_rounds_and_ends_by_validation_samples():
    compared = {**DEFAULTS, "strategy": "local,single", "validation-share": 0.2}
    config = parse_config({**compared, "num-server-rounds": "trial", "evaluate-every": 5})
    assert (config.num_server_rounds, config.evaluate_every, config.early_stopping) == (20, 2, 2)
    assert parse_config(config.as_run_config()) == config
    own = {"num-server-rounds": "trial", "evaluate-every": 5, "early-stopping": 1}
    config = parse_config({**compared, **own})
    assert (config.num_server_rounds, config.evaluate_every, config.early_stopping) == (20, 5, 1)
    without = {**DEFAULTS, "num-server-rounds": "trial"}
    with pytest.raises(
        ValueError, match=r'^num-server-rounds is "trial", but validation-share is 0'
    ):
        parse_config(without)
    with pytest.raises(ValueError, match=r'"tril", but it must be .* Did you mean trial\?'):
        parse_config({**compared, "num-server-rounds": "tril"})
