"""What malicious clients do to each strategy: `python -m benchmarks.robustness`.

Every attack is one simulation of all strategies on the same partition of 5,000 MNIST images. The
table says the honest clients' accuracy, and how many of the malicious are in clusters of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clients.settings import ATTACKS
from fl_app.flower_app import read_defaults
from fl_app.superlink import simulate

ROOT = Path(__file__).parents[1]
CLIENTS = 20
OPTIONS: dict[str, Any] = {
    "strategy": "rcc-pfl,flt,fedhc,ifca-pfl,fedsem,single",
    "num-clients": CLIENTS,
    "num-tasks": 2,
    "malicious": 0.2,
    "weighted-mean": "paper",
    "model": "mlp",
    "optimizer": "sgd",
    "learning-rate": 0.1,
    "num-server-rounds": 8,
    "evaluate-every": 8,
}
# FedHC chooses its number of clusters: two tasks, and as many more as attackers ask for.
FEDHC: dict[str, Any] = {"strategy": "fedhc", "num-clusters": "silhouette"}
EUCLIDEAN: dict[str, Any] = {**FEDHC, "update-distance": "euclidean"}
ROWS: dict[str, dict[str, Any]] = {
    "": {},
    "fedhc, number by silhouette": FEDHC,
    "fedhc, number by silhouette, euclidean": EUCLIDEAN,
}


def run(options: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Simulate and return summary.json."""
    with tempfile.TemporaryDirectory() as folder:
        config = {**read_defaults(ROOT), **options, "output-dir": folder}
        if not simulate(ROOT, config, num_clients=CLIENTS, workers=workers):
            raise RuntimeError(f"the simulation of {dict(options)} failed.")
        summary: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text("utf-8"))
        return summary


def cell(result: Mapping[str, Any]) -> str:
    """Return honest accuracy in percent and the share of attackers in clusters of their own."""
    isolated = result.get("malicious-isolated")
    return f"{100 * result['accuracy']:.1f}" + (
        f" ({isolated:.0%})" if "malicious" in result else ""
    )


def main() -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    workers = parser.parse_args().workers
    started = time.perf_counter()
    attacks = [(attack, 10.0) for attack in ATTACKS] + [("scaled-update", -10.0)]
    table: dict[str, list[str]] = {}
    for attack, scale in attacks:
        for label, more in ROWS.items():
            options = {**OPTIONS, **more, "attack": attack, "attack-scale": scale}
            for result in run(options, workers)["runs"]:
                table.setdefault(label or result["strategy"], []).append(cell(result))
    names = [a if s > 0 else f"{a} × {s:g}" for a, s in attacks]
    print(f"\n| strategy | {' | '.join(names)} |\n|{' --- |' * (1 + len(names))}")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
