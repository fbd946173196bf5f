"""Ending a program of Flower's: all of its family, and nobody else, even after a kill."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fl_app.simulation.processes import stop_family

pytestmark = pytest.mark.slow

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def start(words: list[str], home: Path) -> subprocess.Popen[bytes]:
    """Start a program and return once it has said something."""
    process = subprocess.Popen(
        words, env={**os.environ, "FLWR_HOME": str(home)}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def close(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_reaped_programs_number_may_be_somebody_elses(tmp_path):
    other = start(SLEEP, tmp_path / "other")
    ended = start([sys.executable, "-c", "print()"], tmp_path / "home")
    try:
        assert ended.wait() == 0
        ended.pid = other.pid  # as if the system had given it away again
        stop_family(ended, tmp_path / "home")
        assert other.poll() is None
    finally:
        close(other)
        close(ended)


def test_children_that_left_are_found_when_their_parent_has_ended(tmp_path):
    leave = (
        "import subprocess, sys; "
        f"child = subprocess.Popen({SLEEP!r}, start_new_session=True, stdout=subprocess.PIPE); "
        "child.stdout.readline(); "  # before, it may not have its environment yet
        "print(child.pid, flush=True)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", leave],
        env={**os.environ, "FLWR_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    said, _ = parent.communicate()
    child = psutil.Process(int(said))
    try:
        stop_family(parent, tmp_path)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def test_what_a_killed_command_leaves_is_ended(tmp_path):
    """Also a grandchild that shows no environment, as Ray's agents, which call themselves anew."""
    home = tmp_path / "home"
    home.mkdir()
    start_agent = (
        "import os, subprocess\n"
        f"agent = subprocess.Popen({SLEEP!r}, env={{}}, start_new_session=True, "
        "stdout=subprocess.DEVNULL)\n"
        "print(os.getpid(), agent.pid, flush=True)\n"
        "agent.wait()\n"
    )
    start_both = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from fl_app.simulation.processes import guarded\n"
        f"with guarded(Path({str(home)!r})):\n"
        f"    environment = {{**os.environ, 'FLWR_HOME': {str(home)!r}}}\n"
        f"    words = [sys.executable, '-c', {start_agent!r}]\n"
        "    subprocess.Popen(words, env=environment, start_new_session=True).wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", start_both], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    family = [psutil.Process(int(number)) for number in parent.stdout.readline().split()]
    try:
        parent.kill()
        deadline = time.monotonic() + 60
        while home.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not home.exists()
        for one in family:
            assert not one.is_running() or one.status() == psutil.STATUS_ZOMBIE
    finally:
        close(parent)
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
