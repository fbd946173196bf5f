"""Tables with data to download: their cells on small files of the very formats."""

import hashlib
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.error import URLError

import pytest

from clients.signatures import pretraining
from experiments import __main__ as command
from experiments.__main__ import main
from experiments.cells import all_cells
from experiments.data_files import check_sources, records_of
from experiments.experiment_file import Experiment, read_experiment
from fl_app.sweeps.store import read_cells
from fl_core.data.datasets import CIFAR20_OTHERS
from tests.app_runs import undrawn_pictures, whole_space
from tests.cifar_files import CIFAR10_CLASSES, write_cifar
from tests.published_files import (
    pack_cifar,
    write_emnist,
    write_fashion_mnist,
    write_femnist,
    write_resnet18,
)

ROOT = Path(__file__).parents[2]
ONE_ROUND = {"num-server-rounds": 1, "local-epochs": 1, "evaluate-every": 1, "model": "mlp-32"}
long = partial(pytest.param, marks=pytest.mark.faults)
FEW = {
    "flt-3": {"num-clients": 6},
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


@pytest.fixture
def there(monkeypatch, tmp_path):
    """Return a folder for files, and no network; short pre-training and no UMAP beside it."""
    monkeypatch.setenv("FL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("urllib.request.urlopen", refuse)
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
        variants={name: whole.variants[name] for name in variants or whole.variants},
        quick=FEW[name] | ONE_ROUND,
        small=True,
        published={},
        claims=(),
    )
    monkeypatch.setattr(command, "read_experiment", lambda path: few)
    words = ["--seeds", "1", "--workers", "0", "--output", str(output)]
    assert main([name, *words]) == 0
    cells = read_cells(output / f"{name}.json.xz")
    assert [one.matches(cell) for one, cell in zip(all_cells(few, 1), cells, strict=True)]
    return cells


@pytest.mark.parametrize(
    ("name", "variants", "sources"),
    [
        long("flt-3", ["flt"], {"femnist", "fashion-mnist"}),
        ("flt-4-emnist", ["flt"], {"emnist-balanced", "fashion-mnist"}),
        long("flt-5", ["flt (Enc1)"], {"cifar10", "cifar100"}),
        long("mt-hfl-2", [], {"cifar10", "cifar100", "resnet18"}),
    ],
)
def test_a_table_runs_on_files_of_the_published_formats(
    name, variants, sources, there, monkeypatch, tmp_path
):
    write_files(name, monkeypatch, there)
    cells = reproduce(name, monkeypatch, tmp_path / "out", variants=variants)
    assert set(cells[-1]["data"]) == sources
    page = (tmp_path / "out" / f"{name}.md").read_text(encoding="utf-8")
    for source, record in cells[-1]["data"].items():
        assert f"{source}: {record['files']} file(s), " in page
        assert f"SHA-256 {record['sha256']}." in page


def test_a_table_without_its_files_does_not_begin(there, tmp_path, capsys):
    assert main(["flt-3", "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "error: flt-3 needs femnist: " in said.err
    assert "simulation" not in said.out
    assert not (tmp_path / "out").exists()


def test_which_files_they_are_by_hand(there, monkeypatch):
    write_emnist(monkeypatch, there)
    check_sources("the table", ["emnist-balanced"])
    names = ["images-idx3-ubyte", "labels-idx1-ubyte"]
    names = [
        f"EMNIST/raw/emnist-balanced-{part}-{name}" for part in ("train", "test") for name in names
    ]
    lines = [f"{hashlib.sha256((there / one).read_bytes()).hexdigest()}  {one}\n" for one in names]
    config = Experiment.config({"dataset": "emnist-balanced"})
    record = records_of(config)["emnist-balanced"]
    assert record["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert record["bytes"] == sum((there / one).stat().st_size for one in names)
    assert record["files"] == 4
