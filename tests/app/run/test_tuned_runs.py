"""Runs in which each strategy tries several values, and validation samples choose."""

import csv
import json

import numpy as np
import pytest

from fl_app.report.tables import notes_of
from fl_app.results.reading import read_result
from tests.app_runs import models_of, of_strategy, run, without_seconds

pytestmark = pytest.mark.slow

RATES = (0.0001, 0.01)
OPTIONS = {
    "strategy": "local,ditto",
    "validation_share": 0.25,
    "checkpoint_every": 1,
    "batch_size": 128,
    "tune": "learning-rate=0.0001,0.01 ditto-weight=0.1,10",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "out"
    run(out, **OPTIONS)
    return out


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.faults
def test_each_strategy_is_what_it_would_be_with_its_values_alone(folder, tmp_path):
    """Scores of a run with fixed values, and its models, to the last bit."""
    summary = summary_of(folder)
    assert [len(one["tuned"]["tried"]) for one in summary["runs"]] == [2, 4]
    for one in summary["runs"]:
        best = max(one["tuned"]["tried"], key=lambda tried: tried["score"])
        assert one["tuned"]["values"] == best["values"]
        fixed = run(
            tmp_path / one["strategy"],
            **{
                **OPTIONS,
                "tune": "",
                **{key.replace("-", "_"): v for key, v in best["values"].items()},
            },
        )
        same = of_strategy(fixed, one["strategy"])
        for key in ("accuracy-per-client", "on-its-own-data", "clusters"):
            assert one[key] == same[key]
        ours, theirs = (
            models_of(at, one["strategy"]) for at in (folder, tmp_path / one["strategy"])
        )
        for name, model in ours.items():
            assert all(np.array_equal(array, theirs[name][k]) for k, array in model.items())


def test_the_best_on_validation_samples_counts_and_what_all_cost_is_said(folder):
    summary = summary_of(folder)
    local, ditto = summary["runs"]
    # Hardly anything is learnt in two rounds at the lower rate.
    assert local["tuned"]["values"] == {"learning-rate": 0.01}
    assert ditto["tuned"]["values"]["learning-rate"] == 0.01
    result = read_result(folder)
    said = notes_of(result.runs)
    assert said[0].startswith("local, seed 0: learning-rate=0.01 (of 2 tried: 4 rounds, ")
    kilobytes = sum(tried["bytes"] for tried in ditto["tuned"]["tried"]) / 6 / 1000
    assert f"(of 4 tried: 8 rounds, {kilobytes:,.0f} kB/client, " in said[1]
    assert all(
        tried["bytes"] > sum(ditto["bytes"].values()) / 2 for tried in ditto["tuned"]["tried"]
    )
    assert "learning-rate=0.01 (of 2 tried" in (folder / "report.html").read_text(encoding="utf-8")


def test_who_holds_what_is_drawn_once_however_much_is_tried(folder):
    assert len(list(folder.rglob("labels-per-client.png"))) == 1


def test_verdicts_compare_the_chosen_ones(folder):
    """On average over clients, an observed gain is the difference of two validation scores."""
    summary = summary_of(folder)
    local, ditto = (
        max(tried["score"] for tried in one["tuned"]["tried"]) for one in summary["runs"]
    )
    (found,) = summary["verdicts"]
    observed = [one["gains"]["ditto"]["observed"] for one in found["clients"]]
    assert np.mean(observed) == pytest.approx(ditto - local, abs=1e-6)
    with (folder / "verdicts.csv").open(encoding="utf-8") as file:
        assert {row["compared"] for row in csv.DictReader(file)} == {"ditto"}


@pytest.mark.faults
def test_the_same_in_another_order_of_answers_and_when_resumed(folder, tmp_path):
    wanted = without_tried_seconds(summary_of(folder))
    again = run(tmp_path / "again", **OPTIONS, order=lambda replies: replies[::-1])
    assert without_tried_seconds(again) == wanted


@pytest.mark.faults
def test_a_run_that_is_interrupted_chooses_what_it_would_have_chosen(folder, tmp_path):
    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run(out, **OPTIONS, corrupt=dict.fromkeys([("train", 0)], stopped_at("ditto", 2)))
    checkpoints = sorted(path.name for path in (out / "checkpoints").glob("*.safetensors"))
    assert "local,learning-rate=0.01-seed-0.safetensors" in checkpoints
    found = run(out, **OPTIONS, resume=str(out))
    assert without_tried_seconds(found) == without_tried_seconds(summary_of(folder))


def without_tried_seconds(summary):
    found = without_seconds(summary)
    del found["config"]["resume"]
    for one in found["runs"]:
        one["tuned"]["tried"] = [{**tried, "seconds": 0} for tried in one["tuned"]["tried"]]
    return found


def stopped_at(objective, server_round):
    """Interrupt the run when a client has trained for an objective in a round."""

    def corrupt(message, context, answer):
        told = message.content.config_records["config"]
        if told.get("objective") == objective and told["server-round"] == server_round:
            raise KeyboardInterrupt
        return answer

    return corrupt
