"""What secure aggregation costs, and what it changes: docs/privacy.md has the table.

Each federation is simulated with and without, through `flwr run` as every other.
`python -m benchmarks.secure_sums`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "mnist-5k, logistic regression, weighted": {"weighted-mean": True},
}
_Models = dict[str, dict[str, np.ndarray]]


def run(options: Mapping[str, Any], workers: int) -> tuple[dict[str, Any], _Models]:
    """Simulate, and return the run's part of summary.json and its models."""
    with tempfile.TemporaryDirectory() as folder:
        summary = harness.simulated({**OPTIONS, **options}, CLIENTS, workers, Path(folder))
        models = Path(folder).glob("models/*/seed-0/*.safetensors")
        return summary["runs"][0], {path.stem: load_file(path) for path in models}


def compared(name: str, workers: int) -> dict[str, Any]:
    """Return what one federation comes to, plain and secure."""
    (plain, models), (secure, others) = (
        run({**FEDERATIONS[name], "secure-aggregation": on}, workers) for on in (False, True)
    )
    if plain["clusters"] != secure["clusters"] or models.keys() != others.keys():
        raise RuntimeError("the two runs found different clusters.")
    differences = [
        np.abs(array.astype(np.float64) - others[model][key]).max()
        for model, arrays in models.items()
        for key, array in arrays.items()
    ]
    row: dict[str, Any] = {
        "federation": name,
        "clusters": sorted(np.bincount(plain["clusters"]).tolist()),
        "largest-difference": float(f"{max(differences):.3g}"),
    }
    for kind, one in (("plain", plain), ("secure", secure)):
        each = {way: one["bytes"][f"train-{way}"] / CLIENTS / ROUNDS for way in ("up", "down")}
        row[kind] = {"accuracy": one["accuracy"], **each}
    return row


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as Markdown."""
    heads = ["25 clients, ten rounds", "clusters of", "accuracy", "models differ by"]
    heads += ["kB up a round", "kB down"]
    lines = []
    for row in rows:
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
    return markdown(heads, lines)


def measure(numbers: harness.Numbers, workers: int) -> Iterator[str]:
    """Simulate the federations that are not there yet."""
    rows = numbers.setdefault("rows", [])
    for name in FEDERATIONS:
        if name not in {row["federation"] for row in rows}:
            rows.append(compared(name, workers))
            yield name


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(
        __doc__,
        "secure-sums",
        measure,
        lambda numbers: {"plain / secure": table(numbers["rows"])},
        workers=cpus,
    )
