"""What forks for a site's messages is killed, and so is what it has forked: real processes."""

import json
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from fl_app.devices.site.warm import READY
from tests.device_images import SITES, write_sites
from tests.device_processes import Program, federation

pytestmark = [pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
NAMES = ("berlin", "lyon")
_PATIENCE = 600.0
_START_SECONDS = 1.0  # of the CPU; its training takes some five, on a fast machine


def forking(node: Program) -> psutil.Process:
    """Return the process that forks for a site's messages."""
    (found,) = (
        child
        for child in psutil.Process(node.process.pid).children()
        if "fl_app.devices.site.warm" in child.cmdline()
    )
    return found


def training(node: Program, run: Program) -> psutil.Process:
    """Return what answers a message, once it has been busy for longer than its start takes."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        for child in forking(node).children():
            with suppress(psutil.NoSuchProcess):
                if child.cpu_times().user > _START_SECONDS:
                    return child
        assert run.process.poll() is None and time.monotonic() < deadline, node.text
        time.sleep(0.02)


def test_it_costs_an_update_and_the_next_message_is_answered(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    images = write_sites(tmp_path / "sites", {name: SITES[name] for name in NAMES})
    out = tmp_path / "out"
    options = {
        **{"dataset": "devices", "num-clients": len(NAMES), "strategy": "single"},
        **{"model": "mlp-32", "num-server-rounds": 3, "evaluate-every": 3, "local-epochs": 8000},
        "output-dir": str(out),
    }
    with federation(tmp_path / "federation") as devices, ExitStack() as stack:
        devices.register(*NAMES)
        nodes = {}
        for name in NAMES:
            config = f'name="{name}" data-path="{images[name]}"'
            started = devices.supernode(name, config, command=("fedkin", "node"))
            nodes[name] = stack.enter_context(started)
        for node in nodes.values():
            node.wait_for(READY)
        with devices.started_run(ROOT, options) as run:
            training(nodes["berlin"], run).kill()
            run.wait_for("berlin could not train in round 1", _PATIENCE)
            child = training(nodes["lyon"], run)
            forking(nodes["lyon"]).kill()
            psutil.wait_procs([child], timeout=30)
            assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
            assert run.wait_for_exit(_PATIENCE) == 0, run.text
        texts = {name: node.text for name, node in nodes.items()}
    assert "was ended by SIGKILL: the message fails in a minute" in texts["berlin"]
    assert "was ended by SIGKILL and is restarted" in texts["lyon"]
    assert texts["lyon"].count(READY) == 2
    assert "lyon could not train in round 2" in run.text
    (one,) = json.loads((out / "summary.json").read_text(encoding="utf-8"))["runs"]
    assert one["accuracy"] > 0.5
