"""A metric of one's own, from its function to tables, files, report and trackers."""

import csv
import json
import logging
import re

import numpy as np
import pytest
import torch

from clients.training.losses import check_user_metric, measure_of
from fl_app.config.run_config import parse_config
from fl_app.report.report_page import write_report
from fl_app.run.tracking import round_values
from fl_app.simulation.preflight import check_simulation
from fl_core.data.scaling import Scaling
from strategies import RoundReport
from tests.app_runs import DEFAULTS
from tests.device_runs import run
from tests.own_modules import own_modules, run_alone

HELD = """
import numpy as np
import torch

from fl_core.data.user_data import Partitions


def part(client):
    rng = np.random.default_rng(client)
    rows = rng.normal(size=(40, 3)).astype(np.float32)
    return rows[:30], 100 + 10 * rows[:30, 0], rows[30:], 100 + 10 * rows[30:, 0]


def load():
    return Partitions([part(client) for client in range(3)], class_names="dose (mg)")


def classes():
    found = [part(client) for client in range(3)]
    return Partitions([(a, (b > 99).astype(int), c, (d > 99).astype(int)) for a, b, c, d in found])


def berlin():
    return *part(0), "dose (mg)"


def lyon():
    return *part(1), "dose (mg)"


def largest(outputs, labels):
    assert outputs.shape == labels.shape == outputs.cpu().shape
    return (outputs - labels).abs().max()


def of_logits(outputs, labels):
    assert outputs.shape == (len(labels), 2)
    return -float(torch.nn.functional.cross_entropy(outputs, labels))


def at_one(outputs, labels):
    low = float(labels.min())
    return float("nan") if abs(low - float(part(1)[3].min())) < 1e-3 else low


def text(outputs, labels):
    return "good"


def several(outputs, labels):
    return outputs - labels


def fails(outputs, labels):
    raise KeyError("weights")
"""
OPTIONS = {
    "dataset": "held:load",
    "num-clients": 3,
    "model": "mlp-32",
    "strategy": "single",
    "standardise": "all",
    "num-server-rounds": 2,
    "learning-rate": 0.01,
}


@pytest.fixture
def held(tmp_path):
    with own_modules(tmp_path, held=HELD):
        yield tmp_path


def given(folder, **options):
    said = {key.replace("_", "-"): value for key, value in options.items()}
    return {**DEFAULTS, **OPTIONS, **said, "output-dir": str(folder / "out")}


def rows_of(folder, name):
    with (folder / f"out/{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary_of(folder):
    return json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))


def test_a_metric_of_ones_own_stands_beside_rmse_in_its_unit(held, capsys):
    run_alone(given(held, metric="held:largest"))
    (one,) = summary_of(held)["runs"]
    assert one["user-metric-name"] == "largest"
    assert one["user-metric"] == pytest.approx(np.mean(one["user-metric-per-client"]))
    # The largest of ten errors lies between their root mean square and √10 times it.
    for largest, rmse in zip(one["user-metric-per-client"], one["rmse-per-client"], strict=True):
        assert 1.0001 * rmse < largest < 10**0.5 * rmse
    last = [row for row in rows_of(held, "clients") if row["round"] == "2"]
    assert [float(row["user-metric"]) for row in last] == one["user-metric-per-client"]
    assert float(rows_of(held, "metrics")[-1]["user-metric"]) == pytest.approx(one["user-metric"])
    page = write_report([held / "out"], held / "page.html")
    shown = f"{one['user-metric']:#.4g}"
    for text in (capsys.readouterr().out, page.read_text(encoding="utf-8")):
        assert "largest" in text
        assert shown in text
    assert "single: largest" in page.read_text(encoding="utf-8")


def test_of_classes_it_gets_logits_and_all_else_stays_as_it_is(held):
    words = {"dataset": "held:classes", "standardise": "none"}
    run_alone(given(held, metric="held:of_logits", **words))
    (one,) = summary_of(held)["runs"]
    losses = [float(row["loss"]) for row in rows_of(held, "clients") if row["round"] == "2"]
    assert one["user-metric-per-client"] == pytest.approx([-loss for loss in losses], rel=1e-5)
    without = held / "without"
    run_alone({**given(held, **words), "output-dir": str(without)})
    (other,) = json.loads((without / "summary.json").read_text(encoding="utf-8"))["runs"]
    assert "user-metric" not in json.dumps(other)
    assert other["accuracy-per-client"] == one["accuracy-per-client"]


def test_a_client_where_it_is_undefined_keeps_its_other_scores(held, caplog, capsys):
    with caplog.at_level(logging.WARNING):
        run_alone(given(held, metric="held:at_one", num_server_rounds=1))
    said = 'metric is "held:at_one", which returned nan: it must return one finite number.'
    assert said in [r.getMessage() for r in caplog.records]
    assert [row["user-metric"] == "" for row in rows_of(held, "clients")] == [False, True, False]
    assert "" not in [row["rmse"] for row in rows_of(held, "clients")]
    (one,) = summary_of(held)["runs"]
    assert one["failures"] == []
    assert one["user-metric-per-client"][1] is None
    assert re.search(r"^│ single +│ +\S+ │.* \(2 of 3\) │", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "which returned str: it must return one finite number"),
        ("several", "which returned Tensor: it must return one finite number"),
        (
            "fails",
            r"but the call fails\(outputs, labels\) fails: KeyError: 'weights'",
        ),
        ("nothing", r"but .*held\.py has no nothing"),
    ],
)
def test_what_is_no_metric_is_refused_before_anything_starts(held, name, message):
    with pytest.raises(ValueError, match=rf'^metric is "held:{name}", {message}'):
        check_simulation(parse_config(given(held, metric=f"held:{name}")), held / "out")


def test_devices_measure_it_if_their_owner_allows(held):
    of_devices = {"berlin": "held:berlin", "lyon": "held:lyon"}
    options = {"strategy": "single", "metric": "held:largest", "num_server_rounds": 1}
    summary, _ = run(held / "out", of_devices, **options, own_code="held:largest")
    assert min(summary["runs"][0]["user-metric-per-client"]) > 0
    with pytest.raises(RuntimeError, match=r'metric is "held:largest", code that the owner'):
        run(held / "again", of_devices, **options)


def test_numbers_are_brought_back_to_their_own_unit(held):
    """Predicted 1 and −1 of mean 50 and deviation 4 are 54 and 46; true are 50 and 52."""
    scaling = Scaling((0.0,), (1.0,), 50.0, 4.0)
    said, truth = torch.tensor([[1.0], [-1.0]]), torch.tensor([0.0, 0.5])
    assert measure_of("held:largest", scaling)(said, truth) == 6
    assert measure_of("held:largest")(said, truth) == 1.5
    assert measure_of("") is None


def test_trackers_have_its_mean():
    scores = {"accuracy": {0: 0.5, 1: 1.0}}
    report = RoundReport(1, 1, scores=scores, clusters={0: 0, 1: 0})
    assert "user-metric/mean" not in round_values(report, 1.0, None)
    scores["user-metric"] = {0: 3.0, 1: -1.0}
    report = RoundReport(1, 1, user_metric="cost", scores=scores, clusters={0: 0, 1: 0})
    assert round_values(report, 1.0, None)["user-metric/mean"] == 1


GOOD = """
import torch


def correlation(outputs, labels):
    return torch.corrcoef(torch.stack([outputs, labels]))[0, 1]


def percentage(outputs, labels):
    return ((outputs - labels) / labels).abs().mean()


def recall_of_the_last(outputs, labels):
    last = outputs.shape[1] - 1
    return (outputs.argmax(1)[labels == last] == last).float().mean()
"""


@pytest.mark.parametrize(
    ("name", "classes"), [("correlation", 0), ("percentage", 0), ("recall_of_the_last", 7)]
)
def test_what_a_good_metric_cannot_take_is_not_tried_on_it(name, classes, tmp_path):
    with own_modules(tmp_path, good=GOOD):
        check_user_metric(f"good:{name}", classes or 1, is_regression=not classes)
