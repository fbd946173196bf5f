"""What comes to the same is trained once, and nobody could tell: to the bit, byte for byte."""

import numpy as np
import pytest

from tests.app_runs import models_of, run

pytestmark = pytest.mark.slow

SHARED = {
    "optimum": "rcc-pfl",
    "pacfl": "rcc-pfl",
    "tasks+mean+ditto": "spectral+mean+ditto",
    "tasks+lps-gps": "mt-hfl",
}
NAMES = (
    *("rcc-pfl", "optimum", "pacfl", "spectral+mean+ditto", "tasks+mean+ditto"),
    *("mt-hfl", "tasks+lps-gps", "single", "fedhc"),
)
OPTIONS = {
    "clients": 9,
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
    shared = run(folder / "shared", repeats=2, **OPTIONS)
    each = run(folder / "each", repeats=2, reuse=False, **OPTIONS)
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
        for seed in (0, 1):
            one, other = (models_of(folder / kind, name, seed) for kind in ("shared", "each"))
            assert one.keys() == other.keys() != set()
            for file, model in one.items():
                for layer, array in model.items():
                    assert np.array_equal(array, other[file][layer]), (name, file, layer)
    for table in ("metrics.csv", "clients.csv"):
        texts = [(folder / kind / table).read_text(encoding="utf-8") for kind in ("shared", "each")]
        assert texts[0] == texts[1]
