"""Newcomers with tables: placed and classified by what a run of tables stored."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from fl_app.cli import main
from fl_app.results.spectra import load_spectra
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS
from tests.own_modules import run_alone

OPTIONS = {
    **{"dataset": "tables", "strategy": "rcc-pfl,local", "num-clients": 6, "features": "raw"},
    **{"num-eigenvectors": 2, "num-clusters": "2", "model": "mlp", "num-server-rounds": 4},
}


MODEL = "models/rcc-pfl/seed-0/cluster-1.safetensors"


def table(kind, seed, label="sort"):
    """Rows with two columns of one kind that give the label: all of another size."""
    rng = np.random.default_rng(seed)
    labels = np.arange(50) % 2
    numbers = rng.normal(size=(50, 4))
    numbers[:, 2 * kind : 2 * kind + 2] += 5 * (2 * labels[:, None] - 1)
    frame = pd.DataFrame(1000 * numbers + 70, columns=["a [m]", "b", "c", "d"])
    frame["lab"] = rng.choice(["north", "south"], 50)
    if label == "size":
        return frame.assign(size=150 + 10.5 * labels + rng.normal(size=50))
    return frame.assign(sort=np.where(labels, "benign", "malignant"))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Results of runs with columns standardised together, and at each site by itself."""
    folder = tmp_path_factory.mktemp("places")
    for label in ("sort", "size"):
        (folder / f"{label}s").mkdir()
        for client in range(6):
            path = folder / f"{label}s/site-{client}.csv"
            table(client % 2, client, label).to_csv(path, index=False)
    for name, label, mode in (
        ("all", "sort", "all"),
        ("site", "sort", "site"),
        ("size", "size", "all"),
        ("sizes-by-site", "size", "site"),
        ("sizes-as-they-are", "size", "none"),
    ):
        words = {"data-dir": str(folder / f"{label}s"), "label": label, "standardise": mode}
        if label == "size":
            words |= {"optimizer": "adam", "learning-rate": 0.001}
        run_alone({**DEFAULTS, **OPTIONS, **words, "output-dir": str(folder / name)})
    return folder


@pytest.fixture
def newcomer(tmp_path):
    """A table without labels, mode columns stand in another order."""
    path = tmp_path / "oslo.csv"
    table(1, 10).drop(columns="sort")[["lab", "d", "c", "b", "a [m]"]].to_csv(path, index=False)
    return path


def rows_of(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def said_by(capsys, *words):
    capsys.readouterr()
    status = main([*map(str, words)])
    return status, capsys.readouterr()


def test_a_table_is_placed_and_classified(places, newcomer, tmp_path, capsys):
    card = load_spectra(places / "all/spectra-rcc-pfl-seed-0.safetensors").card
    assert card.preparation.columns == {
        **dict.fromkeys(("a [m]", "b", "c", "d"), ()),
        "lab": ("north", "south"),
    }
    found = tmp_path / "found.csv"
    status, said = said_by(capsys, "place", places / "all", "--data-path", newcomer)
    assert status == 0, said
    clusters = "50 samples, the clusters of rcc-pfl on seed 0\ncluster 1, with site-1 site-3 site-5"
    assert clusters in said.out
    model = places / "all" / MODEL
    status, said = said_by(capsys, "classify", model, newcomer, "--output", found)
    assert status == 0, said
    rows = rows_of(found)
    assert [(row["path"], row["row"]) for row in rows] == [
        (str(newcomer), str(number)) for number in range(1, 51)
    ]
    truth = table(1, 10)["sort"].tolist()
    assert np.mean([row["class"] == one for row, one in zip(rows, truth, strict=True)]) > 0.9
    assert "benign" in said.out


def test_the_scale_is_the_runs_and_not_the_newcomers(places, tmp_path, capsys):
    """All training rows' mean and deviation, of the first 40 rows of six sites."""
    model = places / "all/models/rcc-pfl/seed-0/cluster-0.safetensors"
    scaling = load_model(model)[1].preparation.scaling
    rows = np.concatenate([table(client % 2, client)["c"][:40] for client in range(6)])
    np.testing.assert_allclose(
        (scaling.mean[2], scaling.deviation[2]), (rows.mean(), rows.std()), rtol=1e-12
    )
    # The deviation of one row is zero.
    two = tmp_path / "two.csv"
    table(0, 10).iloc[:2].to_csv(two, index=False)
    status, said = said_by(capsys, "classify", model, two)
    assert status == 0
    assert [line.split(",")[2] for line in said.out.split()[1:]] == ["malignant", "benign"]


def test_each_site_has_a_separate_scale_where_the_run_had(places, newcomer, capsys):
    """A site that measures in other units is placed as if it did not, by its rows."""
    frame = pd.read_csv(newcomer)
    numbers = ["a [m]", "b", "c", "d"]
    frame[numbers] = frame[numbers] / 1000 - 5
    frame.to_csv(newcomer, index=False)
    status, said = said_by(capsys, "place", places / "site", "--data-path", newcomer)
    assert (status, "cluster 1, with site-1 site-3 site-5" in said.out) == (0, True)
    cluster = load_model(places / "site" / MODEL)[1]
    assert (cluster.preparation.standardise, cluster.preparation.scaling) == ("site", None)
    local = load_model(places / "site/models/local/seed-0/cluster-3.safetensors")[1]
    rows = table(1, 3)["c"][:40]
    assert local.preparation.scaling.mean[2] == pytest.approx(rows.mean(), rel=1e-12)


def test_a_folder_of_tables_is_placed_one_by_one(places, newcomer, tmp_path, capsys):
    table(0, 11).to_csv(tmp_path / "bern.csv", index=False)
    frame = table(0, 12)
    frame[["a [m]", "b", "c", "d"]] = 70  # near the mean: only the laboratory is left
    frame.to_csv(tmp_path / "rome.csv", index=False)
    status, said = said_by(capsys, "place", places / "all", "--data-path", tmp_path)
    assert status == 1
    blocks = {block.split(":")[0]: block for block in said.out.split("\n") if ".csv: 50" in block}
    assert list(blocks) == ["bern.csv", "oslo.csv", "rome.csv"]
    assert said.out.count("They fit no cluster") == 1
    assert said.out.count("its cluster's model") == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="b"), "the run has the column b, but oslo.csv does not"),
        (lambda f: f.assign(extra=1), "oslo.csv has the column extra, but the run does not"),
        (lambda f: f.assign(lab="east"), "column lab of oslo.csv has a text in row 1 that is"),
        (lambda f: f.assign(b="x"), "column b has numbers in the run, but texts in oslo.csv"),
        (lambda f: f.assign(b=f["b"].where(f["b"] > 0)), "column b has no value in row "),
        (lambda f: f[:0], "oslo.csv has no rows: fill it"),
    ],
)
def test_other_tables_are_refused_as_in_a_run(places, newcomer, capsys, change, said):
    change(pd.read_csv(newcomer)).to_csv(newcomer, index=False)
    model = places / "all" / MODEL
    for words in (("place", places / "all", "--data-path"), ("classify", model)):
        status, printed = said_by(capsys, *words, newcomer)
        assert (status, printed.out) == (2, "")
        assert said in printed.err


def test_what_is_no_table_is_refused(places, tmp_path, capsys):
    model = places / "all" / MODEL
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "empty", "empty is neither a table nor a folder of tables: give a file"),
        (tmp_path / "some.png", "some.png is neither a table nor a folder of tables: give a file"),
        (tmp_path / "none.csv", "none.csv does not exist"),
    ):
        status, printed = said_by(capsys, "classify", model, path)
        assert (status, said in printed.err) == (2, True), printed.err


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": {"b": []}},
        {"scaling": {"mean": [0.0] * 6, "deviation": [0.0] * 6}},
        {"scaling": None},
        {"unknown": 1},
    ],
)
def test_a_card_that_lies_is_refused(places, newcomer, tmp_path, capsys, changed):
    source = places / "all" / MODEL
    with safe_open(source, framework="pt") as file:
        card = json.loads(file.metadata()["fedkin model 1"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    card["preparation"] |= changed
    spoilt = tmp_path / "spoilt.safetensors"
    save_file(arrays, spoilt, metadata={"fedkin model 1": json.dumps(card)})
    status, printed = said_by(capsys, "classify", spoilt, newcomer)
    assert status == 2
    assert "spoilt.safetensors is not a model of this app (" in printed.err
    assert printed.out == ""


def test_a_number_far_from_zero_is_predicted_in_its_unit(places, newcomer, capsys):
    """Sizes of about 150 and 160 with a deviation of 1; all of one size would be 5 off."""
    rmse = {}
    for name in ("size", "sizes-by-site", "sizes-as-they-are"):
        runs = json.loads((places / name / "summary.json").read_text(encoding="utf-8"))["runs"]
        rmse[name] = runs[0]["rmse"]
    assert rmse["sizes-as-they-are"] > 20
    assert max(rmse["size"], rmse["sizes-by-site"]) < 5.25
    status, said = said_by(capsys, "classify", places / "size" / MODEL, newcomer)
    assert status == 0
    answers = [float(row["size"]) for row in csv.DictReader(said.out.splitlines())]
    truth = table(1, 10, "size")["size"].to_numpy()
    assert np.sqrt(np.mean((answers - truth) ** 2)) < 5.25
    status, said = said_by(capsys, "classify", places / "sizes-by-site" / MODEL, newcomer)
    assert status == 2
    assert "size was standardised by each site's mean and deviation" in said.err
