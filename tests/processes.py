"""Commands of ours as processes of their own: started, listened to, and looked for afterwards."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def fedkin(words: Sequence[str], **env: str) -> subprocess.Popen[str]:
    """Start `fedkin` with these words and more environment; all it says goes to its `stdout`."""
    return started("fl_app.cli", words, **env)


def started(module: str, words: Sequence[str], **env: str) -> subprocess.Popen[str]:
    """Start a module as a program, as `fedkin`."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_line(running: subprocess.Popen[str], text: str) -> None:
    """Read what a process says up to a line with this text; fail if it ends without."""
    assert running.stdout
    said = []
    for line in running.stdout:
        said.append(line)
        if text in line:
            return
    raise AssertionError(f"ended before it said {text!r}: {''.join(said)}")


def processes_with(marker: str) -> list[str]:
    """Return the command lines of running processes that hold `marker`, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in words:
            found.append(words.decode(errors="replace"))
    return found


def stop_family(process: subprocess.Popen[bytes] | subprocess.Popen[str], home: Path) -> None:
    """End a program of Flower's and all processes with this `FLWR_HOME`, with their children."""
    family = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if one.pid == process.pid or one.environ().get("FLWR_HOME") == str(home):
                family += [one, *one.children(recursive=True)]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for one in family:
            with suppress(psutil.Error):
                end(one)
        _, family = psutil.wait_procs(family, timeout=15)
    process.wait()


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that are free at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def toml_lines(table: Mapping[str, object]) -> str:
    """Return a table of scalars as TOML."""
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items())
    return "".join(lines)
