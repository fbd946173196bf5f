"""A target that is a number, from the function that returns it to the tables."""

import csv
import json
import re

import numpy as np
import pytest

from fl_app.config.run_config import parse_config
from fl_app.report.report_page import write_report
from fl_app.simulation.preflight import check_simulation
from fl_app.sweeps.plan import plan_sweep
from fl_app.sweeps.run_numbers import numbers_of_run
from fl_app.sweeps.running import _describe_scores as words_of
from fl_app.sweeps.sweep_tables import printed_tables, tidy
from fl_core.models.model_file import load_model
from strategies.catalogue import SYSTEMS
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.device_runs import OPTIONS as DEVICES
from tests.device_runs import Devices, run_on_devices
from tests.own_modules import own_modules, run_alone

SITES = """
import numpy as np
import torch
from torch import nn

from fl_core.data.user_data import Partitions


def load():
    rng, clients = np.random.default_rng(0), []
    for client in range(6):
        rows = rng.normal(size=(60, 4)).astype(np.float32)
        rows[:, client % 2] *= 4
        number = (2 - client % 2) * rows[:, 2] + (client % 2) * rows[:, 3]
        clients.append((rows[:40], number[:40], rows[40:], number[40:]))
    return Partitions(clients, [0, 1] * 3, "dose (mg)")


def make_model(shape, num_classes):
    return nn.Sequential(
        nn.Linear(*shape, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, num_classes)
    )


def site(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 4)).astype(np.float32)
    return rows[:40], rows[:40, 2], rows[40:], rows[40:, 2], "dose (mg)"


def berlin():
    return site(0)


def lyon():
    return site(1)


def oslo():
    rows, numbers, tests, wanted, _ = site(2)
    return rows, (numbers > 0).astype(int), tests, (wanted > 0).astype(int), ["low", "high"]


def rome():
    return *site(3)[:4], "dose (g)"


def absolute(outputs, labels):
    return (outputs - labels).abs().mean()


def several(outputs, labels):
    return (outputs - labels).abs()


def detached(outputs, labels):
    return (outputs - labels).detach().abs().mean()


def fails(outputs, labels):
    raise KeyError("weights")
"""
OPTIONS = {
    "dataset": "sites:load",
    "num-clients": 6,
    "features": "raw",
    "num-eigenvectors": 2,
    "model": "sites:make_model",
    "num-clusters": 2,
    "num-server-rounds": 4,
    "local-epochs": 4,
    "learning-rate": 0.02,
}
IMAGES_ONLY = ("flt", "flt-graph")
NEED_OTHER_RATES = ("pfedme", "scaffold")


@pytest.fixture
def sites(tmp_path):
    with own_modules(tmp_path, sites=SITES):
        yield tmp_path


def given(folder, **options):
    said = {key.replace("_", "-"): value for key, value in options.items()}
    return {**DEFAULTS, **OPTIONS, **said, "output-dir": str(folder / "out")}


def column(folder, name):
    with (folder / "out/metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        found.setdefault(row["strategy"], []).append(float(row[name]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["rcc-pfl", "optimum", "single"],
        pytest.param(
            [n for n in SYSTEMS if n not in (*IMAGES_ONLY, *NEED_OTHER_RATES)],
            marks=pytest.mark.faults,
        ),
    ],
    ids=["some", "all"],
)
def test_every_strategy_learns_a_number(sites, capsys, names):
    summary = run_alone(given(sites, strategy=",".join(names), num_server_rounds=3))
    errors = column(sites, "rmse")
    assert set(errors) == set(names)
    for name, of_rounds in errors.items():
        assert of_rounds[-1] < 0.8 * of_rounds[0], name
    # Two groups of sites want other numbers of alike rows: one model cannot serve both.
    of_name = {run["strategy"]: run for run in summary["runs"]}
    assert of_name["rcc-pfl"]["ari"] == 1
    assert of_name["rcc-pfl"]["rmse"] == of_name["optimum"]["rmse"]
    assert of_name["optimum"]["rmse"] < of_name["single"]["rmse"]


@pytest.mark.slow
def test_results_say_rmse_where_they_said_accuracy(sites, capsys):
    summary = run_alone(given(sites, strategy="rcc-pfl,single", repeats=2))
    run, out = summary["runs"][0], capsys.readouterr().out
    assert not [key for key in run if "accuracy" in key or "f1" in key]
    assert not [key for row in summary["table"] for key in row if "accuracy" in key]
    assert run["rmse"] == pytest.approx(np.mean(run["rmse-per-client"]))
    assert run["rmse-variance"] == pytest.approx(np.var(run["rmse-per-client"]))
    assert len(run["mae-per-client"]) == len(run["r2-per-client"]) == 6
    assert all(0 < mae <= rmse for mae, rmse in _pairs(run, "mae", "rmse"))
    assert {"rmse-mean", "rmse-std"} < summary["table"][0].keys()
    with (sites / "out/clients.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert float(row["rmse"]) ** 2 == pytest.approx(float(row["loss"]))
    assert {"mae", "r2"} < row.keys()
    assert "Test RMSE, mean over 6 clients ± std over 2 seeds" in out
    assert "accuracy" not in out
    assert [name for name in ("RMSE", "MAE", "R²") if f" {name} " not in out] == []
    assert (sites / "out/rmse-per-round.png").exists()
    assert not (sites / "out/labels-per-client.png").exists()
    page = write_report([sites / "out"], sites / "page.html").read_text(encoding="utf-8")
    best, other = sorted(summary["table"], key=lambda row: row["rmse-mean"])
    said = f"{best['strategy']} reached RMSE {best['rmse-mean']:#.4g}"
    compared = r"(That is [\d.]+ less than|No difference can be shown from)"
    compared = rf" \(mean over 6 clients and 2 seeds\)\. {compared} {other['strategy']} \("
    assert re.search(re.escape(said) + compared, page)
    _, _, shown = page.partition("<main")
    assert "accuracy" not in shown.lower().partition("<script")[0].replace("without accuracy", "")


def _pairs(run, *names):
    return zip(*(run[f"{name}-per-client"] for name in names), strict=True)


def test_results_of_classes_and_of_a_number_share_no_page(sites):
    run_alone(given(sites, strategy="single", num_server_rounds=1))
    other = sites / "classes"
    other.mkdir()
    summary = json.loads((sites / "out/summary.json").read_text(encoding="utf-8"))
    for run in summary["runs"]:
        run |= {"accuracy": 0.5, "accuracy-per-client": [0.5] * 6}
        del run["rmse"], run["rmse-per-client"]
    (other / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with pytest.raises(ValueError, match=r"RMSE \(out\) and accuracy \(classes\) cannot stand"):
        write_report([sites / "out", other], sites / "page.html")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attack": "label-flip"}, 'attack is "label-flip", but the label to predict is a number'),
        ({"noise": "class-independent"}, 'noise is "class-independent", but sites:load predicts'),
        ({"shift": "concept"}, 'shift is "concept", but sites:load predicts a number'),
        ({"tasks": "0|1"}, r"tasks is 0\|1, but sites:load comes in partitions"),
        ({"loss": "sites:several"}, r'loss is "sites:several", which returned \(3,\): it must'),
        ({"loss": "sites:fails"}, r"but the call fails\(outputs, labels\) fails: KeyEr"),
    ],
)
def test_what_a_number_does_not_suit_is_refused_before_anything_starts(options, message, sites):
    values = given(sites, strategy="rcc-pfl", **options)
    with pytest.raises(ValueError, match=message):
        check_simulation(parse_config(values), sites / "other")


def test_a_loss_of_ones_own_is_what_is_minimised_and_told(sites):
    run_alone(given(sites, strategy="ifca-pfl", loss="sites:absolute", num_server_rounds=2))
    with (sites / "out/clients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["loss"]) == pytest.approx(float(row["mae"]), rel=1e-5) for row in rows)


def test_a_device_s_owner_must_allow_a_loss(sites):
    with pytest.raises(RuntimeError, match="sites:absolute"):
        run_alone(given(sites, loss="sites:absolute"), allowed="sites:load,sites:make_model")


def test_devices_agree_on_a_number_and_those_with_another_target_are_named(sites, capsys, caplog):
    kept = sites / "berlin.safetensors"
    of_devices = {name: f"sites:{name}" for name in ("berlin", "lyon", "oslo", "rome")}
    named = {"strategy": "single", "features": "raw", "num-clusters": 1}
    values = {**DEFAULTS, **DEVICES, **named, "output-dir": str(sites / "out")}
    grid = Devices(of_devices, values, model_paths={"berlin": kept})
    with undrawn_pictures():
        run_on_devices(values, grid)
    said = capsys.readouterr().out
    assert "a number: dose (mg)" in said
    assert "round   1/" in said
    (run,) = json.loads((sites / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    for name, kind in (("oslo", ""), ("rome", ' with the number "dose (g)"')):
        why = f"its samples are float32 of shape 4{kind}, but those of most devices are "
        assert f"{name} is left out, its survey failed: {why}float32 of shape 4" in caplog.text
    assert [error is not None for error in run["rmse-per-client"]] == [True, True, False, False]
    assert load_model(kept)[1].class_names == ("dose (mg)",)


def test_a_sweep_keeps_and_tabulates_errors(sites):
    summary = run_alone(given(sites, strategy="rcc-pfl,single", num_server_rounds=2))
    runs = [
        {"strategy": run["strategy"], "seed": 0, **numbers_of_run(run, sites / "out")}
        for run in summary["runs"]
    ]
    assert [run["rounds"]["2"]["rmse"] for run in runs] == [run["rmse"] for run in runs]
    options = {**OPTIONS, "strategy": "rcc-pfl,single", "learning-rate": [0.02, 0.1]}
    planned = plan_sweep(options)
    cells = [{"cell": "a", "values": {"learning-rate": 0.02}, "runs": runs}]
    table = printed_tables(planned, tidy(planned, cells), cells)
    assert "RMSE, one seed" in table
    best = min(run["rmse"] for run in runs)
    assert f"{best:.4f}" in table
    assert "accuracy" not in table
    assert words_of({"runs": runs}).startswith("rcc-pfl RMSE 0.")
