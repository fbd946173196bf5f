"""The front page of the results, the list of all claims, and how often published numbers agree."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import ttest_ind_from_stats

from experiments.cells import current_cells
from experiments.claims import Claim
from experiments.experiment_file import OURS, Experiment
from experiments.judging import (
    FEWEST,
    ClaimVerdict,
    Measured,
    as_array,
    judge,
    measured_of,
    places_of,
)
from experiments.page import HOW_JUDGED, hours
from fl_app.sweeps.measures import format_measure
from fl_app.sweeps.store import Cell
from fl_core.text import markdown_line

PICTURE, CLAIMS = "published.png", "claims.md"
_FEW = "holds, in one or two runs"
_NOT = "not judged or tried"
_KINDS = ("holds", _FEW, "partly", "undecided", "does not hold", _NOT)
_LEAST_P = 0.05


class Table(NamedTuple):
    """An experiment with what has been run of it, and the verdicts on its claims."""

    experiment: Experiment
    cells: Sequence[Cell]
    measured: Measured
    judged: Sequence[tuple[Claim, ClaimVerdict]]

    @classmethod
    def of(cls, experiment: Experiment, cells: Sequence[Cell]) -> Table:
        """Judge the claims of an experiment by its cells."""
        current = current_cells(experiment, cells)
        measured = measured_of(experiment, current)
        judged = [(claim, judge(experiment, claim, measured)) for claim in experiment.claims]
        return cls(experiment, current, measured, judged)

    def link(self) -> str:
        """Return a link to its page, or to its part of another's."""
        one = self.experiment
        return f"[{one.name}]({one.page or one.name}.md{f'#{one.name}' if one.page else ''})"

    def of_paper(self, paper: str) -> Iterator[tuple[Claim, ClaimVerdict]]:
        """Yield a paper's claims with their verdicts."""
        for claim, verdict in self.judged:
            if (claim.paper or self.experiment.paper) == paper:
                yield claim, verdict


def front_page(tables: Sequence[Table]) -> str:
    """Return the front page as Markdown: sums, a few claims of each paper, and all tables."""
    papers = _papers(tables)
    lines = ["# What the papers claim, and what we found", ""]
    lines += [
        "`python -m experiments --page` wrote this page from the raw numbers of all experiments.",
        "",
        f"- Claims of the papers: {_sums(tables, [one for one in papers if one != OURS])}.",
        f"- Claims of our own, and of papers in a setting of ours: {_sums(tables, [OURS])}.",
        *_agreement(tables),
        f"- [All claims, one by one]({CLAIMS}). [How a claim is judged]"
        "(../results.md#how-a-claim-is-judged).",
        "",
        f"![Published and measured numbers]({PICTURE})",
    ]
    for paper in papers:
        if headlines := [line for table in tables for line in _headlines(table, paper)]:
            heads = ("claim", "verdict", "the paper's difference", "ours", "seeds", "table")
            lines += ["", f"## {paper}", "", markdown_line(heads), "| --- " * len(heads) + "|"]
            lines += [
                *headlines,
                "",
                *(
                    f"- {table.link()}: {table.experiment.deviates}"
                    for table in tables
                    if table.experiment.paper == paper and table.experiment.deviates
                ),
            ]
    return "\n".join([*lines, "", "## All tables", "", *_overview(tables)]) + "\n"


def claims_page(tables: Sequence[Table]) -> str:
    """Return the list of all claims as Markdown."""
    lines = [
        "# All claims",
        "",
        f"A claim **holds** if it does in every cell of its table, **partly** if in some cells, or "
        f"in some seeds; *so far*: some cells are still to be run. {HOW_JUDGED} The paper's "
        "numbers are judged, too, without an interval: where they do not bear out what it says, "
        "that is bold.",
    ]
    for paper in _papers(tables):
        lines += ["", f"## {_title(paper)}", "", f"{_sums(tables, [paper])}.", ""]
        lines += ["| claim | verdict | cells | the paper's | numbers |", "| --- " * 5 + "|"]
        for table in tables:
            for claim, verdict in table.of_paper(paper):
                held, of = verdict.published or (0, 0)
                stated = f"{held} of {of}" if of else "–"
                stated = f"**{stated}**" if held < of else stated
                words = (claim.says, f"**{verdict}**", verdict.held or "–", stated, table.link())
                lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _headlines(table: Table, paper: str) -> Iterator[str]:
    """Yield a line for each claim that the front page shows."""
    for claim, verdict in table.of_paper(paper):
        if claim.headline:
            published, ours = _differences(table, claim)
            yield markdown_line(
                [
                    *(claim.says, f"**{verdict}**", _range(claim, published), _range(claim, ours)),
                    *(str(verdict.seeds), table.link()),
                ]
            )


def _differences(table: Table, claim: Claim) -> tuple[list[float], list[float]]:
    """Return left minus right, or left alone, in each cell: the paper's, and ours.

    Of means, or of standard deviations if the claim is about these.
    """
    one, published, ours = table.experiment, [], []
    for row, column in itertools.product(one.rows, one.columns):
        for pair in places_of(claim, row, column) if claim.is_of(row, column) else ():
            places = [place for place in pair if place]
            stated = [one.stated(*place) or (None, None) for place in places]
            theirs = [std if claim.statistic == "std" else mean for mean, std in stated]
            found = [as_array(table.measured.get(place, {})) for place in places]
            if all(value is not None for value in theirs):
                published.append(_difference([value for value in theirs if value is not None]))
            if all(map(len, found)):
                values = [v.std(ddof=1) if claim.statistic == "std" else v.mean() for v in found]
                ours.append(_difference(list(map(float, values))))
    return published, ours


def _difference(values: Sequence[float]) -> float:
    return values[0] - sum(values[1:])


def _range(claim: Claim, values: Sequence[float]) -> str:
    """Return the least and the largest of several numbers."""
    if not values:
        return "–"
    sign = bool(claim.rights)
    ends = [
        format_measure(claim.measure, value, sign=sign)
        for value in dict.fromkeys((min(values), max(values)))
    ]
    return " to ".join(dict.fromkeys(ends))


def _agreement(tables: Sequence[Table]) -> Iterator[str]:
    """Yield how many distinct published numbers are near ours.

    A number that stands in several tables counts once, as does a method that equals another one
    run for run.
    """
    within: dict[tuple[object, ...], bool] = {}
    differ: dict[tuple[object, ...], bool] = {}
    for table in tables:
        one, seen = table.experiment, list[tuple[object, ...]]()
        for place, numbers in table.measured.items():
            mean, std = one.stated(*place) or (0.0, None)
            same = (*place[:3], tuple(numbers.values()))
            if one.paper == OURS or std is None or same in seen:
                continue
            seen.append(same)
            values, key = as_array(numbers), (one.paper, place.measure, mean, std)
            near = abs(float(values.mean()) - mean) <= std + 1e-9
            within[key] = within.get(key, True) and near
            if one.published_runs and len(values) > 1:
                spread = float(values.std(ddof=1))
                first = (mean, std, one.published_runs, float(values.mean()), spread, len(values))
                test = ttest_ind_from_stats(*first, equal_var=False)
                differ[key] = differ.get(key, False) or bool(np.nan_to_num(test.pvalue) < _LEAST_P)
    if within:
        text = f"{sum(within.values())} of {len(within)} are within their ± of ours in each table"
        tested = f"; by Welch's t test at 5 %, {sum(differ.values())} of {len(differ)} differ"
        yield f"- Distinct published numbers: {text}{tested if differ else ''}."


def _overview(tables: Sequence[Table]) -> list[str]:
    """Return a line with hours and verdicts for each table, and the sums."""
    kinds = _kinds(verdict for table in tables for _, verdict in table.judged)
    heads = ("paper", "table", "seeds", "hours", *kinds)
    lines = [markdown_line(heads), "| --- " * len(heads) + "|"]
    for paper in _ordered({table.experiment.paper for table in tables}):
        for table in tables:
            if table.experiment.paper == paper:
                seeds = str(len({cell["seed"] for cell in table.cells}))
                words = [_title(paper), f"{table.link()}: {table.experiment.title}", seeds]
                lines.append(_line(words, [table], kinds))
    return [*lines, _line(["all", "", ""], tables, kinds)]


def _line(words: Sequence[str], tables: Sequence[Table], kinds: Iterable[str]) -> str:
    spent = sum(hours(one.cells) for one in tables)
    sums = _kinds(verdict for table in tables for _, verdict in table.judged)
    return markdown_line([*words, f"{spent:.1f}", *(str(sums.get(kind, "–")) for kind in kinds)])


def _sums(tables: Sequence[Table], papers: Collection[str]) -> str:
    found = _kinds(v for table in tables for paper in papers for _, v in table.of_paper(paper))
    return "; ".join(f"{kind} {count}" for kind, count in found.items()) or "none"


def _kinds(verdicts: Iterable[ClaimVerdict]) -> dict[str, int]:
    """Return the number of verdicts of each kind, without zeros."""
    found = Counter(map(_kind, verdicts))
    return {kind: found[kind] for kind in _KINDS if found[kind]}


def _kind(verdict: ClaimVerdict) -> str:
    if verdict.word == "holds" and verdict.seeds < FEWEST:
        return _FEW
    return _NOT if verdict.word in (None, "not judged") else str(verdict.word)


def _papers(tables: Sequence[Table]) -> list[str]:
    return _ordered({claim.paper or t.experiment.paper for t in tables for claim, _ in t.judged})


def _ordered(papers: Collection[str]) -> list[str]:
    return sorted(papers, key=lambda name: (name == OURS, name))


def _title(paper: str) -> str:
    return "Beyond the papers, in our setting" if paper == OURS else paper
