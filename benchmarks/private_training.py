"""Accuracy against ε, through the whole app: `python -m benchmarks.private_training`.

25 clients of three tasks on MNIST; the same ε for the pre-round and for the training.
docs/privacy.md has the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.privacy import measured_before
from benchmarks.writing import RESULTS, markdown, write
from fl_app.launch.superlink import simulate

EPSILONS = (0, 0.1, 0.5, 1, 2, 8)
CLIENTS = 25
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl",
    "dataset": "mnist",
    "num-tasks": 3,
    "relevance": "missed-energy",
    "num-server-rounds": 10,
    "evaluate-every": 10,
    "repeats": 3,
    "optimizer": "sgd",
    "learning-rate": 0.5,
    "batch-size": 256,
    "local-epochs": 1,
}


def measure(epsilon: float, workers: int) -> list[dict[str, Any]]:
    """Run all seeds with one ε; return their scores.

    Raises
    ------
    RuntimeError
        If the simulation fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        private = {"pre-round-epsilon": epsilon, "training-epsilon": epsilon}
        given = {**OPTIONS, **private, "num-clients": CLIENTS, "output-dir": folder}
        if not simulate(None, given, num_clients=CLIENTS, workers=workers):
            raise RuntimeError(f"the simulation with ε = {epsilon} failed; its log is above.")
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    kept = ("seed", "ari", "accuracy")
    return [{name: run[name] for name in kept} for run in summary["runs"]]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the mean over seeds as Markdown, the lowest in brackets."""
    heads = ["ε, each", "accuracy", "ARI"]
    lines = []
    for row in rows:
        scores = [100 * run["accuracy"] for run in row["runs"]]
        aris = [run["ari"] for run in row["runs"]]
        lines.append(
            [
                f"{row['epsilon']:g}" if row["epsilon"] else "no noise",
                f"{np.mean(scores):.1f} ({min(scores):.1f})",
                f"{np.mean(aris):.2f} ({min(aris):.2f})",
            ]
        )
    return markdown(heads, lines)


def main() -> int:
    """Measure the ε that the output file does not have yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "private-training.json.xz")
    options = parser.parse_args()
    result = measured_before(options.output, {"options": OPTIONS, "clients": CLIENTS})
    rows = result.setdefault("rows", [])
    for epsilon in options.epsilons:
        if epsilon not in {row["epsilon"] for row in rows}:
            rows.append({"epsilon": epsilon, "runs": measure(epsilon, options.workers)})
            rows.sort(key=lambda row: float(row["epsilon"]))
            write(result, options.output)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
