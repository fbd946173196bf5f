"""Secure aggregation in the app: the same results in simulations and on devices."""

import csv
import logging

import numpy as np
import pytest

from fl_app.run.watch import lines_of, read_status
from tests import device_runs
from tests.app_runs import models_of, run
from tests.device_images import write_sites
from tests.toy_app import fail, in_rounds, with_arrays

pytestmark = pytest.mark.slow

SITES = {
    **dict.fromkeys(("berlin", "lyon", "madrid"), (0, 2, 4)),
    **dict.fromkeys(("oslo", "paris", "rome"), (6, 8, 1)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))


# After one round: Adam makes more of rounding errors in the next, as of any others.
def alike(folder, other, strategy):
    """Return whether two folders hold the same models, but for the last digits."""
    models, others = models_of(folder, strategy), models_of(other, strategy)
    assert models.keys() == others.keys()
    return all(
        np.allclose(array, others[model][name], rtol=0, atol=2e-6)
        for model, arrays in models.items()
        for name, array in arrays.items()
    )


def same(folder, other, model):
    """Return whether a model is the same in two folders, to the last bit."""
    one, two = (models_of(path, "rcc-pfl")[model] for path in (folder, other))
    return all(np.array_equal(array, two[name]) for name, array in one.items())


def test_a_simulation_comes_to_the_same_and_says_less(tmp_path):
    options = {"clients": 9, "strategy": "rcc-pfl", "weighted_mean": True, "model": "mlp-32"}
    options["num_server_rounds"] = 1
    plain = run(tmp_path / "plain", **options)["runs"][0]
    secure = run(tmp_path / "secure", secure_aggregation=True, **options)["runs"][0]
    assert alike(tmp_path / "plain", tmp_path / "secure", "rcc-pfl")
    assert plain["clusters"] == secure["clusters"]
    assert secure["accuracy"] == pytest.approx(plain["accuracy"], abs=2e-3)
    assert secure["bytes"]["train-up"] > 2 * plain["bytes"]["train-up"]
    samples = [
        {line.split(",")[7] for line in (tmp_path / kind / "clients.csv").read_text().splitlines()}
        for kind in ("plain", "secure")
    ]
    assert len(samples[0]) > 2
    assert samples[1] == {"samples", ""}


def test_who_spoils_sums_is_in_all_results(tmp_path, capsys):
    corrupt = {("train", 1): with_arrays(lambda arrays: arrays.update(masked=np.zeros(1, "u8")))}
    options = {"strategy": "single", "secure_aggregation": True, "num_server_rounds": 2}
    one = run(tmp_path, clients=6, corrupt=corrupt, model="mlp-32", **options)["runs"][0]
    assert list(one["left-out-of-sums"]) == ["1"]
    with (tmp_path / "clients.csv").open(encoding="utf-8") as file:
        said = {(row["client"], row["left-out-of-sums"] != "") for row in csv.DictReader(file)}
    assert said == {(str(client), client == 1) for client in range(6)}
    assert "its masked are uint64 of shape (1,)" in " ".join(capsys.readouterr().out.split())
    text = "\n".join(lines_of(read_status(tmp_path), 0.0))
    assert "left out of secure sums: client 1 (its masked are" in text


@pytest.mark.faults
def test_devices_sum_their_models_and_one_that_fails_is_named(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites", SITES, images=20)
    device_runs.run(tmp_path / "plain", folders, num_server_rounds=1)
    secure, grid = device_runs.run(
        tmp_path / "secure", folders, num_server_rounds=1, secure_aggregation=True
    )
    assert device_runs.groups(secure["runs"][0]) == [
        ["berlin", "lyon", "madrid"],
        ["oslo", "paris", "rome"],
    ]
    assert alike(tmp_path / "plain", tmp_path / "secure", "rcc-pfl")
    assert grid.asked("oslo").count("query.unmask") == 1
    # A cluster of three cannot do without one of them: it keeps its model.
    device_runs.run(
        tmp_path / "failed",
        folders,
        num_server_rounds=2,
        secure_aggregation=True,
        corrupt={("train", "lyon"): in_rounds(2, corrupt=fail)},
    )
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert any(line.startswith("lyon could not train in round 2") for line in said)
    assert any("keeps its model in round 2: 2 of its clients sent an update" in s for s in said)
    kept = [
        c for c in ("cluster-0", "cluster-1") if same(tmp_path / "secure", tmp_path / "failed", c)
    ]
    assert len(kept) == 1
