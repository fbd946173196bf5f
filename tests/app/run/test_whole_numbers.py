"""Whole numbers in tables that are no classes: `target=number` in runs, groups and on devices."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from fl_app.cli import main
from fl_app.devices.site.check import describe_data
from fl_app.devices.site.device_node import NodeConfig
from fl_core.agreement.agreement import Survey
from fl_core.agreement.vote import agree
from tests.app_runs import DEFAULTS
from tests.device_tables import device
from tests.own_modules import run_alone

CITIES = ("berlin", "lyon", "oslo", "rome")
WORDS = {"label": "visits", "target": "number", "features": "raw", "num-eigenvectors": 2}
VISITS = "age,visits\n40,3\n60,12\n50,8\n50,9\n50,10\n"


def table(kind, seed):
    """Rows whose number of visits grows with one of two columns, the larger one."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(60, 3))
    numbers[:, kind] *= 4
    visits = (40 + 8 * numbers[:, kind]).round().clip(0).astype(int)
    return pd.DataFrame(numbers, columns=[*"abc"]).assign(visits=visits)


@pytest.fixture
def sites(tmp_path):
    (tmp_path / "sites").mkdir()
    for place, city in enumerate(CITIES):
        table(place // 2, place).to_csv(tmp_path / f"sites/{city}.csv", index=False)
    return tmp_path / "sites"


def test_in_a_run_and_its_models(sites, tmp_path, capsys):
    options = {"dataset": "tables", "data-dir": str(sites), "strategy": "rcc-pfl,local"}
    options |= {"num-clients": 4, "num-clusters": "2", "optimizer": "adam", "learning-rate": 0.01}
    out = tmp_path / "out"
    run_alone({**DEFAULTS, **options, **WORDS, "validation-share": 0.2, "output-dir": str(out)})
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["config"]["target"] == "number"
    assert summary["runs"][0]["rmse"] < 16  # all of one number would be about 32 off
    assert summary["verdicts"]
    new = table(1, 9)
    new.to_csv(tmp_path / "new.csv", index=False)
    found = tmp_path / "found.csv"
    assert main(["place", str(out), "--data-path", str(tmp_path / "new.csv")]) == 0
    said = capsys.readouterr().out
    assert "with oslo rome" in said
    model = said.rstrip().rpartition(": ")[2]
    assert main(["classify", model, str(tmp_path / "new.csv"), "--output", str(found)]) == 0
    rows = csv.DictReader(found.read_text(encoding="utf-8").splitlines())
    answers = [float(row["visits"]) for row in rows]
    assert np.sqrt(np.mean((answers - new["visits"]) ** 2)) < 16


def test_a_device_may_say_it_itself(tmp_path):
    own = device(tmp_path, "berlin", VISITS, label="visits", target="number")
    survey = Survey.from_config(own.survey().as_config())
    assert (survey.is_regression, survey.class_names) == (True, ("visits",))
    read = own.read(agree({"berlin": survey}))
    assert (read.train_labels.tolist(), read.test_labels.tolist()) == ([3, 12, 8, 9], [10])
    said = describe_data(own)
    assert said.endswith('with the number "visits", for training + for testing: 4 + 1, 3 to 12')
    assert device(tmp_path, "berlin", VISITS, label="visits").survey().class_names[0] == "10"
    assert NodeConfig.of({"name": "b", "data-path": "/b.csv", "label": 0}).label == "0"
    with pytest.raises(ValueError, match=r"^target is \"count\", but it must be one of auto, num"):
        NodeConfig.of({"name": "b", "data-path": "/b.csv", "target": "count"})
    text = device(tmp_path, "oslo", VISITS.replace("8", "few"), label="visits", target="number")
    with pytest.raises(ValueError, match=r"^oslo\.csv: column visits seems to have numbers, but a"):
        text.survey()
    many = "age,visits\n" + "".join(f"1,{i}\n" for i in range(1001))
    with pytest.raises(ValueError, match=r"1,001 different values, but .* set target=number"):
        device(tmp_path, "rome", many, label="visits").survey()
