"""The page of all papers: a line for each table and each claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from experiments.cells import current_cells
from experiments.claims import Claim
from experiments.experiment_file import OURS, Experiment
from experiments.judging import FEWEST, ClaimVerdict, Measured, judge, measured_of
from experiments.page import HOW_JUDGED, comparisons, hours
from fl_app.sweeps.store import Cell
from fl_core.text import markdown_line

PICTURE = "published.png"
_FEW = "holds, in one or two runs"
_NOT = "not judged or tried"
_KINDS = ("holds", _FEW, "partly", "undecided", "does not hold", _NOT)


class _Table(NamedTuple):
    experiment: Experiment
    cells: Sequence[Cell]
    measured: Measured
    judged: Sequence[tuple[Claim, ClaimVerdict]]

    def link(self) -> str:
        name = self.experiment.name
        return f"[{name}]({name}.md)"


def verdicts(found: Sequence[tuple[Experiment, Sequence[Cell]]]) -> str:
    """Return the page as Markdown, from all experiments and what has been run of each."""
    tables = []
    for one, cells in found:
        current = current_cells(one, cells)
        measured = measured_of(one, current)
        judged = [(claim, judge(one, claim, measured)) for claim in one.claims]
        tables.append(_Table(one, current, measured, judged))
    lines = ["# What the papers claim, and what we found", ""]
    lines += [
        "`python -m experiments --page` wrote this page from the raw numbers of all experiments.",
        "",
        *_overview(tables),
        "",
        "A published number that several methods or tables of ours stand beside counts with each.",
        "",
        f"![Published and measured numbers]({PICTURE})",
        "",
        f"A claim **holds** if it does in every cell of its table, **partly** if in some cells, or "
        f"in some seeds; *so far*: some cells are still to be run. {HOW_JUDGED} "
        "[More](../results.md#how-a-claim-is-judged). The paper's numbers are judged, too, "
        "without an interval: where they do not bear out what it says, that is bold.",
    ]
    papers = {claim.paper or one.paper for one, _ in found for claim in one.claims}
    for paper in _ordered(papers):
        sums = _kinds(
            verdict
            for table in tables
            for claim, verdict in table.judged
            if (claim.paper or table.experiment.paper) == paper
        )
        said = "; ".join(f"{kind}: {count}" for kind, count in sums.items())
        lines += ["", f"## {_title(paper)}", "", f"{said}.", ""]
        lines += ["| claim | verdict | cells | the paper's | numbers |", "| --- " * 5 + "|"]
        for table in tables:
            lines += _claims(table, paper)
    return "\n".join(lines) + "\n"


def _overview(tables: Sequence[_Table]) -> list[str]:
    """Return a line with hours and verdicts for each table, and the sums."""
    kinds = _kinds_in(tables)
    heads = ("paper", "table", "within the paper's ±", "seeds", "hours", *kinds)
    lines = [markdown_line(heads), "| --- " * len(heads) + "|"]
    for paper in _ordered({table.experiment.paper for table in tables}):
        for table in tables:
            one = table.experiment
            if one.paper == paper:
                seeds = len({cell["seed"] for cell in table.cells})
                words = (_title(paper), f"{table.link()}: {one.title}")
                lines.append(_line(*words, str(seeds), [table], kinds))
    return [*lines, _line("all", "", "", tables, kinds)]


def _line(
    paper: str, title: str, seeds: str, tables: Sequence[_Table], kinds: Iterable[str]
) -> str:
    differ = [
        far
        for one in tables
        for place, far in comparisons(one.experiment, one.measured).items()
        if one.experiment.paper != OURS and (one.experiment.stated(*place) or (0, None))[1]
    ]
    within = f"{differ.count(False)} of {len(differ)}" if differ else "–"
    spent = sum(hours(one.cells) for one in tables)
    sums = _kinds_in(tables)
    counts = [str(sums.get(kind, "–")) for kind in kinds]
    taken = f"{spent:.1f}" if spent else "–"
    return markdown_line([paper, title, within, seeds, taken, *counts])


def _kinds_in(tables: Iterable[_Table]) -> dict[str, int]:
    return _kinds(verdict for one in tables for _, verdict in one.judged)


def _kinds(verdicts: Iterable[ClaimVerdict]) -> dict[str, int]:
    """Return the number of verdicts of each kind, without zeros."""
    found = Counter(map(_kind, verdicts))
    return {kind: found[kind] for kind in _KINDS if found[kind]}


def _kind(verdict: ClaimVerdict) -> str:
    if verdict.word == "holds" and verdict.seeds < FEWEST:
        return _FEW
    return _NOT if verdict.word in (None, "not judged") else str(verdict.word)


def _claims(table: _Table, paper: str) -> list[str]:
    """Return a line for each claim of a paper."""
    lines = []
    for claim, verdict in table.judged:
        if (claim.paper or table.experiment.paper) != paper:
            continue
        held, of = verdict.published or (0, 0)
        stated = f"{held} of {of}" if of else "–"
        stated = f"**{stated}**" if held < of else stated
        words = (claim.says, f"**{verdict}**", verdict.held or "–", stated, table.link())
        lines.append(f"| {' | '.join(words)} |")
    return lines


def _ordered(papers: Collection[str]) -> list[str]:
    return sorted(papers, key=lambda name: (name == OURS, name))


def _title(paper: str) -> str:
    return "Beyond the papers" if paper == OURS else paper
