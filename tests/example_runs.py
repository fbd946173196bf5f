"""Runs the apps of `examples/` as somebody who types what their README.md says, or a tutorial."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fl_app.config.run_config import parse_override
from tests.app_runs import ALL_STEPS, run
from tests.processes import free_ports, stop_family

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
_HELPFUL = ("FLWR_", "RAY_", "FL_")


def commands_of(page: Path) -> str:
    """Return what a page's only block of commands says."""
    (block,) = _blocks(page, "sh")
    return block


def typed(page: Path, *beginnings: str) -> list[list[str]]:
    """Return the words of a page's commands in their order, of all or of those that begin so."""
    lines = [
        line
        for block in _blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith(beginnings or "")
    ]
    return [shlex.split(line, comments=True) for line in lines]


def simulate_here(words: Sequence[str], **also: object) -> dict[str, Any]:
    """Run a page's `fedkin run …` in this process, without Ray, and return its summary.

    Parameters
    ----------
    words : sequence of str
        All words of the command; options of the command line itself are left out.
    **also : object
        Options that are other ones here.
    """
    assert list(words[:2]) == ["fedkin", "run"]
    options = dict(parse_override(word) for word in words[2:] if "=" in word)
    named = {key.replace("-", "_"): value for key, value in options.items()} | also
    folder = Path(str(named.pop("output_dir", "results/here")))
    return run(folder, clients=int(str(named.pop("num_clients"))), **ALL_STEPS | named)


def promised_by(page: Path) -> list[str]:
    """Return the lines that a page says one sees: its blocks without a language."""
    return [line for block in _blocks(page, "") for line in block.splitlines()]


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)\n```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [text for name, text in found if name == language]


def run_example(name: str, folder: Path, replaced: Mapping[str, str] | None = None) -> str:
    """Type an example's commands in a copy of its folder, and return all that is said.

    Parameters
    ----------
    name : str
        The example's folder.
    folder : Path
        An empty folder, for the copy and all that is written.
    replaced : mapping of str, optional
        Words of the commands that mean something else in a copy.
    """
    app, home = folder / "app", folder / "flwr"
    shutil.copytree(EXAMPLES / name, app, ignore=shutil.ignore_patterns("__pycache__", "results"))
    home.mkdir()
    typed = commands_of(app / "README.md")
    for word, other in (replaced or {}).items():
        assert typed.count(word) == 1
        typed = typed.replace(word, other)
    said = type_commands(typed, app, home)
    for line in promised_by(app / "README.md"):
        assert line in said, said
    return said


def type_commands(typed: str, folder: Path, home: Path) -> str:
    """Type commands in a folder, with a SuperLink of their own in `home`; return what is said."""
    http_port, control_port = free_ports(2)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith(_HELPFUL)},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        # A SuperLink and a cache for this test alone; nothing that helps the app.
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http_port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control_port),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FL_CACHE_DIR": str(home.parent / "cache"),
    }
    with subprocess.Popen(
        ["bash", "-ec", typed],  # noqa: S607
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=180)
        finally:
            stop_family(running, home)
    assert running.returncode == 0, said
    return said
