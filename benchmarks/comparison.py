"""The committed runs side by side: `python -m benchmarks.comparison`.

Prints the table of docs/strategies.md, and draws accuracy against bytes on mnist-5k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.writing import run_of
from fl_app.report.pictures import save, traffic_figure
from fl_app.report.tables import PRE_ROUND, TRAINING

ROOT = Path(__file__).parents[1]
RUNS = {
    "mnist-5k": "all",
    "MNIST": "mnist",
    "Fashion-MNIST": "fashion-mnist",
}
Summary = dict[str, Any]


def read_runs() -> dict[str, Summary]:
    """Return each committed summary.json by the name of its data set."""
    return {name: run_of(file) for name, file in RUNS.items()}


def markdown(summaries: dict[str, Summary]) -> str:
    """Return a row per strategy: accuracy and ARI on each data set."""
    seeds = {name: len({run["seed"] for run in s["runs"]}) for name, s in summaries.items()}
    titles = [f"{name}, {seeds[name]} seeds: accuracy % | ARI" for name in summaries]
    lines = [f"| strategy | {' | '.join(titles)} |", "| --- " * (1 + 2 * len(titles)) + "|"]
    tables = [{row["strategy"]: row for row in s["table"]} for s in summaries.values()]
    for strategy in tables[0]:
        cells = [
            f"{100 * row['accuracy-mean']:.1f} ± {100 * row['accuracy-std']:.1f}"
            f" | {row['ari-mean']:.2f}"
            for row in (table[strategy] for table in tables)
        ]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(summary: Summary, path: Path) -> None:
    """Draw what each strategy of a run reaches, and what it costs a client."""
    found = {}
    for strategy in dict.fromkeys(run["strategy"] for run in summary["runs"]):
        runs = [run for run in summary["runs"] if run["strategy"] == strategy]
        bytes_of = [
            sum(run["bytes"][way] for way in (*PRE_ROUND, *TRAINING)) / run["num-clients"]
            for run in runs
        ]
        found[strategy] = (np.array(bytes_of) / 1e6, np.array([run["accuracy"] for run in runs]))
    save(traffic_figure(found), path)


def main() -> None:
    """Print the table and draw."""
    summaries = read_runs()
    print(markdown(summaries))
    draw(summaries["mnist-5k"], ROOT / "docs/pictures/accuracy-against-bytes.png")


if __name__ == "__main__":
    main()
