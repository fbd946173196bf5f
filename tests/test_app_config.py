import json
import re
import tomllib
from pathlib import Path

import pytest

from fl_app import systems
from fl_app.cli import parse_override
from fl_app.config import AGGREGATIONS, CLUSTERINGS, STRATEGIES, parse_config
from fl_app.tables import render, strategy_table

ROOT = Path(__file__).parents[1]
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


def test_every_strategy_that_can_be_named_can_be_built():
    assert tuple(systems.CLUSTERINGS) == CLUSTERINGS
    assert tuple(systems.AGGREGATIONS) == tuple(AGGREGATIONS)
    assert config(strategy="all").strategy == STRATEGIES


def test_what_is_saved_can_be_run_again():
    found = config(strategy="optimum, local", num_clients=7, num_clusters="auto", noise_rate=0.5)
    assert parse_config(found.as_run_config()) == found


def test_the_readme_lists_every_key_with_its_default():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| `([^`]*)` \|", readme, re.MULTILINE))
    shown = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in DEFAULTS.items()}
    assert {k: v.strip('"') for k, v in listed.items()} == shown


def test_the_readme_shows_the_table_of_the_committed_run():
    summary = json.loads((ROOT / "docs/example/summary.json").read_text(encoding="utf-8"))
    table = render(strategy_table(summary["table"], summary["runs"]))
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
    by_name = {row["strategy"]: row["accuracy-mean"] for row in summary["table"]}
    assert abs(by_name["rcc-pfl"] - by_name["optimum"]) < 0.01
    assert by_name["rcc-pfl"] > by_name["single"] + 0.05


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("strategy", "rcc-pfl,fedavg", r'strategy is "fedavg", but it must be one of rcc-pfl, opt'),
        ("strategy", "", r'strategy is "", but it must be one of'),
        ("strategy", "local,local", "without repetition"),
        ("dataset", "imagenet", r'dataset is "imagenet", but it must be one of mnist-5k, mnist,'),
        ("noise-rate", 1, "noise-rate is 1, but it must be a number of at least 0 and below 1"),
        ("noise-rate", -0.1, "noise-rate is -0.1"),
        ("noise-rate", "much", 'noise-rate is "much"'),
        ("noise-rate", float("nan"), "noise-rate is nan"),
        ("noise", "loud", 'noise is "loud", but it must be one of none, class-independent'),
        ("repeats", 0, "repeats is 0, but it must be a whole number of at least 1"),
        ("repeats", 1.5, "repeats is 1.5"),
        ("repeats", True, "repeats is True"),
        ("seed", -1, "seed is -1"),
        ("num-clients", 0, 'num-clients is 0, but it must be a whole number of at least 1, or "al'),
        ("num-clusters", "many", 'or "auto" or "num-tasks"'),
        ("tasks", "0,1|1,1", "label 1 stands twice"),
        ("partition", "even", 'partition is "even", but it must be one of label, quantity'),
        ("dirichlet-alpha", 0, "dirichlet-alpha is 0, but it must be a number above 0"),
        ("dirichlet-alpha", float("inf"), "dirichlet-alpha is inf"),
        ("minority", 1.1, "minority is 1.1"),
        ("features", "vgg", 'features is "vgg", but it must be one of hog, raw, resnet18'),
        ("num-eigenvectors", 0, "num-eigenvectors is 0"),
        ("linkage", "weakest", 'linkage is "weakest", but it must be one of average'),
        ("model", "gpt", 'model is "gpt", but it must be one of paper, logistic-regression'),
        ("optimizer", "lion", 'optimizer is "lion", but it must be one of adam, sgd'),
        ("learning-rate", 0, "learning-rate is 0, but it must be a number above 0"),
        ("momentum", 1, "momentum is 1"),
        ("batch-size", 0, "batch-size is 0"),
        ("fraction-train", 0, "fraction-train is 0, but it must be a number above 0 and at most 1"),
        ("fraction-train", 1.5, "fraction-train is 1.5"),
        ("weighted-mean", "yes", 'weighted-mean is "yes", but it must be true or false'),
        ("evaluate-every", 0, "evaluate-every is 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(key, value, message):
    with pytest.raises(ValueError, match=re.escape(message) if "(" in message else message):
        parse_config({**DEFAULTS, key: value})


def test_unknown_and_missing_keys():
    with pytest.raises(ValueError, match="learning-rat is not a run-config key: the keys are batc"):
        parse_config({**DEFAULTS, "learning-rat": 1})
    with pytest.raises(ValueError, match="the run-config key seed is missing"):
        parse_config({key: value for key, value in DEFAULTS.items() if key != "seed"})


@pytest.mark.parametrize("key", sorted({*DEFAULTS} - {"data-dir", "feature-weights", "output-dir"}))
def test_no_key_takes_everything(key):
    with pytest.raises(ValueError, match=f"^{key} is "):
        parse_config({**DEFAULTS, key: "no such thing"})


def test_numbers_may_come_as_text_or_as_the_other_kind():
    found = config(repeats="3", learning_rate=1, seed=2.0, weighted_mean="true")
    assert (found.repeats, found.learning_rate, found.seed) == (3, 1.0, 2)
    assert isinstance(found.seed, int)
    assert found.weighted_mean is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeats=3", ("repeats", 3)),
        ("strategy=rcc-pfl,single", ("strategy", "rcc-pfl,single")),
        ("tasks=0,1|2,3", ("tasks", "0,1|2,3")),
        ('tasks="0,1|2,3"', ("tasks", "0,1|2,3")),
        ("weighted-mean=true", ("weighted-mean", True)),
        ("learning-rate=5e-5", ("learning-rate", 5e-5)),
        ("data-dir=/a/b=c", ("data-dir", "/a/b=c")),
        ("output-dir=2026-11-21", ("output-dir", "2026-11-21")),
        ("output-dir=2024.10", ("output-dir", "2024.10")),
        ("data-dir=true", ("data-dir", "true")),
        ("tasks=[1]", ("tasks", "[1]")),
    ],
)
def test_overrides_on_the_command_line(text, expected):
    assert parse_override(text, DEFAULTS) == expected


def test_an_override_without_a_value():
    with pytest.raises(ValueError, match="repeats is no KEY=VALUE"):
        parse_override("repeats", DEFAULTS)
