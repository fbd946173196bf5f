"""One description of every system: its name, its class and its paper say the same."""

import sys
from dataclasses import replace

import pytest

from fl_app.config.run_config import OPTIONS, USUAL_VALUES, parse_config
from fl_app.config.strategy_factory import PROVIDERS, Setting, build_strategy
from fl_core.options import BY_STRATEGY, key_of
from fl_core.partitions.federation import simulate_federation
from strategies import catalogue as c
from tests.app_runs import DEFAULTS, untrained_encoder
from tests.toy_app import ENCODER, draw_model

SEED = 4
TASKS = {0: 2, 1: 0, 2: 1, 3: 0, 4: 2, 5: 1}
# What has no default, or what the app finds out by itself; all else are defaults of both.
GIVEN = {
    "num_clusters": 3,
    "dimension": 324,
    "encoder": ENCODER,
    "draw_model": draw_model,
    "labels": TASKS,
    "sizes": [2, 2, 2],
    "common_layers": ("hidden",),
    "norm_layers": "norm1,norm2",
}


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """Three tasks of two clients each."""
    encoder = untrained_encoder(tmp_path_factory.mktemp("encoder"))["encoder"]
    options = {"num-tasks": 3, "model": "mlp-32", "encoder": encoder}
    config = parse_config({**DEFAULTS, **options})
    federation = simulate_federation(config.federation_settings(6, SEED))
    return Setting(config, federation.dataset, SEED, federation)


@pytest.mark.parametrize("weighted", [None, True, False])
@pytest.mark.parametrize("name", c.SYSTEMS)
def test_an_app_and_make_strategy_build_the_same(setting, name, weighted):
    model = "cnn-norm" if name == "fedbn" else setting.config.model
    config = replace(setting.config, weighted_mean=weighted, model=model)
    setting = setting._replace(config=config)
    named = build_strategy(name, setting, {"seed": SEED})
    taken = {field for part in c.SYSTEMS[name].parts for field in c.parameters(part)}
    given = {field: GIVEN[field] for field in GIVEN.keys() & taken - c.SYSTEMS[name].options.keys()}
    made = c.make_strategy(name, seed=SEED, weighted_mean=weighted, **given)
    assert made.clustering == named.clustering
    assert made.aggregation == named.aggregation
    assert made.local == named.local
    assert made.seed == named.seed
    if "weighted" in c.parameters(c.SYSTEMS[name].aggregation):
        expected = c.SYSTEMS[name].weighted if weighted is None else weighted
        assert made.aggregation.weighted == expected


def test_every_argument_of_a_name_is_an_option_or_found():
    """Else it would have its default for ever, unnoticed."""
    parts = {part for system in c.SYSTEMS.values() for part in system.parts}
    fields = [field for part in parts for field in c.parameters(part).values()]
    known = {*DEFAULTS, *(name.replace("_", "-") for name in PROVIDERS)}
    options = {key_of(field) for field in fields}
    without_key = {"weighted", "enforce", "split-linkage", "min-size"}
    assert options - known == without_key  # of the catalogue and constructors


@pytest.mark.parametrize(
    ("options", "clustering", "expected"),
    [
        ({"graph-threshold": 0.7}, "signature", {"threshold": 0.7}),
        ({"fine-tune": "never"}, "signature", {"fine_tune": "never"}),
        ({"max-changed": "never"}, "signature", {"max_changed": None}),
        ({"update-reference": "received"}, "update", {"reference": "received"}),
        ({"num-clusters": "auto"}, "update", {"num_clusters": "silhouette"}),
        ({"num-clusters": "elbow"}, "update", {"num_clusters": "elbow"}),
        ({"num-clusters": "auto"}, "spectral", {"num_clusters": "auto"}),
        ({"num-clusters": "silhouette"}, "spectral", {"num_clusters": "silhouette"}),
        ({"num-eigenvectors": 5}, "spectral", {"num_eigenvectors": 5}),
        ({"num-eigenvectors": "auto"}, "spectral", {"num_eigenvectors": None}),
        ({"num-eigenvectors": "auto"}, "principal-angle", {"num_eigenvectors": 3}),
        ({"stop-reassociation": 2}, "loss", {"stop_after": 2, "enforce": False}),
        ({"stop-reassociation": 2}, "loss-inhabited", {"stop_after": 2, "enforce": True}),
        ({"cfl-mean-norm": 0.3}, "bipartition", {"mean_norm": 0.3, "split_linkage": "single"}),
        ({"cfl-min-size": 3}, "stable-bipartition", {"min_size": 3, "split_linkage": "average"}),
        ({"linkage": "ward"}, "linear-signature", {"linkage": "ward"}),
        ({"num-eigenvectors": 4}, "principal-angle", {"num_eigenvectors": 4, "threshold": 15.0}),
        (
            {"principal-angle": "sum", "angle-threshold": 9.5},
            "principal-angle",
            {"measure": "sum", "threshold": 9.5},
        ),
        ({"linkage": "single"}, "first-update", {"linkage": "single", "num_clusters": 3}),
        ({"drift-clients": 2, "drift-round": 3}, "tasks", {}),
    ],
)
def test_options_reach_the_argument_that_they_name(setting, options, clustering, expected):
    config = parse_config({**setting.config.as_run_config(), **options})
    federation = simulate_federation(config.federation_settings(6, SEED))
    setting = setting._replace(config=config, federation=federation)
    found = build_strategy(f"{clustering}+mean", setting, {}).clustering
    assert {name: getattr(found, name) for name in expected} == expected
    if clustering == "tasks":
        assert list(found.later) == [3]
        assert found.later[3] == dict(enumerate(federation.tasks_at(3).tolist())) != found.labels


def test_a_line_decides_what_is_not_given():
    """By position, by name, and by the run-config key, even at what others have by default."""
    made = c.make_strategy("fedkin", 3, relevance="paper").clustering
    assert (made.num_clusters, made.relevance) == (3, "paper")
    assert (made.relevance_at, made.outliers) == ("server", "separate")
    config = parse_config({**DEFAULTS, "strategy": "rcc-pfl,fedkin", "relevance-at": "clients"})
    assert config.options_of_line("rcc-pfl") == {}
    assert config.options_of_line("fedkin") == {
        "num-clusters": "auto",
        "relevance": "missed-energy",
        "relevance-at": "clients",
        "outliers": "separate",
    }
    both = config.for_strategies("rcc-pfl", "fedkin").as_run_config()
    assert (both["relevance"], both["relevance-at"]) == ("by-strategy", "clients")
    one = config.for_strategies("rcc-pfl", "local").as_run_config()
    assert (one["relevance"], one["outliers"], one["num-clusters"]) == (
        "paper",
        "keep",
        "num-tasks",
    )


def test_what_a_line_decides_has_the_default_that_says_so():
    """Else nobody could tell what the user gave."""
    fields = {field for system in c.SYSTEMS.values() for field in system.options}
    decided = {field.replace("_", "-") for field in fields} & OPTIONS.keys()
    assert decided == USUAL_VALUES.keys()
    assert {OPTIONS[key].default for key in decided} == {BY_STRATEGY}


@pytest.mark.parametrize(
    "name",
    [
        *("", "fedaverage", "spectral+", "+mean", "single+mode", "rcc-pfl+mean", "single+mean+"),
        *("single+mean+dito", "single+mean+ditto+ditto", "single++ditto"),
    ],
)
def test_what_is_not_in_the_catalogue_is_no_system(name):
    with pytest.raises(KeyError):
        c.system_of(name)


def test_three_parts_by_name():
    system = c.system_of("spectral+graph+ditto")
    assert [part.name for part in system.parts] == ["spectral", "graph", "ditto"]
    assert c.system_of("single+mean").parts == c.system_of("single+mean+plain").parts
    clustering, aggregation, local = system.build(3, weighted_mean=False, ditto_weight=0.5)
    assert clustering.num_clusters == 3
    assert not aggregation.weighted
    assert local.ditto_weight == 0.5


def test_a_line_with_options_is_a_clustering_of_pairs():
    assert c.system_of("fedkin+median").options == c.SYSTEMS["fedkin"].options
    assert c.make_strategy("fedkin+mean+ditto").clustering.outliers == "separate"
    assert not c.system_of("single+mean").options


def test_an_argument_that_no_client_takes_is_refused():
    with pytest.raises(TypeError, match="'num_eigenvecs'"):
        c.make_strategy("rcc-pfl", 3, num_eigenvecs=20)
    with pytest.raises(TypeError, match="common_layers"):
        c.make_strategy("mt-hfl", 3)


@pytest.mark.parametrize("name", [name for name, system in c.SYSTEMS.items() if system.paper])
def test_a_systems_paper_is_at_the_head_of_a_file_of_it(name):
    system = c.SYSTEMS[name]
    author, year = system.paper.replace(",", "").split()[:: len(system.paper.split()) - 1]
    heads = [sys.modules[part.__module__].__doc__ for part in system.parts]
    assert any(author in head and year in head for head in heads)
