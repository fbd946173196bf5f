"""What secure aggregation costs, and what it changes: `python -m benchmarks.secure_sums`.

Each federation is simulated with and without, through `flwr run` as every other (FL_DATA_DIR set).
docs/privacy.md has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.writing import RESULTS, markdown, read, write
from fl_app.launch.superlink import simulate

CLIENTS, ROUNDS = 25, 10
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl",
    "num-clients": CLIENTS,
    "num-tasks": 3,
    "num-server-rounds": ROUNDS,
}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "mnist-5k, logistic regression, weighted": {"weighted-mean": True},
}
_Models = dict[str, dict[str, np.ndarray]]


def run(options: Mapping[str, Any], workers: int) -> tuple[dict[str, Any], _Models]:
    """Simulate, and return the run's part of summary.json and its models.

    Raises
    ------
    RuntimeError
        If the simulation fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = {**OPTIONS, **options, "output-dir": folder}
        if not simulate(None, given, num_clients=CLIENTS, workers=workers):
            raise RuntimeError(f"the simulation of {dict(options)} failed; its log is above.")
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        models = Path(folder).glob("models/*/seed-0/*.safetensors")
        return summary["runs"][0], {path.stem: load_file(path) for path in models}


def measure(name: str, workers: int) -> dict[str, Any]:
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


def main() -> int:
    """Measure the federations that the output file does not have yet; write and print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=RESULTS / "secure-sums.json.xz")
    options = parser.parse_args()
    rows = read(options.output).get("rows", [])
    for name in FEDERATIONS:
        if name not in {row["federation"] for row in rows}:
            rows.append(measure(name, options.workers))
            write({"rows": rows}, options.output)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
