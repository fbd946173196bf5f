"""The tables whose data are a download: their cells on small files of the very formats."""

import hashlib
import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.error import URLError

import pytest

from clients.pre_round import pretraining
from fl_app.cli import main
from fl_app.studies.reproduce import data_files, experiment_file
from fl_app.studies.reproduce.cells import read_cells, wanted_cells
from fl_app.studies.reproduce.data_files import check_sources, files_of, record_of
from fl_app.studies.reproduce.experiment_file import read_experiment
from fl_core.data.datasets import CIFAR20_OTHERS
from tests.app_runs import run, undrawn_pictures, whole_space
from tests.cifar_files import CIFAR10_CLASSES, write_cifar
from tests.processes import fedkin
from tests.published_files import (
    pack_cifar,
    write_emnist,
    write_fashion_mnist,
    write_femnist,
    write_resnet18,
)

ROOT = Path(__file__).parents[3]
ONE_ROUND = {"num-server-rounds": 1, "local-epochs": 1, "evaluate-every": 1, "model": "mlp-32"}
long = partial(pytest.param, marks=pytest.mark.faults)
FEW = {
    "flt-3": {"num-clients": 6, "warm-up-rounds": 0},
    "flt-4-emnist": {"num-clients": 20, "min-samples": 1},
    "flt-5": {"num-clients": 5, "min-samples": 1},
    "mt-hfl-2": {"min-samples": 1, "tasks": "0,1,8,9|18,23|10,11,12"},
}


def write_cifars(monkeypatch, root):
    files = [("data_batch_1", "train_list"), ("test_batch", "test_list")]
    write_cifar(monkeypatch, "CIFAR10", root, "labels", CIFAR10_CLASSES, files, [*range(10)] * 2)
    classes = [*CIFAR20_OTHERS, *(f"class {number}" for number in range(90))]
    files = [("train", "train_list"), ("test", "test_list")]
    write_cifar(monkeypatch, "CIFAR100", root, "fine_labels", classes, files, range(14))
    for kind in ("CIFAR10", "CIFAR100"):
        pack_cifar(monkeypatch, kind, root)


def simulated(app, overrides, *, num_clients, **how):
    """Stand in for a private SuperLink: the same run, in this process."""
    given = {key.replace("-", "_"): value for key, value in overrides.items()}
    folder = Path(given.pop("output_dir"))
    del given["num_clients"]
    run(folder, clients=num_clients, **{"num_tasks": 2, **given})
    return True


@pytest.fixture
def there(monkeypatch, tmp_path):
    """Return a folder for files, and no network; short pre-training and no UMAP beside it."""
    monkeypatch.setenv("FL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("fl_app.launch.superlink.simulate", simulated)
    monkeypatch.setattr("strategies.clusterings.flt.embed_signatures", whole_space)
    monkeypatch.setattr(pretraining, "IMAGES_PER_EPOCH", {1: 10, 3: 2})
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(ROOT)
    with undrawn_pictures():
        yield tmp_path / "data"


def refuse(request, *_, **__):
    raise URLError("there is no network")


def write_files(name, monkeypatch, folder):
    if name == "flt-3":
        write_femnist(folder, 8)
        write_fashion_mnist(folder)
    elif name == "flt-4-emnist":
        write_emnist(monkeypatch, folder, per_class=2)
        write_fashion_mnist(folder)
    else:
        write_cifars(monkeypatch, folder)
        write_resnet18(folder.parent / "torch")


def reproduce(name, monkeypatch, output, rows=1, columns=1, variants=None):
    """Reproduce so much of a table, with few clients and one round; return its cells."""
    whole = read_experiment(ROOT / f"experiments/{name}.toml")
    few = replace(
        whole,
        rows=dict(islice(whole.rows.items(), rows)),
        columns=dict(islice(whole.columns.items(), columns)),
        variants={own: whole.variants[own] for own in variants or whole.variants},
        quick=FEW[name] | ONE_ROUND,
        small=True,
        published={},
        claims=(),
    )
    monkeypatch.setattr(experiment_file, "read_experiment", lambda path: few)
    words = ["--seeds", "1", "--workers", "0", "--output", str(output)]
    assert main(["reproduce", name, *words]) == 0
    cells = read_cells(output / f"{name}.json")
    assert [one.is_of(cell) for one, cell in zip(wanted_cells(few, 1), cells, strict=True)]
    return cells


@pytest.mark.parametrize(
    ("name", "variants", "published"),
    [
        long("flt-3", ["flt"], {"femnist": None, "fashion-mnist": None}),
        ("flt-4-emnist", ["flt"], {"emnist-balanced": True, "fashion-mnist": None}),
        long("flt-5", ["flt (Enc1)"], {"cifar10": True, "cifar100": True}),
        long("mt-hfl-2", [], {"cifar10": True, "cifar100": True, "resnet18": False}),
    ],
)
def test_a_table_runs_on_files_of_the_published_formats(
    name, variants, published, there, monkeypatch, tmp_path, capsys
):
    write_files(name, monkeypatch, there)
    cells = reproduce(name, monkeypatch, tmp_path / "out", variants=variants)
    assert {source: one["published"] for source, one in cells[-1]["data"].items()} == published
    said = capsys.readouterr().out
    assert "time left: about" in said
    page = (tmp_path / "out" / f"{name}.md").read_text(encoding="utf-8")
    for source, record in cells[-1]["data"].items():
        assert f"{source}: {record['files']} file(s), " in said
        assert f"SHA-256 {record['sha256']}, " in page
    assert ("not as published" in page) == (False in published.values())
    assert f"send back {tmp_path / 'out' / name}.json" in said


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("name", list(FEW))
def test_every_cell_of_a_table_runs_on_such_files(name, there, monkeypatch, tmp_path):
    write_files(name, monkeypatch, there)
    reproduce(name, monkeypatch, tmp_path / "out", rows=9, columns=9)


@pytest.mark.slow
@pytest.mark.faults
def test_a_process_of_its_own_runs_on_leaf_s_files(tmp_path):
    write_femnist(tmp_path / "data", 8)
    table = (ROOT / "experiments/flt-3.toml").read_text(encoding="utf-8")
    quick = table[table.index("[quick]") : table.index("[variants")]
    few = FEW["flt-3"] | ONE_ROUND
    mine = "".join(f"{key} = {json.dumps(value)}\n" for key, value in few.items())
    variants = table[table.index("[variants") : table.index("[rows")]
    path = tmp_path / "flt-3.toml"
    only = table.replace(quick, f"[quick]\n{mine}\n").replace(variants, "")
    path.write_text(only[: only.index("[published")], encoding="utf-8")
    words = ["reproduce", str(path), "--quick", "--workers", "1"]
    with fedkin(words, FL_DATA_DIR=str(tmp_path / "data")) as running:
        said, _ = running.communicate()
    assert running.returncode == 0, said
    cells = read_cells(tmp_path / "results/quick/flt-3.json")
    assert [list(cell["methods"]) for cell in cells] == [["single", "cfl"]] * 2
    assert all(cell["data"]["femnist"]["files"] == 4 for cell in cells)


@pytest.mark.parametrize(
    ("name", "paper", "file"),
    [
        ("femnist", "LEAF's FEMNIST", "{}/femnist/data/train and test: "),
        ("emnist-balanced", "EMNIST", "EMNIST/raw/gzip.zip, .* is not in {}"),
        ("cifar100", "CIFAR-100", "cifar-100-python.tar.gz, .* is not in {}"),
    ],
)
def test_what_is_not_there_is_named_with_where_it_is_from(name, paper, file, there):
    with pytest.raises(ValueError, match=rf"{paper} \(.*\), .*{file.format(there)}") as told:
        check_sources("the table", [name])
    assert str(told.value).endswith("the folder that has it, and call the command again.")


def test_a_table_without_its_files_does_not_begin(there, tmp_path, capsys):
    assert main(["reproduce", "flt-3", "--output", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert "error: flt-3 needs LEAF's FEMNIST" in told.err
    assert "simulation" not in told.out
    write_femnist(there, 8)
    write_fashion_mnist(there)
    assert main(["reproduce", "flt-3", "--output", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert "num-clients is 200, but only 8 writers have 20 training" in told.err
    assert "simulation 1" not in told.out
    assert not (tmp_path / "out").exists()


def test_an_archive_that_is_damaged_is_named(there, monkeypatch):
    write_emnist(monkeypatch, there)
    (there / "EMNIST/raw/gzip.zip").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"needs EMNIST .*, but what is there cannot be used: "):
        check_sources("the table", ["emnist-balanced"])


def test_which_files_they_are_by_hand(there, monkeypatch):
    write_emnist(monkeypatch, there)
    check_sources("the table", ["emnist-balanced"])
    files = files_of("emnist-balanced")
    assert [one.published for one in files] == [True] * 4
    lines = [
        f"{hashlib.sha256((there / one.name).read_bytes()).hexdigest()}  {one.name}\n"
        for one in files
    ]
    record = record_of(files)
    assert record["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert record["bytes"] == sum((there / one.name).stat().st_size for one in files)
    assert str(files[0]).startswith(lines[0].rstrip())
    labels = there / files[1].name
    labels.write_bytes(labels.read_bytes()[:-1] + bytes([46]))  # another label
    assert data_files._files.__wrapped__("emnist-balanced", there)[1].published is True
    labels.write_bytes(labels.read_bytes()[:-1] + bytes([3]))
    changed = data_files._files.__wrapped__("emnist-balanced", there)
    assert [one.published for one in changed] == [True, False, True, True]
    assert record_of(changed)["published"] is False
    assert record_of(changed)["sha256"] != record["sha256"]
    (there / "EMNIST/raw/gzip.zip").write_bytes(b"nothing")
    unknown = data_files._files.__wrapped__("emnist-balanced", there)
    assert record_of(unknown) == {**record_of(changed), "published": None}
