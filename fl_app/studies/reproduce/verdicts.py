"""One page for all papers: a line per claim, with a verdict and the way to the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fl_app.studies.reproduce.cells import current_cells, wanted_cells
from fl_app.studies.reproduce.experiment_file import Experiment
from fl_app.studies.reproduce.keeping import Cell
from fl_app.studies.reproduce.page import Measured, hours, judge, measured_of

_OURS = "ours"
"""What stands for the paper of an experiment that no paper has."""


def verdicts(found: Sequence[tuple[Experiment, Sequence[Cell]]]) -> str:
    """Return the page as Markdown, from all experiments and what has been run of each."""
    shown = []
    for one, cells in found:
        current = current_cells(one, cells)
        shown.append((one, current, measured_of(one, current)))
    papers = {claim.paper or one.paper for one, _ in found for claim in one.claims}
    lines = ["# What the papers claim, and what we found", ""]
    lines += [
        "`fedkin reproduce --page` wrote this page from the raw numbers of all experiments. A "
        "claim **holds** if it does in every cell of its table, **partly** if in some; *so far*: "
        "some cells are still to be run. The mean over seeds is judged, and a small difference may "
        "be chance: follow the link for the numbers, the paper's and ours.",
    ]
    for paper in sorted(papers, key=lambda name: (name == _OURS, name)):
        title = "Beyond the papers" if paper == _OURS else paper
        lines += ["", f"## {title}", "", "| claim | verdict | cells | numbers |"]
        lines += ["| --- " * 4 + "|"]
        for one, current, measured in shown:
            lines += _claims(one, current, measured, paper)
    lines += ["", "## What it takes", ""]
    lines += ["| experiment | what | simulations | seeds | hours |", "| --- " * 5 + "|"]
    for one, current, _ in shown:
        of = f"{len(current)} of {len(wanted_cells(one, one.seeds))}"
        done = f"{of} | {len({cell['seed'] for cell in current})} | {hours(current):.1f}"
        needs = f" (needs {one.needs})" if one.needs else ""
        lines.append(f"| {_link(one, current)} | {one.title}{needs} | {done} |")
    total = sum(hours(current) for _, current, _ in shown)
    lines += [
        "",
        f"{total:.1f} hours in all, one simulation after the other; each page says on how many "
        "cores.",
    ]
    return "\n".join(lines) + "\n"


def _claims(
    experiment: Experiment, cells: Sequence[Cell], measured: Measured, paper: str
) -> list[str]:
    lines = []
    for claim in experiment.claims:
        if (claim.paper or experiment.paper) != paper:
            continue
        verdict = judge(experiment, claim, measured)
        untried = f"could not be tried here**: needs {experiment.needs}" if experiment.needs else ""
        words = untried if untried and not verdict.judged else f"{verdict}**"
        held = f"{verdict.held} of {verdict.asked}" if verdict.judged else "–"
        lines.append(f"| {claim.says} | **{words} | {held} | {_link(experiment, cells)} |")
    return lines


def _link(experiment: Experiment, cells: Sequence[Cell]) -> str:
    return f"[{experiment.name}]({experiment.name}.md)" if cells else experiment.name
