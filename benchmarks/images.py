"""What an image costs in the CIFAR-10 tables: `python -m benchmarks.images` (FL_DATA_DIR set).

The CNN in batches of 16, one thread: its two convolutions alone, forward and backward, through
PyTorch's own autograd; a bare step (forward, loss, backward, Adam) on one batch that stays in the
cache; our `train`; a round that is simulated. And tests, with which IFCA chooses its model. All in
turns, in CPU time, since the machine may have other work. docs/measured/scale.md has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from benchmarks.peak import Peak
from benchmarks.writing import RESULTS, write
from clients.settings import TrainingSettings
from clients.training.train import as_pixels, build_optimizer, evaluate, train
from fl_app.launch.flower_app import read_defaults
from fl_app.launch.superlink import PRIVATE_RAY, simulate
from fl_core.data.datasets import load_dataset
from fl_core.models.build import build_model

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "experiments" / "rcc-pfl-2-cifar10.toml"
IMAGES, TURNS, ROUNDS = 800, 25, (1, 3)
PARTS = {
    "convolutions": "training: the two convolutions alone, forward and backward",
    "step": "training: a bare step, on one batch again and again",
    "train": f"training: our `train`, on {IMAGES} images",
    "round": "training: a simulated round, with Flower and Ray",
    "test-returned": f"test: {IMAGES} images at once, memory given back to the system",
    "test": "test: memory kept, as `fedkin run` has it",
}


def options_of_table() -> dict[str, Any]:
    """Return the options of Table II, of which this is."""
    found: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["options"]
    return found


def _parts(settings: TrainingSettings) -> dict[str, Callable[[], object]]:
    """Return what is timed in one process: each goes over `IMAGES` images once."""
    dataset = load_dataset("cifar10", os.environ["FL_DATA_DIR"], seed=0)
    generator = torch.Generator().manual_seed(0)
    # Its images lie in the order of their classes.
    some = torch.randperm(len(dataset.train_labels), generator=generator)[:IMAGES]
    images, labels = dataset.train_images[some], dataset.train_labels[some]
    model = build_model("cnn", (3, 32, 32), 10, seed=0)
    own = build_model("cnn", (3, 32, 32), 10, seed=0)
    size = settings.batch_size
    pixels, truth = as_pixels(images[:size]), labels[:size]
    optimizer = build_optimizer(settings, own)
    steps = IMAGES // size
    first, second = own.get_submodule("conv1"), own.get_submodule("conv2")
    between = torch.rand(size, 6, 14, 14, requires_grad=True)
    gradients = torch.rand(size, 6, 28, 28), torch.rand(size, 16, 10, 10)

    def convolutions() -> None:
        for _ in range(steps):
            torch.autograd.grad(first(pixels), tuple(first.parameters()), gradients[0])
            torch.autograd.grad(second(between), (between, *second.parameters()), gradients[1])

    def step() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(own(pixels), truth).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return {
        "convolutions": convolutions,
        "step": step,
        "train": lambda: train(model, images, labels, settings, generator),
        "test": lambda: evaluate(model, images, labels),
    }


def measure_here() -> dict[str, list[float]]:
    """Return the CPU's microseconds an image of each part, in each turn, on one thread."""
    torch.set_num_threads(1)
    options = options_of_table()
    parts = _parts(
        TrainingSettings(
            learning_rate=options["learning-rate"],
            batch_size=options["batch-size"],
            local_epochs=1,
        )
    )
    found: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(TURNS + 1):
        for name, part in parts.items():
            started = time.process_time()
            part()
            if turn:  # the first makes oneDNN's programs
                found[name].append((time.process_time() - started) / IMAGES * 1e6)
    return found


def _measure_in_child(environment: Mapping[str, str]) -> dict[str, list[float]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.images", "--here"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _cpu_of_family() -> dict[str, float]:
    """Return the CPU's seconds that each process below this one has taken."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[f"{process.pid} {process.create_time()}"] = times.user + times.system
    return found


def _simulation_seconds(rounds: int) -> float:
    """Return the CPU's seconds of a simulation with one test, at its end."""
    options = options_of_table()
    with tempfile.TemporaryDirectory() as folder, Peak(_cpu_of_family, every=0.2) as used:
        given = {
            **options,
            "strategy": "single",
            "num-server-rounds": rounds,
            "evaluate-every": rounds,
            "output-dir": folder,
        }
        if not simulate(ROOT, given, num_clients=options["num-clients"], workers=1):
            raise RuntimeError("the simulation failed; its log is above.")
    return sum(used.largest.values())


def round_microseconds() -> float:
    """Return those of an image in a round: what more rounds take, so that no start is counted."""
    few, many = (_simulation_seconds(rounds) for rounds in ROUNDS)
    epochs = int({**read_defaults(ROOT), **options_of_table()}["local-epochs"])
    return (many - few) / (ROUNDS[1] - ROUNDS[0]) / (50_000 * epochs) * 1e6


def table(found: Mapping[str, list[float]]) -> str:
    """Return Markdown: the median of each part's turns, and the fastest."""
    floor = median(found["convolutions"])
    lines = ["| | median | fastest | times the convolutions |", "|---|---:|---:|---:|"]
    for name, words in PARTS.items():
        middle = median(found[name])
        lines.append(f"| {words} | {middle:.0f} | {min(found[name]):.0f} | {middle / floor:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure in turns, write the numbers and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "images.json.xz")
    parser.add_argument("--turns", type=int, default=2, help="of all, in processes of their own")
    parser.add_argument("--here", action="store_true", help="measure in this process, print JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure_here()))
        return 0
    found: dict[str, list[float]] = {}
    for _ in range(options.turns):
        for name, environment in (("test-returned", {}), ("", PRIVATE_RAY)):
            measured = _measure_in_child(environment)
            if name:
                measured = {name: measured["test"]}
            for part, values in measured.items():
                found.setdefault(part, []).extend(round(value, 1) for value in values)
        found.setdefault("round", []).append(round(round_microseconds(), 1))
    write(found, options.output)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
