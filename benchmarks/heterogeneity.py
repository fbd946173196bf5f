"""How far apart must tasks be for clusters to pay? `python -m benchmarks.heterogeneity`.

Synthetic data of graded heterogeneity (`fl_core/synthetic.py`): each column is one simulation of
all strategies on the same partitions. A cell has the mean accuracy over clients and seeds and, in
brackets, the adjusted Rand index.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from benchmarks.robustness import print_table, run

DEGREES = (0.0, 0.25, 0.5, 0.75, 1.0)
OPTIONS: dict[str, Any] = {
    "strategy": "single,local,fedhc,rcc-pfl,flt,ifca,optimum",
    "dataset": "synthetic",
    "num-tasks": 3,
    "num-server-rounds": 10,
    "evaluate-every": 10,
}


def main() -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="seeds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    table: dict[str, list[str]] = {}
    for degree in DEGREES:
        options = {**OPTIONS, "heterogeneity": degree, "repeats": arguments.repeats}
        for row in run(options, arguments.workers)["table"]:
            cell = f"{100 * row['accuracy-mean']:.1f} ({row['ari-mean']:.2f})"
            table.setdefault(row["strategy"], []).append(cell)
    print_table([f"h = {degree:g}" for degree in DEGREES], table)
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
