"""Accuracy against ε, through the whole app: docs/privacy.md has the table.

25 clients of three tasks on MNIST; the same ε for the pre-round and for the training.
`python -m benchmarks.private_training`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.writing import markdown

EPSILONS = (0, 0.1, 0.5, 1, 2, 8)
CLIENTS = 25
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl",
    "dataset": "mnist",
    "num-tasks": 3,
    "relevance": "missed-energy",
    "outliers": "separate",
    "num-server-rounds": 10,
    "evaluate-every": 10,
    "repeats": 3,
    "optimizer": "sgd",
    "learning-rate": 0.5,
    "batch-size": 256,
    "local-epochs": 1,
}


def measure(numbers: harness.Numbers, epsilons: list[float], workers: int) -> Iterator[str]:
    """Run all seeds with each ε that is not there yet."""
    rows = numbers.setdefault("rows", [])
    for epsilon in epsilons:
        if epsilon in {row["epsilon"] for row in rows}:
            continue
        private = {"pre-round-epsilon": epsilon, "training-epsilon": epsilon}
        summary = harness.summary_of({**OPTIONS, **private}, CLIENTS, workers)
        runs = [
            {name: run[name] for name in ("seed", "ari", "accuracy")} for run in summary["runs"]
        ]
        rows.append({"epsilon": epsilon, "runs": runs})
        rows.sort(key=lambda row: float(row["epsilon"]))
        yield f"ε = {epsilon}"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the table of docs/privacy.md: means over seeds, the lowest in brackets."""
    lines = []
    for row in numbers["rows"]:
        scores = [100 * run["accuracy"] for run in row["runs"]]
        aris = [run["ari"] for run in row["runs"]]
        epsilon = f"{row['epsilon']:g}" if row["epsilon"] else "no noise"
        ari = f"{np.mean(aris):.2f} ({min(aris):.2f})"
        lines.append([epsilon, f"{np.mean(scores):.1f} ({min(scores):.1f})", ari])
    return {"training": markdown(["ε, each", "accuracy", "ARI"], lines)}


if __name__ == "__main__":
    header = {"options": OPTIONS, "clients": CLIENTS}
    options: dict[str, Any] = {"epsilons": [float(one) for one in EPSILONS], "workers": 1}
    harness.command(__doc__, "private-training", measure, tables, header, **options)
