"""Whole federations of 100, 1,000 and 10,000 simulated clients: docs/scale.md has the table.

Each goes through `flwr run` as every other: pre-round with relevance at the server, rounds in which
a twentieth of the clients train, tests by a twentieth. Seconds are those of its summary, memory is
the largest resident size of the ServerApp's process (Flower's simulation, Ray's driver) and of one
worker.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.writing import markdown

# The more clients, the larger the data set: 40, 60 and 24 images for each.
DATASETS = {100: "mnist-5k", 1_000: "mnist", 10_000: "rotated-mnist"}
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl",
    "num-tasks": 4,
    "partition": "equal",
    "min-samples": 5,
    "model": "mlp",
    "relevance": "missed-energy",
    "relevance-at": "server",
    "outliers": "separate",
    "num-server-rounds": 10,
    "fraction-train": 0.05,
    "evaluate-every": 5,
    "fraction-evaluate": 0.05,
    "client-test": "own",
}
STAGES = {
    "pre-round": "pre-round",
    "train": "ten rounds",
    "evaluate": "two tests",
    "rest": "start, registration, pictures",
}
_ROLES = {"flwr-simulation": "server-bytes", "ray::ClientAppActor": "worker-bytes"}


def _resident() -> dict[str, int]:
    """Return the largest resident size of each role among this process's descendants."""
    found = dict.fromkeys(_ROLES.values(), 0)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            for word, role in _ROLES.items():
                if word in line:
                    found[role] = max(found[role], process.memory_info().rss)
    return found


@contextmanager
def peaks(every: float = 0.5) -> Iterator[dict[str, int]]:
    """Yield the largest resident size of each role while the block runs."""
    largest, done = _resident(), threading.Event()

    def watch() -> None:
        while not done.wait(every):
            for role, size in _resident().items():
                largest[role] = max(largest[role], size)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield largest
    finally:
        done.set()
        thread.join()


def measured(clients: int, dataset: str, workers: int) -> dict[str, Any]:
    """Run one federation; return seconds by stage, its bytes and how right its clusters are."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with peaks() as largest:
            options = {**OPTIONS, "dataset": dataset}
            summary = harness.simulated(options, clients, workers, Path(folder))
        whole = time.perf_counter() - started
    (run,) = summary["runs"]
    seconds = {name: run["seconds"][name] for name in ("pre-round", "train", "evaluate")}
    seconds["rest"] = whole - sum(seconds.values())
    return {
        "clients": clients,
        "dataset": dataset,
        "workers": workers,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        **largest,
        "bytes-up-per-client": run["bytes"]["pre-round-up"] / clients,
        "bytes-down-per-client": run["bytes"]["pre-round-down"] / clients,
        "ari": run["ari"],
        "accuracy": run["accuracy"],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of docs/scale.md."""
    heads = ["clients", *STAGES.values(), "ServerApp", "a worker", "pre-round, each", "ARI"]
    lines = []
    for row in rows:
        seconds = [f"{row['seconds'][stage]:,.0f} s" for stage in STAGES]
        memory = [f"{row[role] / 1e9:.1f} GB" for role in _ROLES.values()]
        each = f"{row['bytes-up-per-client'] / 1e3:.0f} kB"
        lines.append([f"{row['clients']:,}", *seconds, *memory, each, f"{row['ari']:.2f}"])
    return markdown(heads, lines)


def measure(numbers: harness.Numbers, clients: list[int], workers: int) -> Iterator[str]:
    """Simulate the federations that are not there yet."""
    rows = numbers.setdefault("rows", [])
    for count in clients:
        if count not in {row["clients"] for row in rows}:
            rows.append(measured(count, DATASETS[count], workers))
            rows.sort(key=lambda row: int(row["clients"]))
            yield f"{count} clients"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the table of docs/scale.md."""
    return {"federations": table(numbers["rows"])}


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(__doc__, "federations", measure, tables, clients=list(DATASETS), workers=cpus)
