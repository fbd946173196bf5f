"""What a message costs a site, by a process for each or by a fork: results/README.md.

SuperLink, gate, SuperNodes and the app are the real programs, all on this machine, in turns: sites
started by `flower-supernode`, which starts a process for each message, and by `fedkin node`, which
forks for it. The CPU's seconds count more than the clock's where other things run, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.writing import ROOT, markdown
from fl_app.devices.site.warm import READY
from tests.device_images import write_sites
from tests.device_processes import Program, federation

PROCESS, FORK = "a process for each message", "a fork"
WAYS = {PROCESS: ("flower-supernode",), FORK: ("fedkin", "node")}
_PATIENCE = 900.0


def measured(command: Sequence[str], rounds: int, folder: Path) -> dict[str, Any]:
    """Run the app once on four sites, and return what it took."""
    # Where it is set, each process compiles the app's modules, which come with the run, again.
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    images = write_sites(folder / "images", images=120)
    saved = {name: folder / "saved" / f"{name}.safetensors" for name in images}
    with federation(folder / "devices") as devices, ExitStack() as stack:
        devices.register(*images)
        sites = [
            stack.enter_context(
                devices.supernode(
                    name,
                    f'name="{name}" data-path="{images[name]}" model-path="{saved[name]}"',
                    command=command,
                )
            )
            for name in images
        ]
        for site in sites:
            site.wait_for("SuperNode ID")
            if command[0] == "fedkin":
                site.wait_for(READY)
        time.sleep(2)
        memory = [_memory(site) for site in sites]
        before, started = [_cpu(site) for site in sites], time.monotonic()
        settings = {
            **{"dataset": "devices", "strategy": "rcc-pfl", "num-clients": len(sites)},
            **{"model": "cnn", "learning-rate": 0.001, "local-epochs": 2, "batch-size": 32},
            **{"num-server-rounds": rounds, "evaluate-every": rounds, "seed": 0},
            "output-dir": str(folder / "out"),
        }
        with devices.started_run(ROOT, settings) as run:
            status = run.wait_for_exit(_PATIENCE)
            seconds = time.monotonic() - started
            if status or not (folder / "out/summary.json").exists():
                raise RuntimeError(run.text)
        cpu = [_cpu(site) - first for site, first in zip(sites, before, strict=True)]
        messages = sum(site.text.count("Sending: ") for site in sites)
    (one,) = json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))["runs"]
    models = sorted((folder / "out/models").rglob("*.safetensors"))
    return {
        "seconds": round(seconds, 1),
        "pre-round-seconds": round(one["seconds"]["pre-round"], 2),
        "round-seconds": round(one["seconds"]["train"] / rounds, 2),
        "messages": messages,
        "cpu-seconds": round(sum(cpu), 1),
        "cpu-seconds-per-message": round(sum(cpu) / messages, 2),
        "memory-mib-at-rest": round(median(memory)),
        "accuracy": one["accuracy"],
        "models": hashlib.sha256(b"".join(path.read_bytes() for path in models)).hexdigest(),
    }


def _family(site: Program) -> list[psutil.Process]:
    first = psutil.Process(site.process.pid)
    return [first, *first.children(recursive=True)]


def _cpu(site: Program) -> float:
    """Return the seconds that a site's processes, and those that they waited for, have taken."""
    total = 0.0
    for process in _family(site):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _memory(site: Program) -> float:
    """Return the memory of a site's processes, MiB, what several share counted once."""
    return sum(process.memory_full_info().pss for process in _family(site)) / 2**20


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of results/README.md in Markdown, by its title."""
    heads = (
        *("way", "runs", "CPU a message", "pre-round", "a round", "memory of a site at rest"),
        "equal models",
    )
    lines: list[Sequence[object]] = []
    models = {run["models"] for run in measured["runs"]}
    for way in WAYS:
        runs = [run for run in measured["runs"] if run["way"] == way]
        lines.append(
            (
                way,
                len(runs),
                f"{median(run['cpu-seconds-per-message'] for run in runs):.2f} s",
                f"{median(run['pre-round-seconds'] for run in runs):.1f} s",
                f"{median(run['round-seconds'] for run in runs):.1f} s",
                f"{median(run['memory-mib-at-rest'] for run in runs):.0f} MiB",
                "yes" if len(models) == 1 else "no",
            )
        )
    return {"what a message costs a site": markdown(heads, lines)}


def measure(numbers: harness.Numbers, repeats: int, rounds: int) -> Iterator[str]:
    """Run both ways in turns."""
    os.environ["OMP_NUM_THREADS"] = "1"  # sites share the cores; one thread sums in one order
    numbers["rounds"], numbers["runs"] = rounds, []
    for _, (way, words) in product(range(repeats), WAYS.items()):
        with tempfile.TemporaryDirectory(prefix="site-rounds-") as folder:
            os.environ["FL_CACHE_DIR"] = str(Path(folder) / "cache")
            run = measured(words, rounds, Path(folder))
        numbers["runs"].append({"way": way, **run})
        yield f"{way}: {json.dumps(run)}"


if __name__ == "__main__":
    harness.command(__doc__, "site-rounds", measure, tables, repeats=2, rounds=3)
