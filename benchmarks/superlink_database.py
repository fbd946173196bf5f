"""What the SuperLink's database is asked for a device and round: docs/measured/scale.md.

The federation of benchmarks/many_devices.py, with Flower's own connections to its database and
with those of `?plugin=fedkin`, in turns; and once more beneath `strace`, which counts what is
written and flushed, and is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import many_devices
from benchmarks.writing import RESULTS, markdown, read, write

FLOWER, FEDKIN = "Flower's own", "with `?plugin=fedkin`"
_PLUGINS = {FLOWER: "?plugin=counted", FEDKIN: "?plugin=fedkin&plugin=counted"}
_STRACE = (
    *("strace", "-f", "--seccomp-bpf", "-qq", "-ttt", "-y"),
    *("-e", "trace=fsync,fdatasync,pwrite64", "-e", "signal=none", "-o"),
)
# "12 1795573583.16 pwrite64(7</x/state.db-wal>, "..."..., 4096, 32) = 4096", or "<unfinished ...>"
_TRACED = re.compile(r"\d+ +([\d.]+) (\w+)\(\d+<([^>]+)>(?:.*, (\d+), \d+)?")


def measure(devices: int, rounds: int, deadline: float, way: str, trace: bool) -> dict[str, Any]:
    """Run rounds of so many devices, and return what the database was asked in them."""
    with tempfile.TemporaryDirectory(prefix="superlink-database-") as name:
        folder = Path(name)
        notes, traced = folder / "notes", folder / "traced"

        def words(certificates: Path, port: int, database: Path) -> list[str]:
            _, *options = many_devices.superlink_words(certificates, port, database)
            options = [one.replace("?plugin=fedkin", _PLUGINS[way]) for one in options]
            counted = [sys.executable, "-m", "benchmarks.counted_superlink", str(notes), *options]
            return [*_STRACE, str(traced), *counted] if trace else counted

        run = many_devices.measure(devices, rounds, deadline, folder, words)
        rows = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        spans = [(row["started"], row["started"] + row["seconds"]) for row in rows]
        about = {
            "devices": devices,
            "rounds": rounds,
            "replies": sum(row["replies"] for row in rows),
            "way": way,
        }
        if trace:
            with traced.open(encoding="utf-8", errors="replace") as lines:
                return about | {"traced": written(lines, spans)}
        return about | {
            "round-seconds": [round(row["seconds"], 1) for row in rows],
            # Of the whole run, whose start and end are alike.
            "superlink-cpu-seconds": round(run["cores"]["superlink"] * run["seconds"], 1),
            **asked((json.loads(line) for line in notes.open(encoding="utf-8")), spans),
        }


def asked(
    notes: Iterable[Mapping[str, Any]], spans: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """Return how many connections were made within spans of time, and who asked for what."""
    connections, found = 0, dict[tuple[str, str], Counter[str]]()
    for note in notes:
        if not any(begin <= note["at"] <= end for begin, end in spans):
            continue
        if "connected" in note:
            connections += 1
            continue
        counts = found.setdefault((note["handler"], note["state"]), Counter())
        counts["transactions"] += 1
        counts["statements"] += note["statements"]
        if note["held"] is not None:
            counts["locked"] += 1
            counts["changed"] += note["changed"] > 0
            counts["held-ms"] += round(1000 * note["held"])
    names = ("handler", "state")
    return {
        "connections": connections,
        "asked": [dict(zip(names, who, strict=True)) | found[who] for who in sorted(found)],
    }


def written(
    lines: Iterable[str], spans: Sequence[tuple[float, float]]
) -> dict[str, dict[str, int]]:
    """Return how many bytes were written to, and how often flushed, a database's log and file."""
    found = dict[str, Counter[str]]()
    for line in lines:
        if (match := _TRACED.match(line)) is None or ".db" not in match[3]:
            continue
        if any(begin <= float(match[1]) <= end for begin, end in spans):
            counts = found.setdefault("log" if match[3].endswith("-wal") else "file", Counter())
            if match[2] == "pwrite64":
                counts["bytes"] += int(match[4])
            else:
                counts["flushed"] += 1
    return {name: dict(counts) for name, counts in found.items()}


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/measured/scale.md in Markdown, by name."""
    runs = measured["runs"]
    sizes = sorted({run["devices"] for run in runs})
    timed = [run for run in runs if "asked" in run]
    heads = (
        *("devices", "connections", "runs", "transactions", "that lock", "that change something"),
        *("lock held", "connections made", "SuperLink's CPU", "a round"),
    )
    lines: list[Sequence[object]] = []
    for devices, way in product(sizes, (FLOWER, FEDKIN)):
        those = [run for run in timed if (run["devices"], run["way"]) == (devices, way)]
        if not those:
            continue
        cells = [median(_each(run, name) for run in those) for name in _SUMS]
        made = median(run["connections"] / run["replies"] for run in those)
        cpu = median(run["superlink-cpu-seconds"] / run["replies"] for run in those)
        seconds = median(one for run in those for one in run["round-seconds"])
        line = (*(f"{cell:.0f}" for cell in cells[:3]), f"{cells[3]:.0f} ms", f"{made:.1f}")
        lines.append((devices, way, len(those), *line, f"{1000 * cpu:.0f} ms", f"{seconds:.1f} s"))
    largest = [run for run in timed if (run["devices"], run["way"]) == (sizes[-1], FEDKIN)]
    return {
        "each": markdown(heads, lines),
        "who": _who(largest),
        "written": _written(runs),
    }


_SUMS = ("transactions", "locked", "changed", "held-ms")


def _each(run: Mapping[str, Any], name: str) -> float:
    """Return how much of something a device and round cost."""
    return float(sum(one.get(name, 0) for one in run["asked"]) / run["replies"])


def _who(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the twelve who lock most often."""
    sums, replies = dict[tuple[str, str], Counter[str]](), sum(run["replies"] for run in runs)
    for run in runs:
        for one in run["asked"]:
            counts = sums.setdefault((one["handler"], one["state"]), Counter())
            counts.update({name: one.get(name, 0) for name in _SUMS})
    heads = ("request's handler", "function of the state", "transactions", "that lock")
    lines: list[Sequence[object]] = []
    for (handler, state), counts in sorted(sums.items(), key=lambda one: -one[1]["locked"])[:12]:
        cells = (f"{counts[name] / replies:.1f}" for name in _SUMS[:3])
        held = f"{counts['held-ms'] / replies:.1f} ms"
        lines.append((f"`{handler}`", f"`{state}`", *cells, held))
    return markdown((*heads, "that change something", "lock held"), lines)


def _written(runs: Sequence[Mapping[str, Any]]) -> str:
    heads = ("devices", "written to the log", "flushed", "written to the file", "flushed")
    lines: list[Sequence[object]] = []
    for run in sorted((run for run in runs if "traced" in run), key=lambda run: run["devices"]):
        cells = list[str]()
        for name in ("log", "file"):
            counts = run["traced"].get(name, {})
            cells += [
                f"{counts.get('bytes', 0) / run['replies'] / 1000:,.0f} kB",
                f"{counts.get('flushed', 0) / run['replies']:.2f}",
            ]
        lines.append((run["devices"], *cells))
    return markdown(heads, lines)


def main() -> None:
    """Measure, write the result and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--rounds", type=int, default=2, help="of each run")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--add", action="store_true", help="to the runs that the output has")
    parser.add_argument("--deadline", type=float, default=120.0, help="of a round, in seconds")
    path = RESULTS / "superlink-database.json.xz"
    parser.add_argument("--output", type=Path, default=path)
    options = parser.parse_args()
    result = many_devices.surroundings(options.rounds, options.deadline) | {"runs": []}
    if options.add:
        result["runs"] = read(options.output)["runs"]
    plan = [
        *((devices, way, False) for _, devices, way in
          product(range(options.turns), options.devices, _PLUGINS)),
        *((devices, FEDKIN, True) for devices in options.devices),
    ]  # fmt: skip
    for devices, way, trace in plan:
        load = round(os.getloadavg()[0], 1)
        run = measure(devices, options.rounds, options.deadline, way, trace)
        result["runs"].append(run | {"load-before": load})
        print(f"{devices} devices, {way}{', traced' if trace else ''}", flush=True)
        write(result, options.output)
    for table in tables(result).values():
        print(f"\n{table}")


if __name__ == "__main__":
    main()
