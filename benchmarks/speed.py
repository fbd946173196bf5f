"""How fast are HoG and simulated rounds? docs/results.md has the numbers: `make bench`.

25 clients of Fashion-MNIST, MLP 784-200-10, batch 32, 2 local epochs, Adam. The bare loop trains
the same clients' images in as many processes as there are workers, without Flower, messages, models
sent or averaged. Both are timed in turn, in one run, and compared as a ratio: a simulation with the
mean of the bare loops before and after it, since machines change their speed.
"""

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from skimage.feature import hog as skimage_hog
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from benchmarks import harness
from benchmarks.harness import CLIENTS
from clients.features.hog import hog
from fl_app.config.run_config import DEFAULTS, Config, parse_config
from fl_core.data.datasets import load_dataset
from fl_core.models.build import build_model
from fl_core.partitions.federation import Federation, simulate_federation

OPTIONS: dict[str, Any] = {
    # `single` first: it warms the workers up, as the bare loop's first round does.
    "strategy": "single,rcc-pfl",
    "dataset": "fashion-mnist",
    "num-tasks": 3,
    "model": "mlp",
    "batch-size": 32,
    "local-epochs": 2,
}

_federation: Federation | None = None
_config: Config | None = None


def _start_worker(config: Config) -> None:
    """Load the data once per process, as a Ray worker does."""
    global _federation, _config  # noqa: PLW0603 - a process pool has no other place for it
    torch.set_num_threads(1)
    _config = config
    _federation = simulate_federation(config.federation_settings(CLIENTS, config.seed))


def _train_bare(client: int) -> None:
    """Train one client the way a PyTorch tutorial does, on tensors."""
    assert _federation is not None  # noqa: S101
    assert _config is not None  # noqa: S101
    images, labels = _federation.training_data(client)
    model = build_model(_config.model, (1, 28, 28), 10, seed=0)
    optimizer = torch.optim.Adam(
        model.parameters(), _config.learning_rate, weight_decay=_config.weight_decay, fused=True
    )
    for _ in range(_config.local_epochs):
        order = torch.randperm(len(labels))
        for start in range(0, len(labels), _config.batch_size):
            batch = order[start : start + _config.batch_size]
            optimizer.zero_grad()
            # As in clients/training/train.py, the faster way: converted batch by batch.
            pixels = images[batch].float() / 255
            F.cross_entropy(model(pixels), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def bare_seconds(config: Config, workers: int, rounds: int) -> float:
    """Return the mean seconds of a round of the bare loop."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _start_worker, (config,)) as pool:
        seconds = []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            for _ in pool.imap(_train_bare, range(CLIENTS), chunksize=1):
                pass
            seconds.append(time.perf_counter() - started)
    return mean(seconds[1:])  # the first round loads the data


def simulated_seconds(workers: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of a simulated round and of the pre-round."""
    options = {**OPTIONS, "num-server-rounds": rounds, "evaluate-every": rounds}
    seconds = harness.summary_of(options, CLIENTS, workers)["runs"][1]["seconds"]
    return seconds["train"] / rounds, seconds["pre-round"]


def microseconds_per_image(compute: Callable[[], object], images: int) -> float:
    """Return the best of three, after one to warm up."""
    compute()
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - started)
    return min(seconds) / images * 1e6


def hog_line() -> str:
    """Time HoG, ours and scikit-image's, on the same MNIST images and compare their numbers."""
    torch.set_num_threads(1)
    images = load_dataset("mnist-5k").train_samples[:2000]
    pixels = images[:, 0].numpy()

    def one_by_one() -> Tensor:
        features = [
            skimage_hog(image, orientations=9, pixels_per_cell=(7, 7), cells_per_block=(2, 2))
            for image in pixels
        ]
        return torch.from_numpy(np.stack(features)).float()

    difference = float((hog(images) - one_by_one()).abs().max())
    ours = microseconds_per_image(lambda: hog(images), len(images))
    theirs = microseconds_per_image(one_by_one, len(images))
    return (
        f"HoG of 28×28 images, one thread: {ours:.1f} µs an image, scikit-image {theirs:.0f} µs, "
        f"{theirs / ours:.0f} times faster; largest difference {difference:.0e}"
    )


def measure(numbers: harness.Numbers, workers: int, rounds: int, repeats: int) -> Iterator[str]:
    """Time all in turn and yield what is found."""
    yield hog_line()
    config = parse_config({**DEFAULTS, **OPTIONS})
    # Here, an unreadable data set is an error; in a pool's workers it would be one for ever.
    simulate_federation(config.federation_settings(CLIENTS, config.seed))
    rows = []
    before = bare_seconds(config, workers, rounds)
    for _ in range(repeats):
        simulated, pre_round = simulated_seconds(workers, rounds)
        after = bare_seconds(config, workers, rounds)
        rows.append(((before + after) / 2, simulated, pre_round))
        before = after
    yield f"\n{platform.machine()}, {workers} workers, {rounds} rounds each"
    yield "bare loop s/round   simulated s/round   ratio   pre-round s   pre-round / round"
    for bare, simulated, pre_round in rows:
        yield (
            f"{bare:17.2f}   {simulated:17.2f}   {bare / simulated:5.2f}   {pre_round:11.2f}   "
            f"{pre_round / simulated:17.2f}"
        )
    ratio = median(bare / simulated for bare, simulated, _ in rows)
    share = median(pre_round / simulated for _, simulated, pre_round in rows)
    yield f"median: {ratio:.2f} of the bare loop's speed; the pre-round costs {share:.2f} rounds"


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(__doc__, "", measure, lambda _: {}, workers=cpus, rounds=10, repeats=3)
