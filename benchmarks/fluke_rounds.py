"""FedAvg by fluke 0.8.1 on the clients that `benchmarks.rounds` saved: another Python runs it.

`PYTHON benchmarks/fluke_rounds.py CLIENTS.npz ROUNDS` prints the mean seconds of a round but the
first. fluke trains one client after the other in one process, with as many threads as there are
CPUs; nobody tests.
"""

import sys
import time

import numpy as np
import torch
from torch import nn


def main() -> None:
    """Train and print."""
    # Tests import this file where there is no fluke.
    from fluke import DDict, FlukeENV  # noqa: PLC0415
    from fluke.algorithms.fedavg import FedAVG  # noqa: PLC0415
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # noqa: PLC0415

    saved = np.load(sys.argv[1])
    rounds, count = int(sys.argv[2]), int(saved["clients"])
    loaders = []
    for client in range(count):
        pixels = torch.from_numpy(saved[f"images-{client}"]).float() / 255
        labels = torch.from_numpy(saved[f"labels-{client}"])
        loaders.append(
            FastDataLoader(
                pixels, labels, num_labels=10, batch_size=32, shuffle=True, skip_singleton=False
            )
        )
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    untested = {"locals": False, "server": False, "pre_fit": False, "post_fit": False}
    env.set_eval_cfg(task="classification", eval_every=10_000, **untested)
    data = DummyDataContainer(loaders, [None] * count, None, 10)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    settings = DDict(
        model=model,
        client=DDict(
            batch_size=32,
            local_epochs=2,
            loss=nn.CrossEntropyLoss,
            optimizer=DDict(name="Adam", lr=0.001, weight_decay=0.001),
            scheduler=DDict(name="StepLR", gamma=1, step_size=1),
        ),
        server=DDict(weighted=True),
    )
    algorithm = FedAVG(count, DataSplitter(data), settings)
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        algorithm.run(1, 1.0, finalize=False)
        seconds.append(time.perf_counter() - started)
    print(sum(seconds[1:]) / rounds)


if __name__ == "__main__":
    main()
