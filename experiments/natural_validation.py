"""Learning rates for the natural data, chosen by what is in the training parts alone.

`python -m experiments.natural_validation watch` trains on the first three tenths of each site's
time and validates on what comes before the fourth is over, so on nothing that the tables of
`natural-watch` and `natural-flights` with a share of 0.4 or more test; one seed, every strategy,
every learning rate. It prints a line of JSON for each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch

from fl_app.report.html.report_page import NO_REPORT
from fl_app.studies.in_process import simulate_in_process
from fl_core.data.datasets import load_dataset
from fl_core.data.own_data import Partitions

RATES = (0.0003, 0.001, 0.003, 0.01)
_TRAIN = 0.3


def watch() -> Partitions:
    """Return each arm's earliest windows, and those that follow."""
    return _earlier("watch", 7, by_label=True)


def flights() -> Partitions:
    """Return each airport's earliest flights, and those that follow."""
    return _earlier("flights", 8, by_label=False)


def _earlier(name: str, part: int, *, by_label: bool) -> Partitions:
    """Return what trains, and so many-th a part of what comes later: before four tenths."""
    data = load_dataset(name, train_share=_TRAIN)
    if data.held is None:
        raise TypeError(f"{name} has no sites")
    trained, tested = (
        (images.split(sizes), labels.split(sizes))
        for images, labels, sizes in (
            (data.train_images, data.train_labels, list(data.held.train)),
            (data.test_images, data.test_labels, list(data.held.test)),
        )
    )
    clients = []
    for train, labels, later, truth in zip(*trained, *tested, strict=True):
        # Windows are in order of time within an exercise, flights as they are.
        groups = [truth == label for label in range(data.num_classes)]
        whole = [torch.ones_like(truth, dtype=torch.bool)]
        soon = torch.cat(
            [
                where[: max(1, len(where) // part)]
                for where in map(torch.argwhere, groups if by_label else whole)
            ]
        ).flatten()
        clients.append((train, labels, later[soon], truth[soon]))
    return Partitions(clients, class_names=data.class_names, names=data.held.names)


def _validated(name: str, rate: float, words: list[str]) -> None:
    given = dict(word.split("=", 1) for word in words)
    options = {
        "dataset": f"experiments.natural_validation:{name}",
        "num-clients": 20,
        "features": "raw",
        "model": "mlp",
        "evaluate-every": 5,
        "num-clusters": "elbow",
        "learning-rate": rate,
        **given,
    }
    with tempfile.TemporaryDirectory() as folder:
        found = simulate_in_process(
            {**options, "output-dir": f"{folder}/out"}, 20, {NO_REPORT: "1"}
        )
        summary = json.loads((Path(found) / "summary.json").read_text(encoding="utf-8"))
        rounds = (Path(found) / "metrics.csv").read_text(encoding="utf-8").splitlines()[1:]
    for run in summary["runs"]:
        strategy = run["strategy"]
        curve = [
            round(100 * float(cells[3]), 1)
            for cells in (line.split(",") for line in rounds)
            if cells[0] == strategy and cells[3]
        ]
        line = {"strategy": strategy, "learning-rate": rate, "accuracy every five rounds": curve}
        line |= {"clusters": len(set(run["clusters"])), "seconds": run["seconds"]["total"]}
        line["balanced accuracy at the end"] = round(100 * run["balanced-accuracy"], 1)
        print(json.dumps({**line, **given}), flush=True)


if __name__ == "__main__":
    for one in RATES:
        _validated(sys.argv[1], one, sys.argv[2:])
