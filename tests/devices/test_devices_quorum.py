"""A device that takes its time does not hold up the others: real processes."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from fl_core.files import program_path
from tests.device_images import SITES, write_sites
from tests.device_processes import Program, federation

pytestmark = [pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
NAMES = ("berlin", "lyon", "oslo")
_PATIENCE = 600.0  # seconds, on a machine that does other things too; less than the deadline
OPTIONS = {
    **{"dataset": "devices", "num-clients": len(NAMES), "strategy": "single", "model": "mlp-32"},
    **{"learning-rate": 0.003, "num-server-rounds": 5, "evaluate-every": 2},
    **{"round-deadline": 900.0, "min-answers": 0.6},
}


@contextmanager
def hung(node: Program) -> Iterator[None]:
    """Let a device's work stand still, while its SuperNode stays connected."""
    children = psutil.Process(node.process.pid).children(recursive=True)
    for child in children:
        child.suspend()
    try:
        yield
    finally:
        for child in children:
            child.resume()


def watched(folder: Path) -> str:
    """Return what `fedkin watch --once` prints; nothing where there is no run yet."""
    words = [program_path("fedkin"), "watch", "--once", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def see(folder: Path, wanted: str) -> None:
    """Wait until somebody who watches the run sees something."""
    deadline = time.monotonic() + _PATIENCE
    while wanted not in (seen := watched(folder)):
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)  # each look starts a process


def test_a_device_that_hangs_costs_one_round_and_not_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    images = write_sites(tmp_path / "sites", {name: SITES[name] for name in NAMES})
    out = tmp_path / "out"
    with federation(tmp_path / "federation") as devices, ExitStack() as stack:
        devices.register(*NAMES)
        nodes = {}
        for name in NAMES:
            config = f'name="{name}" data-path="{images[name]}"'
            nodes[name] = stack.enter_context(devices.supernode(name, config))
        for node in nodes.values():
            node.wait_for("SuperNode ID")
        with devices.started_run(ROOT, {**OPTIONS, "output-dir": str(out)}) as run:
            nodes["oslo"].wait_for("Receiving: train", _PATIENCE)
            started = time.monotonic()
            with hung(nodes["oslo"]):
                see(out, "asked to train: 2 of 3 have answered in")
                see(out, "waiting for oslo")
                run.wait_for("oslo could not train in round 1: ", _PATIENCE)
                see(out, "late, with an earlier answer: oslo (asked at ")
            assert time.monotonic() - started < _PATIENCE
            assert run.wait_for_exit(_PATIENCE) == 0, run.text
    see(out, "finished after 0:")
    late = "oslo could not train in round 1: no answer when 2 of 3 had answered"
    assert late in watched(out)
    assert late in run.text
    # It is asked again as soon as it has sent its late answer; others may be a round ahead by then.
    assert nodes["oslo"].text.count("Receiving: train") >= 2
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["runs"][0]["names"] == list(NAMES)
