"""Where the time of devices' rounds goes: the picture of docs/devices.md.

Four sites of 360 digits by the real programs on this machine, as benchmarks/site_rounds.py has
them, with `fedkin node`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.many_devices import surroundings
from benchmarks.site_rounds import FORK, WAYS, measure
from benchmarks.writing import read, write
from fl_app.report.device_times import TIMES
from fl_app.report.pictures import device_times_figure, save


def shares(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Say what share of all devices' seconds goes to each of `TIMES`."""
    sums = {part: sum(one[part] for one in seconds.values()) for part in TIMES}
    total = sum(sums.values())
    return ", ".join(f"{TIMES[part]} {value / total:.0%}" for part, value in sums.items())


def main() -> None:
    """Measure unless only the picture is wanted, draw it, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-draw", action="store_true", help="from the numbers that are there")
    parser.add_argument("--output", type=Path, default=Path("docs/runs/measured/device-times.json"))
    parser.add_argument("--picture", type=Path, default=Path("docs/pictures/device-times.png"))
    options = parser.parse_args()
    if not options.only_draw:
        load = round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory(prefix="device-times-") as folder:
            run = measure(WAYS[FORK], options.rounds, Path(folder))
        about = {name: surroundings(options.rounds, 0)[name] for name in ("versions", "machine")}
        result: dict[str, Any] = {**about, "rounds": options.rounds, "load-before": load, **run}
        write(result, options.output)
    found = read(options.output)["device-seconds"]
    save(device_times_figure(found), options.picture)
    print(shares(found))


if __name__ == "__main__":
    main()
