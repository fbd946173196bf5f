"""The whole app on real images, on a grid in this process: no Ray, no network."""

import csv
import json
import logging
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from PIL import Image
from safetensors.torch import load_file

import fl_app.simulation.node
from benchmarks.writing import run_of
from fl_app import server_app
from fl_app.client_app import app
from fl_app.config.run_config import parse_config, parse_override
from fl_app.report.comparisons import COMPARISONS
from fl_app.results.layout import output_folder
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.experiment import run_experiment
from fl_app.run.log import LEVEL_VARIABLE
from fl_app.simulation.simulated_clients import Simulation, wait_for_nodes
from fl_core.data.datasets import load_dataset
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from fl_core.partitions.federation import simulate_federation
from tests.app_runs import DEFAULTS, ROOT, run, without_seconds
from tests.local_grid import LocalGrid
from tests.report_data import reasons_of
from tests.toy_app import fail, with_arrays

ALL = "rcc-pfl,optimum,random,single,local"


def make_run_options():
    """Return the options of the comparison that `make run` prints."""
    told = ["make", "--dry-run", "--old-file=there/.installed", "VENV=there", "run"]
    recipe = subprocess.check_output(told, cwd=ROOT, text=True)
    return dict(parse_override(word) for word in re.findall(r"[a-z-]+=\S+", recipe))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of all strategies on two seeds with noisy labels."""
    folder = tmp_path_factory.mktemp("finished")
    summary = run(
        folder,
        clients=9,
        drawn=True,
        strategy=ALL,
        repeats=2,
        noise="class-dependent",
        num_server_rounds=4,
        evaluate_every=2,
        learning_rate=0.01,
        batch_size=128,
    )
    return folder, summary


def test_the_summary_has_what_tools_rely_on(finished):
    _, summary = finished
    assert summary["version"] == 1
    assert set(summary["config"]) == set(DEFAULTS)
    assert [(r["strategy"], r["seed"]) for r in summary["runs"]] == [
        (name, seed) for seed in (0, 1) for name in ALL.split(",")
    ]
    for one in summary["runs"]:
        assert one["num-clients"] == len(one["accuracy-per-client"]) == len(one["clusters"]) == 9
        assert one["rounds"] == 4
        assert one["accuracy"] == pytest.approx(np.mean(one["accuracy-per-client"]))
        assert one["accuracy-variance"] == pytest.approx(np.var(one["accuracy-per-client"]))
        for score in ("macro-f1", "balanced-accuracy"):
            assert one[score] == pytest.approx(np.mean(one[f"{score}-per-client"]))
            assert 0 < min(one[f"{score}-per-client"]) < max(one[f"{score}-per-client"]) <= 1
        assert sorted(one["tasks"]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert set(one["bytes"]) >= {"pre-round-up", "pre-round-down", "train-up", "train-down"}
        assert set(one["seconds"]) == {"pre-round", "train", "evaluate", "total"}
        assert one["seconds"]["total"] >= one["seconds"]["train"] > 0
        assert one["failures"] == []
    row = {r["strategy"]: r for r in summary["table"]}
    means = [r["accuracy"] for r in summary["runs"] if r["strategy"] == "single"]
    assert row["single"]["accuracy-mean"] == pytest.approx(np.mean(means))
    assert row["single"]["accuracy-std"] == pytest.approx(np.std(means, ddof=1))


def test_rcc_pfl_finds_the_tasks_and_so_equals_the_optimum(finished):
    _, summary = finished
    runs = {(r["strategy"], r["seed"]): r for r in summary["runs"]}
    for seed in (0, 1):
        found, best = runs["rcc-pfl", seed], runs["optimum", seed]
        assert found["ari"] == found["nmi"] == best["ari"] == 1
        assert found["accuracy-per-client"] == best["accuracy-per-client"]
        assert found["clusters"] == best["clusters"]
        assert runs["single", seed]["clusters"] == [0] * 9
        assert runs["local", seed]["clusters"] == list(range(9))


@pytest.mark.slow
def test_make_run_shows_what_it_promises(tmp_path):
    """It finds the tasks, as the optimum does, and is 5 points above one model for all.

    After a third of the rounds already, on the first of its seeds.
    """
    options = {key.replace("-", "_"): value for key, value in make_run_options().items()}
    options |= {"strategy": "rcc-pfl,single", "repeats": 1, "num_server_rounds": 7}
    summary = run(tmp_path, clients=25, **options)
    found, single = summary["runs"]
    assert found["ari"] == 1
    assert found["accuracy"] > single["accuracy"] + 0.05


def test_the_committed_example_was_made_by_make_run():
    committed = run_of("make-run")
    told = {**make_run_options(), "num-clients": 25}
    resolved = {"tasks", "data-dir", "output-dir", "num-clusters", "num-eigenvectors", "model"}
    resolved |= {"features", "standardise", "relevance", "relevance-at"}
    known = committed["config"].keys()  # there may be options that have come since
    wanted = {key: DEFAULTS[key] for key in DEFAULTS.keys() & known - resolved} | told
    assert wanted.items() <= committed["config"].items()


def test_bytes_of_the_pre_round(finished):
    _, summary = finished
    rcc = summary["runs"][0]["bytes"]
    one_client = 324 * 20 * 4  # d × k float32
    assert one_client * 9 < rcc["pre-round-up"] < 1.02 * one_client * 9
    assert one_client * 81 < rcc["pre-round-down"] < 1.02 * one_client * 81
    model = (784 * 10 + 10) * 4
    assert 4 * 9 * model < rcc["train-up"] < 1.02 * 4 * 9 * model


def test_clients_csv_has_one_row_per_strategy_seed_evaluated_round_and_client(finished):
    folder, summary = finished
    with (folder / "clients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = ("strategy", "seed", "round", "client")
    assert {tuple(row[key] for key in keys) for row in rows} == {
        (name, str(seed), str(number), str(client))
        for name in ALL.split(",")
        for seed in (0, 1)
        for number in (2, 4)
        for client in range(9)
    }
    assert len(rows) == 5 * 2 * 2 * 9
    last = [row for row in rows if row["round"] == "4"]
    for one in summary["runs"]:
        own = [r for r in last if (r["strategy"], r["seed"]) == (one["strategy"], str(one["seed"]))]
        assert [int(row["cluster"]) for row in own] == one["clusters"]
        assert [int(row["task"]) for row in own] == one["tasks"]
        for score in ("accuracy", "macro-f1", "balanced-accuracy"):
            assert [float(row[score]) for row in own] == one[f"{score}-per-client"]
        with np.load(folder / f"partition-seed-{one['seed']}.npz") as saved:
            assert [int(row["samples"]) for row in own] == [
                len(saved[f"train-{c}"]) for c in range(9)
            ]
    assert {row["name"] for row in rows} == {""}


def test_what_is_not_known_of_a_client_is_empty(tmp_path):
    run(tmp_path, corrupt={("train", 1): fail, ("evaluate", 2): fail}, strategy="single")
    with (tmp_path / "clients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:6]
    assert [row["samples"] == "" for row in rows] == [False, True, *[False] * 4]
    for score in ("accuracy", "loss", "macro-f1", "balanced-accuracy"):
        assert [row[score] == "" for row in rows] == [False, False, True, *[False] * 3]


def test_a_run_is_resumed_from_what_it_left_and_not_from_what_was_there_before(tmp_path):
    """While one waits for the other to leave the folder, that may write another checkpoint."""
    run(tmp_path, strategy="single", checkpoint_every=1)
    path = tmp_path / "checkpoints/single-seed-0.safetensors"
    saved = load_checkpoint(path)
    resumed = parse_config({**saved["options"], "resume": str(tmp_path)})
    checkpoints = Checkpoints(resumed, tmp_path)
    save_checkpoint(path, {**saved, "seconds": 1234.5})
    with checkpoints.only_run():
        found = checkpoints.load("single", 0, load_dataset("mnist-5k"))
        assert found["seconds"] == 1234.5


def test_a_run_is_not_resumed_with_other_data(tmp_path):
    """The folder may have moved, but what is in it may not have changed."""
    for name, shift in (("first", 0), ("moved", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        for site in range(6):
            rows = [f"{(row + shift) % 5},{'ab'[row % 2]}" for row in range(20)]
            text = "\n".join(["dose,outcome", *rows]) + "\n"
            (tmp_path / name / f"{site}.csv").write_text(text, encoding="utf-8")
    options = {"dataset": "tables", "label": "outcome", "strategy": "single", "model": "mlp-32"}
    options |= {"num_clients": 6, "checkpoint_every": 1}
    out = tmp_path / "out"
    run(out, data_dir=str(tmp_path / "first"), **options)
    run(out, data_dir=str(tmp_path / "moved"), resume=str(out), **options)
    with pytest.raises(ValueError, match="the data have changed since the run in "):
        run(out, data_dir=str(tmp_path / "other"), resume=str(out), **options)


def test_pictures_and_partitions_are_there(finished):
    folder, summary = finished
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "log.txt",
        "status.json",
        "summary.json",
        "metrics.csv",
        "clients.csv",
        "models",
        "labels-per-client.png",
        *(f"{name}.png" for name in COMPARISONS),
        "report.html",
        "grouping.json",
        "grouping-rcc-pfl-seed-1.json",
        *(f"spectra-rcc-pfl-seed-{s}.safetensors" for s in (0, 1)),
        *(f"partition-seed-{s}.npz" for s in (0, 1)),
        *(f"similarity-rcc-pfl-seed-{s}.{kind}" for s in (0, 1) for kind in ("png", "npz")),
    }
    for picture in folder.glob("*.png"):
        with Image.open(picture) as image:
            assert min(image.size) > 300
    with np.load(folder / "partition-seed-0.npz") as saved:
        assert saved["client-tasks"].tolist() == summary["runs"][0]["tasks"]
        assert len(saved["train-0"]) == len(saved["labels-0"])
    with np.load(folder / "similarity-rcc-pfl-seed-0.npz") as saved:
        assert saved["similarity"].shape == (9, 9)


@pytest.mark.slow
def test_shuffled_labels_change_no_bit_of_the_clustering(tmp_path, monkeypatch):
    """Every client's labels are permuted; who holds which image stays as it is."""
    run(tmp_path / "true", strategy="rcc-pfl", num_server_rounds=1)

    def shuffle(settings):
        federation = simulate_federation(settings)
        rng = np.random.default_rng(1)
        labels = tuple(rng.permutation(own) for own in federation.train_labels)
        return type(federation)(federation.dataset, federation.partition, labels)

    monkeypatch.setattr(fl_app.simulation.node, "simulate_federation", shuffle)
    run(tmp_path / "shuffled", strategy="rcc-pfl", num_server_rounds=1)
    with (
        np.load(tmp_path / "true/similarity-rcc-pfl-seed-0.npz") as true,
        np.load(tmp_path / "shuffled/similarity-rcc-pfl-seed-0.npz") as shuffled,
    ):
        for name in ("clients", "similarity", "merges"):
            assert np.array_equal(true[name], shuffled[name])
    models = [
        load_file(tmp_path / which / "models/rcc-pfl/seed-0/cluster-0.safetensors")
        for which in ("true", "shuffled")
    ]
    assert not np.array_equal(*(m["output.weight"] for m in models))  # training did see them


def test_a_client_that_fails_is_in_the_results_as_failed(tmp_path, caplog):
    bad = with_arrays(lambda a: a["eigenvectors"].__setitem__(0, np.nan))
    summary = run(tmp_path, corrupt={("query.spectrum", 1): bad, ("train", 4): fail})
    one = summary["runs"][0]
    assert reasons_of(one) == {1: "its eigenvectors are not all finite numbers"}
    assert one["clusters"][1] == -1
    assert one["accuracy-per-client"][1] is None
    assert one["ari"] == 1
    others = [a for a in one["accuracy-per-client"] if a is not None]
    assert one["accuracy"] == pytest.approx(np.mean(others))
    assert "client 4 could not train in round 2" in caplog.text


def test_a_client_that_does_not_answer_the_roll_call_is_in_the_results(tmp_path, caplog):
    summary = run(tmp_path, corrupt={("query.describe", 2): fail}, strategy="single")
    assert reasons_of(summary["runs"][0]) == {2: "it did not register"}
    assert summary["runs"][0]["clusters"][2] == -1
    assert "the disk is full" in caplog.text


def test_a_run_in_which_nobody_could_be_tested_still_ends_with_its_results(tmp_path, capsys):
    corrupt = {("evaluate", client): fail for client in range(6)}
    summary = run(tmp_path, corrupt=corrupt, strategy="single")
    assert summary["runs"][0]["accuracy"] is None
    assert summary["runs"][0]["accuracy-per-client"] == [None] * 6
    assert "Test accuracy" in capsys.readouterr().out


@pytest.mark.faults
def test_a_node_with_a_number_beyond_the_clients_is_left_out(tmp_path, caplog):
    run_config = {**DEFAULTS, "output-dir": str(tmp_path / "out"), "strategy": "single"}
    grid = LocalGrid(app, 3, run_config=run_config)
    for number, context in enumerate(grid.contexts.values(), start=-1):
        context.node_config["partition-id"] = number
    run_experiment(parse_config(run_config), grid, Simulation)
    assert "this node's partition-id is -1, but there are 3 clients" in caplog.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert list(reasons_of(summary["runs"][0])) == [2]


def test_results_are_for_their_owner_alone_unless_the_folder_says_otherwise(tmp_path):
    """They name sites and hold models."""
    tmp_path.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    before = os.umask(0o022)
    try:
        shared.chmod(0o750)
        for folder, nobody in ((tmp_path / "results/today", 0o077), (shared, 0o007)):
            run(folder, strategy="spectral+mean+ditto", checkpoint_every=1)
            assert any((folder / "checkpoints").iterdir())
            for path in (folder, *folder.rglob("*")):
                assert path.stat().st_mode & nobody == 0, path
        assert (shared / "summary.json").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    assert (tmp_path / "results").stat().st_mode & 0o777 == 0o755
    assert shared.stat().st_mode & 0o777 == 0o750


def test_the_saved_configuration_is_resolved_and_can_be_run_again(finished):
    folder, summary = finished
    saved = summary["config"]
    assert saved["tasks"] == "0,2,4|6,8,1|3,5,7,9"
    assert (saved["num-clusters"], saved["num-clients"], saved["output-dir"]) == (3, 9, str(folder))
    assert parse_config(saved).as_run_config() == saved


def test_what_is_finished_is_not_lost_when_a_later_strategy_fails(tmp_path):
    calls = []

    def fail_later(message, context, answer):
        calls.append(message)
        if len(calls) > 2:
            raise RuntimeError("the disk is full")
        return answer

    corrupt = {("train", c): fail for c in range(1, 6)} | {("train", 0): fail_later}
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 1"):
        run(tmp_path, corrupt=corrupt, strategy="single,local")
    saved = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert [r["strategy"] for r in saved["runs"]] == ["single"]
    assert (tmp_path / "models/single/seed-0/cluster-0.safetensors").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"tune": "num-clusters=2,7", "strategy": "rcc-pfl,local", "validation_share": 0.2},
            "num-clusters is 7, but there are 6 clients",
        ),
        ({"num_clients": 25}, r'num-clients is 25, but 6 .* "num-supernodes=25 client-resources'),
        ({"num_tasks": 11}, "num-tasks is 11, but mnist-5k has 10 classes"),
        ({"dataset": "folder", "data_dir": "/nowhere"}, "/nowhere"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent_or_written(tmp_path, overrides, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(tmp_path / "out", **overrides)
    assert not (tmp_path / "out").exists()


def test_a_number_of_nodes_that_settles_is_taken():
    class Growing(LocalGrid):
        def get_node_ids(self):
            self.calls = getattr(self, "calls", 0) + 1
            return set(list(self.contexts)[: self.calls])

    assert wait_for_nodes(Growing(app, 4), 0, patience=0.5) == 4
    assert wait_for_nodes(Growing(app, 4), 4) == 4


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        *(("mlp-32", optimizer) for optimizer in ("sgd", "adam")),
        pytest.param("mlp", "sgd", marks=pytest.mark.slow),
        pytest.param("cnn", "adam", marks=[pytest.mark.slow, pytest.mark.faults]),
    ],
)
def test_every_model_and_optimizer_learns(tmp_path, model, optimizer):
    summary = run(
        tmp_path,
        strategy="optimum",
        model=model,
        optimizer=optimizer,
        learning_rate=0.05 if optimizer == "sgd" else 0.002,
        momentum=0.9,
        num_server_rounds=3,
        evaluate_every=3,
    )
    assert summary["runs"][0]["accuracy"] > 0.6


CLUSTERS = "rcc-pfl, seed 0, ARI 1.00 against the true tasks"


@pytest.mark.parametrize(
    ("level", "shown", "hidden"),
    [
        (None, ["round   2/2", "0:00:00 left", "Test accuracy"], [CLUSTERS, ".png"]),
        (logging.INFO, ["Test accuracy"], ["round   2/2", CLUSTERS]),
        (logging.DEBUG, ["round   2/2", CLUSTERS, "similarity-rcc-pfl-seed-0.png"], []),
        (logging.ERROR, [], ["round   2/2", "Test accuracy"]),
    ],
)
def test_the_console_shows_what_is_asked_for_and_the_log_all(
    level, shown, hidden, tmp_path, capsys, monkeypatch
):
    def log_and_answer(message, context, answer):
        logging.getLogger(__name__).info("tested")
        return answer

    if level is not None:
        monkeypatch.setenv(LEVEL_VARIABLE, str(level))
    corrupt = {("evaluate", 0): log_and_answer}
    run(tmp_path, strategy="rcc-pfl,single", noise="class-independent", corrupt=corrupt)
    text = capsys.readouterr().out
    assert all(part in text for part in shown)
    assert not any(part in text for part in hidden)
    if "Test accuracy" in shown:  # the last table
        assert "±" not in text.split("Test accuracy, mean over 6 clients, one seed\n")[1]
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "mnist-5k on 6 clients\ngrey images of 28×28 pixels; 10 classes: 0, 1, 2" in log
    assert "logistic-regression; rcc-pfl, single for 2 rounds" in log
    (changed,) = [line for line in log.splitlines() if line.startswith("options: ")]
    assert "num-tasks=3 noise=class-independent" in changed
    assert "None" not in changed and "features" not in changed
    assert all(part in log for part in ("round   2/2", "Test accuracy", CLUSTERS, ".png"))
    assert f"INFO {__name__}: tested" in log


def test_the_output_folder_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output_folder("out") == tmp_path / "out"
    assert output_folder("").parent == tmp_path / "results"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert output_folder("~/out") == tmp_path / "out"


@pytest.mark.slow
def test_a_simulation_is_resumed_with_as_many_clients_as_it_had(tmp_path):
    options = {"strategy": "rcc-pfl", "checkpoint_every": 1, "num_clients": "all"}
    whole = run(tmp_path / "out", clients=6, **options)
    resume = {"resume": str(tmp_path / "out"), "output_dir": ""}
    with pytest.raises(ValueError, match=r"7 SuperNodes are connected, .* started with 6"):
        run(tmp_path / "out", clients=7, **options, **resume)
    again = run(tmp_path / "out", clients=6, **options, **resume)
    assert without_seconds(again)["runs"] == without_seconds(whole)["runs"]


def test_flwr_run_refuses_min_answers_which_its_simulations_ignore():
    context = Context(1, 1, {}, RecordDict(), {**DEFAULTS, "min-answers": 0.5})
    with pytest.raises(ValueError, match=r"^min-answers must be 1"):
        server_app.app(LocalGrid(None, 0), context)


def test_a_library_that_ends_the_program_fails_the_run(monkeypatch, capsys):
    """Flower takes sys.exit for a run that went well."""
    monkeypatch.setattr(server_app, "run_experiment", lambda *_: sys.exit("no licence"))
    context = Context(1, 1, {}, RecordDict(), dict(DEFAULTS))
    with pytest.raises(RuntimeError, match=r"the run was ended by sys\.exit\('no licence'\)"):
        server_app.app(LocalGrid(None, 0), context)
    assert capsys.readouterr().out == "error: no licence\n"
