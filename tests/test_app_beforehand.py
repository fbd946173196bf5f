"""What `fedkin run` refuses before it starts anything."""

import os
import re
import shutil
from pathlib import Path

import pytest

import fl_app.superlink
from fl_app.cli import main
from fl_core.datasets import load_dataset
from fl_core.federation_checks import check_federation
from fl_core.settings import DATASETS, FederationSettings, num_labels

BASE = ["num-clients=12", "strategy=single"]


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, tmp_path):
    def start(*_, **__):
        raise AssertionError("something was started")

    monkeypatch.setattr(fl_app.superlink, "simulate", start)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strateg=single"], "strateg is not a run-config key. Did you mean strategy?"),
        (["strategy=singel"], 'strategy is "singel", .* Did you mean single\\?'),
        (["strategy=spectral+meen"], 'aggregation is "meen", .* Did you mean mean\\?'),
        (["dataset=cifar-10"], 'dataset is "cifar-10", .* Did you mean cifar10\\?'),
        (["model=mlq"], 'model is "mlq", .* Did you mean mlp\\?'),
        (["seed=99999999999999999999999"], "seed is 9{23}, .* at most 4294967295"),
        (["seed=4294967296"], "seed is 4294967296, but it must be a whole number"),
        (["dataset=own"], 'dataset is "own", the images of real devices, but fedkin run simulates'),
        (["num-tasks=11"], "num-tasks is 11, but mnist-5k has 10 classes: choose 1 to 10"),
        (["num-tasks=9", "num-clients=8"], "num-clients is 8, fewer than the 9 tasks"),
        (["tasks=0,1|2,17"], r"tasks name label 17, but no training image has it: .* 8, 9\]"),
        (["clients-per-task=3,4"], "clients-per-task is 3,4, which is 7 clients of 2 tasks"),
        (["newcomers=12"], "newcomers is 12, but there are 12 clients"),
        (["dataset=mnist", "data-dir=mistyped"], "data-dir is mistyped, which is no folder"),
    ],
)
def test_a_wrong_word_is_refused_in_one_line(words, said, capsys):
    assert main(["run", *BASE, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert not list(Path.cwd().iterdir())


def test_a_data_folder_that_is_only_in_the_variable(monkeypatch, capsys):
    monkeypatch.setenv("FL_DATA_DIR", "/nowhere/at/all")
    assert main(["run", *BASE, "dataset=mnist"]) == 2
    assert "the variable FL_DATA_DIR is /nowhere/at/all, which is no" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="something was started"):
        main(["run", *BASE])  # mnist-5k is in the package


def test_folders_for_results_that_cannot_be(tmp_path, capsys):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for folder in ("file", "file/below"):
        assert main(["run", *BASE, f"output-dir={folder}"]) == 2
        assert "is a file: name another folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_folders_for_results_that_may_not_be_written_to(monkeypatch, capsys):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert main(["run", *BASE, "output-dir=here"]) == 2
    assert "but you may not write to" in capsys.readouterr().err


def test_a_full_disk(monkeypatch, capsys):
    total = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: total._replace(free=5_000_000))
    assert main(["run", *BASE]) == 2
    assert "where 5 MB are free, but a run needs 100 MB" in capsys.readouterr().err


def test_a_dry_run_says_what_would_run_and_starts_nothing(tmp_path, capsys):
    words = ["strategy=single,local", "repeats=3", "seed=4", "output-dir=out", "num-tasks=3"]
    assert main(["run", "--dry-run", *words]) == 0
    said = capsys.readouterr().out
    assert "strategies: single, local\nseeds 4 to 6: 6 trainings of 10 rounds\n" in said
    assert "25 clients, data set mnist-5k, model logistic-regression" in said
    assert f"results would go to {tmp_path / 'out'}" in said
    assert said.endswith(f"not at their defaults: {' '.join(words)}\n")
    assert main(["run", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "seed 0: 2 trainings" in said
    assert "defaults" not in said
    assert not (tmp_path / "out").exists()


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("fedkin 0.")


@pytest.mark.parametrize("name", ["mnist-5k", "mnist", "fashion-mnist", "cifar10", "rotated-mnist"])
def test_the_number_of_labels_is_known_before_the_images_are(name):
    if name != "mnist-5k" and "FL_DATA_DIR" not in os.environ:
        pytest.skip("FL_DATA_DIR is not set")
    assert num_labels(name) == len(load_dataset(name, download=False).group_names)


def test_numbers_of_labels_of_other_data_sets():
    joined = "mnist+fashion-mnist"
    known = {name: num_labels(name) for name in (*DATASETS, joined)}
    assert known[joined] == known["cifar20"] == 20
    assert {name for name, count in known.items() if count is None} == {"femnist", "folder"}


def test_what_can_only_be_known_from_the_images_is_not_refused():
    for options in (
        {"dataset": "folder", "num_tasks": 99},
        {"dataset": "femnist", "partition": "writer", "num_tasks": 99},
        {"dataset": "mnist-5k", "tasks": "random:3"},
        {"dataset": "mnist-5k", "shift": "concept", "num_tasks": 10},
    ):
        check_federation(FederationSettings(num_clients=120, seed=0, **options))
