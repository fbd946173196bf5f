"""Commands of ours as processes of their own: started, listened to, and looked for afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
