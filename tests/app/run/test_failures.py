"""What goes wrong at a client is in the log, the files, the report and the exit status."""

import json

import pytest

from fl_app.cli import main
from fl_app.report.report_page import write_report
from fl_app.run.watch import lines_of, read_status
from tests import app_runs, device_runs
from tests.device_images import write_sites
from tests.own_modules import own_modules
from tests.toy_app import in_rounds, with_metrics

SITES = """
import numpy as np
from torch import nn

from fl_core.data.user_data import Partitions


def part(count, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(count + 8) % 2
    rows = rng.normal(size=(count + 8, 4)).astype(np.float32)
    rows[:, 0] += 4 * labels
    return rows[:count], labels[:count], rows[count:], labels[count:]


def load(counts=(33, 40, 1)):
    parts = [part(count, seed) for seed, count in enumerate(counts)]
    return Partitions(parts, class_names=["a", "b"], names=["rome", "oslo", "lyon"])


def one_more_than_a_batch():
    return load((33, 33, 65))


def normalised(shape, num_classes):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))
"""


def ran(folder, data):
    return main(
        [
            *("run", "--workers", "0", f"dataset=sites:{data}", "num-clients=3"),
            *("model=sites:normalised", "strategy=single,local", "num-server-rounds=2"),
            *("standardise=none", f"output-dir={folder / 'out'}"),
        ]
    )


@pytest.fixture
def sites(tmp_path):
    with own_modules(tmp_path, sites=SITES):
        yield tmp_path


def test_a_client_that_never_trains_is_named_everywhere(sites, capsys):
    assert ran(sites, "load") == 1
    printed = capsys.readouterr()
    assert "error: single, seed 0: lyon never trained" in printed.err
    sentence = "single, seed 0: lyon could not train in rounds 1–2: Expected more than 1 value"
    assert sentence in printed.out
    runs = json.loads((sites / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    for run in runs:
        assert run["never-trained"] == [2]
        (failure,) = run["failures"]
        assert (failure["client"], failure["step"], failure["rounds"]) == (2, "train", [1, 2])
    page = write_report([sites / "out"], sites / "page.html").read_text(encoding="utf-8")
    assert "lyon never trained" in page
    assert "could not train" in page


def test_33_samples_in_batches_of_32_train_with_batch_normalisation(sites, capsys):
    assert ran(sites, "one_more_than_a_batch") == 0
    (first, _) = json.loads((sites / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    assert first["failures"] == []
    assert "mean over 3 clients" in capsys.readouterr().out


@pytest.mark.parametrize("client", [2, "oslo"])
def test_a_client_whose_score_falls_is_named_everywhere(tmp_path, capsys, client):
    """In a simulation and on devices, as when the classes at a site are swapped."""

    def swap(message, context, answer):
        answer = with_metrics(accuracy=1.0)(message, context, answer)
        return in_rounds(2, corrupt=with_metrics(accuracy=0.0))(message, context, answer)

    spoilt = {"corrupt": {("evaluate", client): swap}, "num_server_rounds": 2}
    if client == "oslo":
        device_runs.run(tmp_path / "out", write_sites(tmp_path / "sites"), **spoilt)
    else:
        app_runs.run(tmp_path / "out", strategy="rcc-pfl", **spoilt)
    name = client if client == "oslo" else "client 2"
    said = f"{name} from 100.0 % in round 1 to 0.0 % in round 2"
    assert f"rcc-pfl, seed 0: the accuracy got much worse: {said}\n" in capsys.readouterr().out
    assert f"much worse: {said}" in "\n".join(lines_of(read_status(tmp_path / "out"), 0))
    (run,) = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    assert run["falls"] == [{"client": 2, "rounds": [1, 2], "scores": [1.0, 0.0]}]
    page = write_report([tmp_path / "out"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"much worse: {said}." in page.replace("\N{NO-BREAK SPACE}", " ")
