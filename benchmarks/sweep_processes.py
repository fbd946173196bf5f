"""How a sweep shares the CPUs: `python -m benchmarks.sweep_processes`.

The same two small simulations, one at a time with a Ray worker for each CPU, or one for each CPU
with one worker; in turns, since the machine may have other work. docs/sweeps.md has the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.writing import RESULTS, write
from fl_app.studies.sweeps.plan import plan_sweep
from fl_app.studies.sweeps.sweep_command import run_sweep

SWEEP: dict[str, Any] = {
    "strategy": "rcc-pfl,single",
    "noise": "class-dependent",
    "noise-rate": [0.2, 0.4],
    "num-clients": 12,
    "num-tasks": 3,
    "num-server-rounds": 3,
    "model": "mlp-32",
}
TURNS = 2


def seconds(processes: int) -> float:
    """Return how long the sweep takes with so many simulations at a time.

    Raises
    ------
    RuntimeError
        If a simulation fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        if failures := run_sweep(plan_sweep(SWEEP), Path(folder) / "sweep", processes):
            raise RuntimeError(f"simulations failed: {failures}")
        return time.perf_counter() - started


def main() -> int:
    """Measure in turns; write the seconds by simulations at a time after each, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "sweep-processes.json.xz")
    options = parser.parse_args()
    cpus = os.cpu_count() or 1
    found: dict[str, list[float]] = {"1": [], str(cpus): []}
    load = []
    for _ in range(TURNS):
        for processes, measured in found.items():
            load.append(round(os.getloadavg()[0], 1))
            measured.append(round(seconds(int(processes)), 1))
            kept = {"cpus": cpus, "options": SWEEP, "load-before": load, "seconds": found}
            write(kept, options.output)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
