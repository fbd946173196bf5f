"""One page for all papers: a line per claim, with a verdict and the way to the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fl_app.reproduce.cells import Cell
from fl_app.reproduce.experiment import Experiment
from fl_app.reproduce.page import hours, judge, measured_of, verdict

_OURS = "ours"
"""What stands for the paper of an experiment that no paper has."""


def verdicts(found: Sequence[tuple[Experiment, Sequence[Cell]]]) -> str:
    """Return the page as Markdown, from all experiments and what has been run of each."""
    papers = {claim.paper or one.paper for one, _ in found for claim in one.claims}
    lines = ["# What the papers claim, and what we found", ""]
    lines += [
        "`fedkin reproduce --page` wrote this page from the raw numbers of all experiments. A "
        "claim **holds** if it does in every cell of its table, **partly** if in some.",
    ]
    for paper in sorted(papers, key=lambda name: (name == _OURS, name)):
        title = "Beyond the papers" if paper == _OURS else paper
        lines += ["", f"## {title}", "", "| claim | verdict | cells | numbers |"]
        lines += ["| --- " * 4 + "|"]
        for one, cells in found:
            lines += _claims(one, cells, paper)
    lines += ["", "## What it takes", ""]
    lines += ["| experiment | what | simulations | seeds | hours |", "| --- " * 5 + "|"]
    total = 0.0
    for one, cells in found:
        seeds = len({cell["seed"] for cell in cells})
        name = f"[{one.name}]({one.name}.md)" if cells else one.name
        done = f"{len(cells)} | {seeds} | {hours(cells):.1f}" if cells else "0 | 0 | –"
        needs = f" (needs {one.needs})" if one.needs else ""
        lines.append(f"| {name} | {one.title}{needs} | {done} |")
        total += hours(cells)
    lines += ["", f"{total:.1f} hours in all, on one core of the machine that made them."]
    return "\n".join(lines) + "\n"


def _claims(experiment: Experiment, cells: Sequence[Cell], paper: str) -> list[str]:
    measured = measured_of(experiment, cells)
    lines = []
    for claim in experiment.claims:
        if (claim.paper or experiment.paper) != paper:
            continue
        judged = judge(claim, measured)
        held = f"{sum(judged.values())} of {len(judged)}" if judged else "–"
        link = f"[{experiment.name}]({experiment.name}.md)" if cells else experiment.name
        why = f": needs {experiment.needs}" if not judged and experiment.needs else ""
        lines.append(f"| {claim.says} | **{verdict(judged)}**{why} | {held} | {link} |")
    return lines
