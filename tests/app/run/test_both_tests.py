"""Each client's accuracy on its task and on its own data, beside each other."""

import csv
import json

import numpy as np
import pytest

from fl_core.partitions.federation import Federation
from tests.app_runs import LARGE_STEPS, run, without_seconds
from tests.toy_app import fail

EVENTS = {
    "newcomers": 1,
    "newcomer_round": 2,
    "drift_clients": 2,
    "drift_round": 3,
    "num_server_rounds": 3,
    **LARGE_STEPS,
}
BOTH = ("on-its-task", "on-its-own-data")
SCORES = ("accuracy", "macro-f1", "balanced-accuracy")


def without_both(value):
    """Return a summary without what says something of a second test."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not any(name in k for name in BOTH)}
        return {key: without_both(one) for key, one in kept.items() if key != "output-dir"}
    return [without_both(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"strategy": "all", "num_clusters": 3}, marks=pytest.mark.faults),
        pytest.param(
            {"strategy": "rcc-pfl,optimum,ifca,spectral+mean+ditto", **EVENTS},
            marks=pytest.mark.faults,
        ),
        {"strategy": "single,local", "client_test": "own", "attack": "sign-flip", "malicious": 0.2},
    ],
    ids=["all", "events", "own"],
)
def test_all_other_numbers_are_as_without_the_second_test(
    tmp_path, options, monkeypatch, plane_without_umap
):
    both = run(tmp_path / "both", noise="class-dependent", **options)
    monkeypatch.setattr(Federation, "other_test_data", lambda *whatever: None)
    one = run(tmp_path / "one", noise="class-dependent", **options)
    assert "on-its-" not in json.dumps(one)
    assert without_seconds(without_both(both)) == without_seconds(without_both(one))
    name = BOTH["client_test" not in options]
    assert all(name in found for found in both["runs"])
    for row in both["table"]:
        means = [r[name]["accuracy"] for r in both["runs"] if r["strategy"] == row["strategy"]]
        assert row[f"accuracy-{name}-mean"] == pytest.approx(np.mean(means))


@pytest.mark.faults
def test_the_two_change_places_with_client_test(tmp_path):
    options = {"strategy": "single,local", "minority": 0.2, **EVENTS}
    task, own = (run(tmp_path / name, client_test=name, **options) for name in ("task", "own"))
    for a, b in zip(task["runs"], own["runs"], strict=True):
        for score in SCORES:
            for key in (score, f"{score}-per-client"):
                assert a[key] == b["on-its-task"][key]
                assert b[key] == a["on-its-own-data"][key]
        assert a["accuracy-per-client"] != b["accuracy-per-client"]
        assert a["on-its-own-data"]["loss"] == pytest.approx(np.mean(_losses(tmp_path / "own", a)))


def _losses(folder, one):
    rows = [row for row in _clients(folder) if row["strategy"] == one["strategy"]]
    return [float(row["loss"]) for row in rows if row["round"] == str(one["rounds"])]


def _clients(folder):
    with (folder / "clients.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_second_test_is_in_the_last_round_of_honest_clients_that_were_tested(tmp_path, capsys):
    options = {"strategy": "single", "attack": "sign-flip", "malicious": 0.2}
    (one,) = run(tmp_path, corrupt={("evaluate", 2): fail}, **options)["runs"]
    left_out = {2, *one["malicious"]}
    beside = one["on-its-own-data"]["accuracy-per-client"]
    assert {client for client, share in enumerate(beside) if share is None} == left_out
    assert one["on-its-own-data"]["accuracy"] == pytest.approx(
        np.mean([share for share in beside if share is not None])
    )
    found = [row["accuracy-on-its-own-data"] for row in _clients(tmp_path)]
    assert found[:6] == [""] * 6
    assert [float(share) if share else None for share in found[6:]] == beside
    printed = " ".join(capsys.readouterr().out.split())
    assert "on its ┃ on its ┃" in printed
    assert "On its task asks how good a client's model is at all of its task," in printed
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "the mix of classes that it has itself.<" in page


def test_an_interrupted_run_has_both(tmp_path):
    options = {"strategy": "single", "checkpoint_every": 1}
    whole = run(tmp_path, **options)
    again = run(tmp_path, resume=str(tmp_path), **options)
    assert again["runs"][0]["on-its-own-data"] == whole["runs"][0]["on-its-own-data"]
