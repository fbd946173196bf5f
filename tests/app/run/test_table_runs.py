"""`fedkin group` and `fedkin run` on scikit-learn's breast cancer table, cut into ten sites."""

import json
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from fl_app.cli import main
from fl_app.report.report_page import write_report
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.own_modules import run_alone

CITIES = ("athens", "berlin", "cairo", "delhi", "essen", "fes", "genoa", "hanoi", "izmir", "jena")
INCHES = CITIES[::2]


@pytest.fixture
def sites(tmp_path):
    """Ten sites, five of which measure the radius, perimeter and area of nuclei in other units."""
    frame = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=0)
    frame["target"] = np.where(frame["target"], "benign", "malignant")
    frame["laboratory"] = np.random.default_rng(0).choice(["north", "south"], len(frame))
    lengths = [name for name in frame if any(one in name for one in ("radius", "perimeter"))]
    (tmp_path / "sites").mkdir()
    for city, rows in zip(CITIES, np.array_split(np.arange(len(frame)), 10), strict=True):
        own = frame.iloc[rows].copy()
        if city in INCHES:
            own[lengths] /= 2.54
        own.to_csv(tmp_path / f"sites/{city}.csv", index=False)
    return tmp_path / "sites"


def test_sites_with_other_units_are_told_apart(sites, tmp_path, capsys):
    words = ("strategy=rcc-pfl", "dataset=tables", f"data-dir={sites}", "features=raw")
    words += ("num-clusters=2", f"output-dir={tmp_path / 'all'}")
    with undrawn_pictures():
        assert main(["group", *words]) == 0
    report = json.loads((tmp_path / "all/grouping.json").read_text(encoding="utf-8"))
    assert report["clients"] == list(CITIES)
    others = {report["clusters"][CITIES.index(city)] for city in INCHES}
    assert len(others) == 1
    assert len(set(report["clusters"])) == 2
    said = capsys.readouterr().out
    assert "tables on 10 clients: athens, berlin" in said
    assert "32 columns: area error, " in said
    assert report["columns"][:3] == ["area error", "compactness error", "concave points error"]
    assert "laboratory=south" in report["columns"]
    page = write_report([tmp_path / "all"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Each sample has these columns: area error, compactness error" in page


def test_a_folder_of_tables_is_run(sites, tmp_path):
    options = {"dataset": "tables", "data-dir": str(sites), "label": "target"}
    options |= {"strategy": "single,local", "num-server-rounds": 4, "num-clients": 10}
    summary = run_alone({**DEFAULTS, **options, "output-dir": str(tmp_path / "out")})
    single, local = summary["runs"]
    assert single["names"] == list(CITIES)
    assert single["num-clients"] == 10
    assert (summary["config"]["label"], summary["config"]["standardise"]) == ("target", "all")
    assert len(summary["columns"]) == 32
    assert single["accuracy"] > 0.85
    assert local["accuracy"] > 0.8


def test_a_wrong_table_is_said_before_anything_starts(sites, capsys):
    path = sites / "delhi.csv"
    path.write_text(path.read_text().replace("north", "", 1), encoding="utf-8")
    for command in ("run", "group"):
        assert main([command, "dataset=tables", f"data-dir={sites}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: delhi.csv: column laboratory has no value in row ")
        assert said.count("\n") == 1


def test_a_folder_that_is_not_named_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FL_DATA_DIR", str(tmp_path / "nowhere"))
    assert main(["run", "dataset=tables"]) == 2
    assert 'nowhere, of dataset "tables", is not a folder: set data-dir' in capsys.readouterr().err


def test_tables_are_grouped(sites, tmp_path):
    four = tmp_path / "four"
    four.mkdir()
    for city in CITIES[:4]:
        shutil.copy(sites / f"{city}.csv", four)
    found = []
    for name in ("site", "all"):
        words = ("features=raw", "--resamples", "0", f"output-dir={tmp_path / name}")
        words += ("dataset=tables", f"data-dir={four}", f"standardise={name}")
        with undrawn_pictures():
            assert main(["group", *words]) == 0
        report = json.loads((tmp_path / name / "grouping.json").read_text(encoding="utf-8"))
        assert report["clients"] == list(CITIES[:4])
        assert len(report["columns"]) == 32
        with np.load(tmp_path / name / "similarity-fedkin-seed-0.npz") as arrays:
            found.append(arrays["similarity"])
    by_site, together = found
    assert abs(by_site - together).max() > 0.01
