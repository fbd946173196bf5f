"""What secure aggregation costs, and what it changes: docs/privacy.md has the table.

A federation is simulated with and without, through `flwr run`.
`python -m benchmarks.secure_sums`.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks import harness
from benchmarks.writing import markdown

CLIENTS, ROUNDS = 25, 10
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl",
    "num-tasks": 3,
    "num-server-rounds": ROUNDS,
    "weighted-mean": True,
}
NAME = "mnist-5k, logistic regression, weighted"
_Models = dict[str, dict[str, np.ndarray]]


def run(options: Mapping[str, Any], workers: int) -> tuple[dict[str, Any], _Models]:
    """Simulate, and return the run's part of summary.json and its models."""
    with tempfile.TemporaryDirectory() as folder:
        summary = harness.simulated({**OPTIONS, **options}, CLIENTS, workers, Path(folder))
        models = Path(folder).glob("models/*/seed-0/*.safetensors")
        return summary["runs"][0], {path.stem: load_file(path) for path in models}


def compared(workers: int) -> dict[str, Any]:
    """Return the accuracy and bytes of the federation, plain and secure."""
    (plain, models), (secure, others) = (
        run({"secure-aggregation": on}, workers) for on in (False, True)
    )
    if plain["clusters"] != secure["clusters"] or models.keys() != others.keys():
        raise RuntimeError("the two runs found different clusters.")
    differences = [
        np.abs(array.astype(np.float64) - others[model][key]).max()
        for model, arrays in models.items()
        for key, array in arrays.items()
    ]
    row: dict[str, Any] = {
        "federation": NAME,
        "clusters": sorted(np.bincount(plain["clusters"]).tolist()),
        "largest-difference": float(f"{max(differences):.3g}"),
    }
    for kind, one in (("plain", plain), ("secure", secure)):
        each = {way: one["bytes"][f"train-{way}"] / CLIENTS / ROUNDS for way in ("up", "down")}
        row[kind] = {"accuracy": one["accuracy"], **each}
    return row


def tables(numbers: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of docs/privacy.md."""
    heads = ["25 clients, ten rounds", "clusters of", "accuracy", "models differ by"]
    heads += ["kB up a round", "kB down"]
    lines = []
    for row in numbers["rows"]:
        pair = [row["plain"], row["secure"]]
        lines.append(
            [
                row["federation"],
                ", ".join(str(size) for size in row["clusters"]),
                " / ".join(f"{100 * one['accuracy']:.2f} %" for one in pair),
                f"{row['largest-difference']:.1e}",
                *(" / ".join(f"{one[way] / 1e3:,.1f}" for one in pair) for way in ("up", "down")),
            ]
        )
    return {"plain / secure": markdown(heads, lines)}


def measure(numbers: harness.Numbers, workers: int) -> Iterator[str]:
    """Simulate the federation twice."""
    numbers["rows"] = [compared(workers)]
    yield NAME


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(__doc__, "secure-sums", measure, tables, workers=cpus)
