"""An experiment's page: the paper's numbers and ours, what holds, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_app.reproduce.cells import Cell
from fl_app.reproduce.experiment import Claim, Experiment, Published

Measured = Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]
"""From row, column and strategy to the accuracy of each seed, in percent."""


def measured_of(experiment: Experiment, cells: Sequence[Cell]) -> Measured:
    """Return the accuracies by row, column and strategy; cells of no row or column are left out."""
    found: dict[str, dict[str, dict[str, NDArray[np.float64]]]] = {}
    for row in experiment.rows:
        for column in experiment.columns:
            own = sorted(
                (c for c in cells if (c["row"], c["column"]) == (row, column)),
                key=lambda c: int(c["seed"]),
            )
            found.setdefault(row, {})[column] = {
                name: np.array([100 * cell["strategies"][name]["accuracy"] for cell in own])
                for name in experiment.strategies()
                if own and all(name in cell["strategies"] for cell in own)
            }
    return found


def page(experiment: Experiment, cells: Sequence[Cell], command: str, *, quick: bool) -> str:
    """Return the page as Markdown."""
    measured = measured_of(experiment, cells)
    wanted = len(experiment.rows) * len(experiment.columns)
    seeds = sorted({int(cell["seed"]) for cell in cells})
    lines = [
        f"# {experiment.title}",
        "",
        f"{experiment.source}",
        "",
        *([f"{experiment.note}", ""] if experiment.note else []),
        f"`{command}` wrote this page, and the raw numbers beside it.",
    ]
    if quick:
        lines += ["", "**A small version (`--quick`): these numbers say nothing of the paper's.**"]
    if len(cells) < wanted * max(len(seeds), 1):
        lines += ["", f"Not finished: {len(cells)} of {wanted * len(seeds)} cells so far."]
    for row in experiment.rows:
        lines += ["", f"## {row}", "", *_table(experiment, row, measured[row])]
    if experiment.claims:
        lines += ["", "## What holds", "", *_verdicts(experiment.claims, measured)]
    lines += ["", f"![Published and measured]({experiment.name}.png)"]
    lines += ["", "## How it was made", "", *_making(experiment, cells, quick=quick)]
    return "\n".join(lines) + "\n"


def _table(
    experiment: Experiment, row: str, measured: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> list[str]:
    columns = list(experiment.columns)
    heads = [f"{column}: paper | ours | difference" for column in columns]
    lines = [f"| accuracy % | {' | '.join(heads)} |", "| --- " * (1 + 3 * len(columns)) + "|"]
    for name in experiment.strategies():
        cells = [
            _compared(experiment.published, (row, column, name), measured[column].get(name))
            for column in columns
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _compared(
    published: Published, place: tuple[str, str, str], ours: NDArray[np.float64] | None
) -> str:
    row, column, name = place
    stated = published.get(row, {}).get(column, {}).get(name)
    paper = "–" if stated is None else _spread(*stated)
    if ours is None or not len(ours):
        return f"{paper} | – | –"
    mean = float(ours.mean())
    shown = _spread(mean, float(ours.std(ddof=1)) if len(ours) > 1 else None)
    difference = "–" if stated is None else f"{mean - stated[0]:+.1f}"
    return f"{paper} | {shown} | {difference}"


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def _verdicts(claims: Sequence[Claim], measured: Measured) -> list[str]:
    lines = []
    for claim in claims:
        judged = {
            f"{row}, {column}": claim.holds({n: float(v.mean()) for n, v in found.items()})
            for row, columns in measured.items()
            for column, found in columns.items()
            if {claim.left, claim.right} <= set(found)
        }
        failed = [name for name, holds in judged.items() if not holds]
        verdict = f"holds in {len(judged) - len(failed)} of {len(judged)} cells"
        exceptions = f"; not in {'; '.join(failed)}" if failed else ""
        lines.append(f"- {claim.says}: **{verdict}**{exceptions}.")
    return lines


def _making(experiment: Experiment, cells: Sequence[Cell], *, quick: bool) -> list[str]:
    seconds = sum(float(cell["seconds"]) for cell in cells)
    seeds = len({cell["seed"] for cell in cells})
    small = experiment.quick if quick else {}
    options = " ".join(f"{key}={value}" for key, value in {**experiment.options, **small}.items())
    lines = [f"{len(cells)} federations, {seeds} seeds, {seconds / 3600:.1f} hours in all.", ""]
    lines += ["```", options, "```", "", "| cell | its own options |", "| --- | --- |"]
    for name, own in (*experiment.rows.items(), *experiment.columns.items()):
        lines.append(f"| {name} | `{' '.join(f'{k}={v}' for k, v in own.items())}` |")
    if len({cell["code"] for cell in cells}) > 1:
        lines += ["", "The cells were made by different versions of the code."]
    for made in dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in cell["versions"].items()) for cell in cells
    ):
        lines += ["", f"Made with {made}."]
    return lines


def draw(experiment: Experiment, cells: Sequence[Cell], path: Path) -> None:
    """Draw the published and the measured numbers."""
    from fl_app.report import pictures  # noqa: PLC0415 - --list needs no matplotlib

    measured = measured_of(experiment, cells)
    panels = {
        row: [
            (
                column,
                {
                    name: (mean / 100, None if std is None else std / 100)
                    for name, (mean, std) in experiment.published.get(row, {})
                    .get(column, {})
                    .items()
                },
                {name: values / 100 for name, values in measured[row][column].items()},
            )
            for column in experiment.columns
        ]
        for row in experiment.rows
    }
    pictures.save(pictures.published_figure(experiment.title, panels), path)
