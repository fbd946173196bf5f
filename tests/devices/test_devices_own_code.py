"""User-defined data and code on real processes: SuperLink, gate, SuperNodes."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from fl_core.models.model_file import load_model
from tests.device_processes import federation
from tests.device_runs import groups

pytestmark = [pytest.mark.slow, pytest.mark.faults]

_PATIENCE = 400.0  # seconds, on a machine that does other things too
ROOT = Path(__file__).parents[2]
SITES = """
import numpy as np


def table(kind, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(90) % 2
    rows = rng.normal(size=(90, 6)).astype(np.float32)
    rows[:, kind] += 30
    rows[:, 2 + kind] += 5 * labels
    return rows[:60], labels[:60], rows[60:], labels[60:], ["ill", "well"]


def berlin():
    return table(0, 1)


def oslo():
    return table(1, 2)


def rome():
    return table(1, 3)
"""
STUDY = """
from torch import nn


def make_model(shape, num_classes):
    return nn.Sequential(nn.Linear(*shape, 16), nn.ReLU(), nn.Linear(16, num_classes))


def phi(samples):
    return samples / 30
"""
ALLOWED = "study:make_model,study:phi"
OPTIONS = {
    **{"dataset": "devices", "strategy": "rcc-pfl", "num-clients": 2, "num-clusters": 2},
    **{"model": "study:make_model", "features": "study:phi", "num-eigenvectors": 2},
    **{"learning-rate": 0.05, "num-server-rounds": 1, "local-epochs": 20, "round-deadline": 300.0},
}


def test_tables_are_grouped_and_learnt_by_who_allows_the_code(tmp_path, monkeypatch):
    """Rome's owner allows no code: it alone is left out, and the log says what it would take."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # three devices share two cores here
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    code = tmp_path / "code"
    code.mkdir()
    (code / "sites.py").write_text(SITES, encoding="utf-8")
    (code / "study.py").write_text(STUDY, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(code))  # of the SuperLink and of each SuperNode
    options = {**OPTIONS, "output-dir": str(tmp_path / "out")}
    names = ["berlin", "oslo", "rome"]
    stored = tmp_path / "berlin.safetensors"
    more = dict.fromkeys(names[:2], f' own-code="{ALLOWED}"')
    more["berlin"] += f' model-path="{stored}"'
    with federation(tmp_path / "federation") as devices, ExitStack() as stack:
        devices.register(*names)
        for name in names:
            config = f'name="{name}" data="sites:{name}"{more.get(name, "")}'
            node = stack.enter_context(devices.supernode(name, config))
            node.wait_for("SuperNode ID")
        with devices.started_run(ROOT, options) as started:
            assert started.wait_for_exit(_PATIENCE) == 0, started.text
    said = " ".join(started.text.split())
    assert "code that the owner of this node does not allow" in said
    assert "rome" in said
    (one,) = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    assert groups(one) == [["berlin"], ["oslo"]]
    assert one["accuracy"] > 0.9
    monkeypatch.syspath_prepend(code)
    assert load_model(stored, "study:make_model")[1].class_names == ("ill", "well")
