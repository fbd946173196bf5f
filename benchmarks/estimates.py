"""How far off the estimate of `fedkin run --dry-run` is: `python -m benchmarks.estimates`.

Each configuration is estimated, then simulated with all workers (FL_DATA_DIR set). docs/watching.md
has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fl_app.config.estimate import estimated_seconds
from fl_app.config.run_config import parse_config
from fl_app.launch.flower_app import installed_app, read_defaults
from fl_app.launch.superlink import simulate
from fl_core.files import replacing

CLIENTS = 25
RUNS: tuple[dict[str, Any], ...] = (
    {"strategy": "rcc-pfl,single"},
    {"strategy": "single", "dataset": "fashion-mnist", "num-server-rounds": 2},
    {"strategy": "ifca", "dataset": "synthetic", "model": "cnn", "num-server-rounds": 5},
)


def measure(options: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return what was estimated for a run, what it took, and how busy the machine was before.

    Raises
    ------
    RuntimeError
        If the simulation fails.
    """
    load = os.getloadavg()[0]
    config = parse_config({**read_defaults(installed_app()), "num-clients": CLIENTS, **options})
    seconds, _ = estimated_seconds(config, workers)
    with tempfile.TemporaryDirectory() as folder:
        given = {"num-clients": CLIENTS, **options, "output-dir": folder}
        started = time.monotonic()
        if not simulate(None, given, num_clients=CLIENTS, workers=workers):
            raise RuntimeError(f"the simulation of {dict(options)} failed; its log is above.")
        took = time.monotonic() - started
    words = " ".join(f"{key}={value}" for key, value in options.items())
    return {
        "options": words,
        "estimated": round(seconds),
        "took": round(took),
        "load": round(load, 1),
        "cores": os.cpu_count(),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| run | estimated | took | load before |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| `{row['options']}` | {row['estimated']} s | {row['took']} s | "
        f"{row['load']} on {row['cores']} cores |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write the numbers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/runs/measured/estimates.json"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    rows = [measure(run, options.workers) for run in RUNS]
    with replacing(options.output) as path:
        path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(table(rows), end="")


if __name__ == "__main__":
    main()
