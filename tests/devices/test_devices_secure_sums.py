"""Secure aggregation between real processes: SuperLink, gate, SuperNodes; one is killed."""

import json
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.device_images import write_sites
from tests.device_processes import federation

pytestmark = [pytest.mark.slow, pytest.mark.faults]

_PATIENCE = 400.0  # seconds, on a machine that does other things too
ROOT = Path(__file__).parents[2]
SITES = dict.fromkeys(("berlin", "lyon", "oslo", "rome"), (0, 2, 4))
OPTIONS = {
    **{"dataset": "devices", "strategy": "single", "secure-aggregation": True, "num-clients": 4},
    **{"model": "mlp-32", "learning-rate": 0.003, "num-server-rounds": 1, "local-epochs": 5},
    "round-deadline": 300.0,
}


def test_three_of_four_devices_end_a_secure_sum_that_the_fourth_began(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # four devices share two cores here
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    images = write_sites(tmp_path / "sites", SITES)
    options = {**OPTIONS, "output-dir": str(tmp_path / "out")}
    with federation(tmp_path / "federation") as devices, ExitStack() as stack:
        devices.register(*SITES)
        nodes = {
            name: stack.enter_context(
                devices.supernode(name, f'name="{name}" data-path="{images[name]}"')
            )
            for name in SITES
        }
        for node in nodes.values():
            node.wait_for("SuperNode ID")
        with devices.started_run(ROOT, options) as started:
            nodes["rome"].wait_for("Receiving: train", _PATIENCE)
            rome = psutil.Process(nodes["rome"].process.pid)
            for process in (*rome.children(recursive=True), rome):  # as a power cut does
                process.kill()
            assert started.wait_for_exit(_PATIENCE) == 0, started.text
    assert "rome could not train in round 1: " in started.text
    assert "keeps its model" not in started.text
    (one,) = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    assert one["accuracy"] > 0.6
