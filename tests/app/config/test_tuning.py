"""`tune`: what may be tried, by which strategy, and what goes with it."""

import pytest

from fl_app.config.run_config import parse_config
from fl_app.config.strategy_factory import Setting, runnable_strategies, with_values
from fl_app.config.tuning import TUNABLE, combinations, num_trainings, read_tuned_values, values_of
from fl_core.options import typed
from tests.app_runs import DEFAULTS

GIVEN = {**DEFAULTS, "strategy": "local,ditto", "validation-share": 0.2}


def test_each_strategy_tries_the_values_that_count_for_it():
    tune = "learning-rate=0.001,0.003 ditto-weight=0.1,1"
    assert combinations(tune, "local") == [{"learning-rate": 0.001}, {"learning-rate": 0.003}]
    assert combinations(tune, "ditto") == [
        {"learning-rate": rate, "ditto-weight": weight}
        for rate in (0.001, 0.003)
        for weight in (0.1, 1.0)
    ]
    assert combinations("ditto-weight=0.1,1", "local") == [{}]
    assert combinations("", "ditto") == [{}]
    # Only who looks for groups tries their number.
    number = [{"num-clusters": word} for word in ("auto", 2)]
    assert combinations("num-clusters=auto,2", "rcc-pfl") == number
    assert combinations("num-clusters=auto,2", "single") == [{}]
    assert num_trainings(tune, ("local", "ditto")) == 2 + 4
    # Its own epochs take the place of those.
    assert combinations("local-epochs=1,2", "fedrep") == [{}]


def test_a_configuration_with_values_is_that_which_has_them():
    setting = Setting(parse_config(GIVEN), data=None, seed=3)
    tuned = with_values(setting, {"learning-rate": 0.5, "ditto-weight": 0.25})
    wanted = parse_config({**GIVEN, "learning-rate": 0.5, "ditto-weight": 0.25})
    assert tuned == Setting(wanted, data=None, seed=3)
    assert with_values(tuned, {}) == tuned


@pytest.mark.parametrize(("tune", "is_able"), [("2,3", True), ("auto,2", False)])
def test_who_needs_a_number_of_clusters_takes_part_if_all_that_it_tries_are_numbers(tune, is_able):
    config = parse_config(
        {
            **GIVEN,
            "strategy": "local,ifca,rcc-pfl",
            "num-clusters": "auto",
            "tune": f"num-clusters={tune}",
        }
    )
    able, lacking = runnable_strategies(Setting(config, data=None, seed=0))
    assert able.strategy == ("local", *(("ifca",) * is_able), "rcc-pfl")
    assert set(lacking) == ({"ifca"} if not is_able else set())


def test_what_is_read_is_written_as_it_was_meant():
    config = parse_config({**GIVEN, "tune": " learning-rate=1e-3,3e-3   ditto-weight=0,1 "})
    assert config.as_run_config()["tune"] == "learning-rate=0.001,0.003 ditto-weight=0.0,1.0"
    assert parse_config(config.as_run_config()) == config
    switched = parse_config({**GIVEN, "strategy": "local,apfl", "tune": "apfl-adaptive=true,false"})
    assert switched.as_run_config()["tune"] == "apfl-adaptive=true,false"
    assert parse_config(switched.as_run_config()) == switched
    for tune in ("momentum=0.1,0.9", "momentum=0.1,0.9 optimizer=sgd,adam"):
        sgd = {"optimizer": "sgd"} if "optimizer" not in tune else {}
        assert parse_config({**GIVEN, "tune": tune, **sgd}).tune == tune


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tune": "learning-rate"}, r'^tune is "learning-rate", but it must be empty, or options'),
        ({"tune": "lerning-rate=1,2"}, r"cannot be tuned\. Did you mean learning-rate\?"),
        (
            {"tune": "features=hog,raw"},
            r"tune names features, which cannot be tuned\. The keys are",
        ),
        ({"tune": "loss=a:b,c:d"}, r"tune names loss, which cannot be tuned"),
        ({"tune": "learning-rate=1"}, r"tune has learning-rate=1, but it needs at least two"),
        ({"tune": "learning-rate=1,1.0"}, r"it needs at least two different values"),
        ({"tune": "learning-rate=1,"}, r'learning-rate in tune is "", but it must be a number'),
        ({"tune": "learning-rate=1,-1"}, r'learning-rate in tune is "-1", but it must be'),
        ({"tune": "batch-size=1,2 batch-size=3,4"}, r"tune names batch-size twice"),
        (
            {"validation-share": 0},
            r"tune is .*, but it needs validation samples, and validation-share is 0",
        ),
        ({"num-server-rounds": 0}, r"tune is .*, but num-server-rounds is 0"),
        ({"training-epsilon": 1}, r"tune is .*, but training-epsilon is 1, and each value"),
        (
            {"tune": "momentum=0.1,0.9"},
            r"momentum has an effect only if optimizer is sgd: set optim",
        ),
        ({"strategy": "local,single"}, r"ditto-weight has no effect on any of local, single"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_sentence(change, said):
    with pytest.raises(ValueError, match=said):
        parse_config({**GIVEN, "tune": "ditto-weight=1,2", **change})


def test_every_option_that_can_be_tuned_is_read_in_the_same_words():
    for key, one in TUNABLE.items():
        is_share = key in ("momentum", "apfl-alpha")
        other = "sgd" if key == "optimizer" else "0.7" if is_share else "7"
        if isinstance(one.default, bool):
            other = typed(not one.default)
        (values,) = values_of(f"{key}={typed(one.default)},{other}").values()
        assert values[0] == one.rule.read(key, one.default)


def test_a_client_trains_by_nothing_else_that_it_is_told():
    assert read_tuned_values('{"learning-rate": 0.5, "optimizer": "sgd"}') == {
        "learning-rate": 0.5,
        "optimizer": "sgd",
    }
    with pytest.raises(ValueError, match=r"sent loss to be tuned, which is no option"):
        read_tuned_values('{"loss": "os:system"}')
    with pytest.raises(ValueError, match=r"learning-rate is -1, but it must be"):
        read_tuned_values('{"learning-rate": -1}')
