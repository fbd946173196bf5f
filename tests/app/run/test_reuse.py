"""What comes to the same is trained once, and nobody could tell: to the bit, byte for byte."""

import numpy as np
import pytest

from fl_app.config.run_config import OF_STRATEGIES
from fl_app.config.run_config import OPTIONS as KEYS
from fl_app.run.kept_trainings import FOLDER, SEEN
from tests.app_runs import DEFAULTS, models_of, run, untrained_encoder, whole_space
from tests.own_modules import TABLE, own_modules, run_alone

pytestmark = pytest.mark.slow

SHARED = {
    "optimum": "rcc-pfl",
    "signature+mean": "flt",
    "tasks+mean+ditto": "spectral+mean+ditto",
    "tasks+lps-gps": "mt-hfl",
}
NAMES = (
    *("rcc-pfl", "optimum", "spectral+mean+ditto", "tasks+mean+ditto"),
    *("mt-hfl", "tasks+lps-gps", "flt", "signature+mean", "flt-graph"),
)
OPTIONS = {
    "clients": 6,
    "strategy": ",".join(NAMES),
    "model": "mlp-32",
    "noise": "class-dependent",
    "fraction_train": 0.7,
    "batch_size": 128,
    "weighted_mean": True,
}


def without(one, *keys):
    return {key: value for key, value in one.items() if key not in ("seconds", *keys)}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reuse")
    options = OPTIONS | untrained_encoder(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strategies.clusterings.flt.embed_signatures", whole_space)
        shared = run(folder / "shared", **options)
        each = run(folder / "each", reuse=False, **options)
    return folder, shared, each


def test_who_shares_a_training_is_said(both):
    _, shared, each = both
    assert not any("same-as" in one for one in each["runs"])
    for one in shared["runs"]:
        assert one.get("same-as") == SHARED.get(one["strategy"]), one["strategy"]


def test_all_else_is_as_if_each_had_trained(both):
    folder, shared, each = both
    assert shared["table"] == each["table"]
    for one, other in zip(shared["runs"], each["runs"], strict=True):
        assert without(one, "same-as") == without(other)
    for name in NAMES:
        one, other = (models_of(folder / kind, name) for kind in ("shared", "each"))
        assert one.keys() == other.keys() != set()
        for file, model in one.items():
            for layer, array in model.items():
                assert np.array_equal(array, other[file][layer]), (name, file, layer)
    for table in ("metrics.csv", "clients.csv"):
        texts = [(folder / kind / table).read_text(encoding="utf-8") for kind in ("shared", "each")]
        assert texts[0] == texts[1]


@pytest.mark.faults
def test_simulations_of_a_table_share_what_they_train(tmp_path, monkeypatch):
    """A variant that finds the clusters of another cell trains nothing; on other data, it does."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    options = {key: OPTIONS[key] for key in ("clients", "model", "batch_size")}
    one = run(tmp_path / "one", strategy="optimum,tasks+mean+ditto", **options)
    kept = sorted(tmp_path.glob("*.safetensors"))
    assert len(kept) == 2
    variants = {
        "strategy": "rcc-pfl,spectral+mean+ditto",
        "relevance": "missed-energy",
        "evaluate_every": 1,
    }
    other = run(tmp_path / "other", **variants, **options)
    assert [run["same-as"] for run in other["runs"]] == ["optimum", "tasks+mean+ditto"]
    assert sorted(tmp_path.glob("*.safetensors")) == kept
    alone = run(tmp_path / "alone", reuse=False, **variants, **options)
    for shared, each in zip(other["runs"], alone["runs"], strict=True):
        assert without(shared, "same-as") == without(each)
    for name in ("rcc-pfl", "spectral+mean+ditto"):
        models = models_of(tmp_path / "other", name)
        for file, model in models_of(tmp_path / "alone", name).items():
            assert all(np.array_equal(models[file][layer], model[layer]) for layer in model)
    noisy = run(tmp_path / "noisy", strategy="optimum", noise="class-independent", **options)
    assert "same-as" not in noisy["runs"][0]
    assert one["runs"][0]["accuracy"] != noisy["runs"][0]["accuracy"]


def test_other_data_of_the_same_shape_share_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "trainings"))
    (tmp_path / "trainings").mkdir()
    options = {**DEFAULTS, "strategy": "single", "num-clients": 4, "num-server-rounds": 1}
    options |= {"num-tasks": 2, "model": "logistic-regression", "features": "raw"}
    other_rows = "\n\ndef of_others():\n    return load(seed=8)\n"
    with own_modules(tmp_path, rows=TABLE + other_rows):
        one, other, again = (
            run_alone({**options, "dataset": f"rows:{name}", "output-dir": str(tmp_path / place)})
            for place, name in (("one", "load"), ("other", "of_others"), ("again", "of_others"))
        )
    (one,), (other,), (again,) = one["runs"], other["runs"], again["runs"]
    assert "same-as" not in one.keys() | other.keys()
    assert again["same-as"] == "single"


def test_an_option_is_seen_by_clients_or_does_not_change_what_they_train():
    """Whoever adds one says here that trainings are the same whatever it is."""
    groups_alone = {"encoder", "features", "keep-spectra", "label-weight", "num-clusters"}
    groups_alone |= {"num-eigenvectors", "relevance", "pre-round-deadline"}
    a_strategy_knows = {"evaluate-every", "fraction-evaluate", "fraction-train", "weighted-mean"}
    a_strategy_knows |= {"num-server-rounds", "repeats", "secure-aggregation", "seed", "strategy"}
    beside_it = {"checkpoint-every", "figure-format", "output-dir", "resume", "reuse", "track"}
    of_devices = {"deploy", "min-answers", "round-deadline"}
    with_validation = {"early-stopping", "tune"}  # with which nothing is shared
    others = groups_alone | a_strategy_knows | beside_it | of_devices | with_validation
    assert KEYS.keys() - OF_STRATEGIES.keys() - SEEN == others
    assert not SEEN & others


def test_models_that_are_too_large_are_not_kept_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("fl_app.run.kept_trainings.MOST_BYTES", 1000)
    found = run(tmp_path / "out", strategy="optimum,rcc-pfl", num_server_rounds=1)
    assert found["runs"][1]["same-as"] == "optimum"
    assert not list(tmp_path.glob("*.safetensors"))
