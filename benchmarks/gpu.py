"""What an image costs on a GPU and on one CPU thread beside it: `python -m benchmarks.gpu`.

Our `train`, for one pass over 1,024 random images: small models in small batches, where a GPU
mostly waits to be told what to do, and larger ones. Then the same in several processes that share
the GPU, as a simulation's workers do. And features, which a client computes once. In wall-clock
time, with a machine to itself. docs/measured/scale.md has the table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from benchmarks.writing import RESULTS, write
from clients.accelerator import one_thread, torch_device
from clients.features.compute import feature_map
from clients.settings import CPU, CUDA, TrainingSettings
from clients.training.train import train
from fl_core.models.build import build_model

IMAGES, TURNS, CLASSES = 1024, 3, 10
SHARED = "shared"
ALIKE = {"16 rounds": "optimum", "single (16 rounds)": "single"}


@dataclass(frozen=True)
class Training:
    """A model, its images and its batch."""

    model: str
    shape: tuple[int, int, int]
    batch_size: int

    def __str__(self) -> str:
        """Return it in words."""
        size = "×".join(map(str, self.shape[1:]))
        return f"training: `{self.model}`, {size}, batches of {self.batch_size}"

    def pass_on(self, device: str) -> Callable[[], object]:
        """Return one pass over the images, which are there already, as a client's are."""
        place = torch_device(device)
        images, labels = _random_images(self.shape)
        model = build_model(self.model, self.shape, CLASSES, seed=0).to(place)
        settings = TrainingSettings(batch_size=self.batch_size, local_epochs=1)
        order = torch.Generator().manual_seed(0)
        there = images.to(place), labels.to(place)
        return lambda: train(model, *there, settings, order)


TRAININGS = (
    Training("mlp", (1, 28, 28), 32),
    Training("cnn", (3, 32, 32), 16),
    Training("cnn", (3, 32, 32), 128),
    Training("leaf-cnn", (1, 28, 28), 32),
    Training("leaf-cnn", (1, 28, 28), 128),
)
FEATURES = ("efficientnet-lite0",)


def _random_images(shape: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, *shape), dtype=torch.uint8, generator=drawn)
    return images, torch.randint(0, CLASSES, (IMAGES,), generator=drawn)


def _features(name: str, device: str) -> Callable[[], object]:
    images, _ = _random_images((3, 32, 32))
    network = feature_map(name, device=torch_device(device))
    return lambda: network(images)


def _microseconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) / IMAGES * 1e6


def measure() -> dict[str, dict[str, list[float]]]:
    """Return the microseconds of an image on each device, in each turn, by what is done."""
    found: dict[str, dict[str, list[float]]] = {}
    parts = {str(one): one.pass_on for one in TRAININGS}
    parts |= {f"features: `{name}`": partial(_features, name) for name in FEATURES}
    for words, part in parts.items():
        runs = {device: part(device) for device in (CPU, CUDA)}
        for run in runs.values():
            run()  # the first makes programs and contexts
        found[words] = {
            device: [round(_microseconds(run), 1) for _ in range(TURNS)]
            for device, run in runs.items()
        }
    return found


def _share(one: Training, ready: Barrier, times: Queue[list[float]]) -> None:
    with one_thread():
        run = one.pass_on(CUDA)
        run()
        ready.wait()
        times.put([_microseconds(run) for _ in range(TURNS)])


def measure_shared(workers: int) -> dict[str, list[float]]:
    """Return the same for processes that train at the same time: of an image, over all of them."""
    found = {}
    context = multiprocessing.get_context("spawn")
    for one in TRAININGS:
        ready, times = context.Barrier(workers), context.Queue()
        family = [context.Process(target=_share, args=(one, ready, times)) for _ in range(workers)]
        for process in family:
            process.start()
        each = [times.get() for _ in family]
        for process in family:
            process.join()
        found[str(one)] = [round(median(turn) / workers, 1) for turn in zip(*each, strict=True)]
    return found


def table(measured: Mapping[str, Any]) -> str:
    """Return Markdown: the median of the turns."""
    workers, found = measured["workers"], measured["times"]
    lines = [
        f"| µs an image | one CPU thread | a GPU | a GPU that {workers} processes share |",
        "|---|---:|---:|---:|",
    ]
    for words, by_device in found.items():
        cells = [
            f"{median(by_device[name]):,.1f}" if name in by_device else "—"
            for name in (CPU, CUDA, SHARED)
        ]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def agreement(on_gpu: Sequence[Mapping[str, Any]], on_cpu: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown: accuracies of the same trainings, from the raw numbers of two experiments.

    Parameters
    ----------
    on_gpu, on_cpu : sequence of mapping
        Cells of rcc-pfl-settings-cifar10, of which those that a GPU made count, and of
        rcc-pfl-2-cifar10, which name the same training by its strategy. Seeds that one of them
        lacks are passed over.
    """
    cpu = {
        (cell["column"], name, cell["seed"]): kept["accuracy"]
        for cell in on_cpu
        for name, kept in cell["methods"].items()
    }
    gpu = {
        (cell["column"], name, cell["seed"]): cell["methods"][cell["variant"]]["accuracy"]
        for cell in on_gpu
        if "gpu" in cell and (name := ALIKE.get(cell["variant"]))
    }
    pairs: dict[str, list[tuple[float, float]]] = {}
    for place in sorted(cpu.keys() & gpu.keys()):
        column, name, _ = place
        pairs.setdefault(f"{column}, {name}", []).append((100 * cpu[place], 100 * gpu[place]))
    lines = [
        "| accuracy % | seeds | on the CPU | on a GPU | largest difference of a seed |",
        "|---|---:|---:|---:|---:|",
    ]
    for words, both in sorted(pairs.items()):
        means = [f"{mean(values):.1f}" for values in zip(*both, strict=True)]
        largest = max(abs(one - other) for one, other in both)
        lines.append(f"| {words} | {len(both)} | {' | '.join(means)} | {largest:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, write the numbers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json.xz")
    parser.add_argument("--workers", type=int, default=8, help="processes that share the GPU")
    options = parser.parse_args()
    with one_thread():
        found = measure()
    for words, times in measure_shared(options.workers).items():
        found[words][SHARED] = times
    measured = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "workers": options.workers,
        "times": found,
    }
    write(measured, options.output)
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
