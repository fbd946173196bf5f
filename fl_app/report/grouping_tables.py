"""The tables of a grouping, for the terminal and the report, and the sentences below them."""

from collections.abc import Sequence

import numpy as np

from fl_app.report.sentences import describe_cost
from fl_app.report.tables import MOST_NAMES, cluster_rows, lines_by_reason
from fl_app.report.text_table import TextTable, render
from fl_app.results.schema import Grouping
from fl_core.text import listed, printable
from strategies.clusterings.certainty import DOUBTFUL, NO_CLUSTER

LIMITS = (
    "limits, measured on digits: where tasks overlap and clients have 20 samples, 67 % of those\n"
    "above 90 % are right; one group with skewed labels is split in 15 of 48 federations, by the\n"
    "paper's relevance in 43 (docs/grouping.md)"
)
"""How far the certainty and the number of groups can be trusted."""
_MOST_CANDIDATES = 6
_MOST_DOUBTS = 20
_HARDLY = 0.5  # if a smaller share of clients is certain, the data hardly have such groups


def supports_groups(report: Grouping) -> bool:
    """Return whether at least half of the clients are certain; True without resamples."""
    known = _known(report.certainty)
    return not known or float(np.mean(np.array(known) >= DOUBTFUL)) >= _HARDLY


def _known(certainty: Sequence[float]) -> list[float]:
    return [value for value in certainty if not np.isnan(value)]


def warnings_of(report: Grouping) -> list[str]:
    """Return why clusters mean little: clients are indistinguishable, or have little to compare."""
    why = report.why_indistinguishable
    lines = [f"The clients could not be distinguished: {why}."] if why else []
    poor = lines_by_reason(report.uninformative)
    return lines + [f"little to compare: {line}" for line in poor]


def print_grouping(report: Grouping) -> None:
    """Print the clusters, the clients in doubt, and what supports which number of clusters."""
    print(f"\n{render(clusters_table(report))}{_drawn(report)}")
    if doubts := doubts_table(report):
        print(f"\n{render(doubts)}", end="")
    if candidates := candidates_table(report):
        print(f"\n{render(candidates)}{report.num_clusters.why}")
    for line in _remarks(report):
        print(f"\n{line}")
    print(flush=True)


def clusters_table(grouping: Grouping) -> TextTable:
    """Tabulate the members of each cluster and how sure that is."""
    what = "No group is certain" if grouping.why_indistinguishable else "Who should train with whom"
    has_certainty = bool(_known(grouping.certainty))

    def cells_of(members: list[int]) -> list[str]:
        names = [printable(grouping.names[client]) for client in members]
        sure = _known([grouping.certainty[client] for client in members])
        shares = [f"{100 * np.mean(sure):.0f}", f"{100 * min(sure):.0f}"] if sure else ["–", "–"]
        return [listed(names, MOST_NAMES), f"{len(members):,}", *(shares if has_certainty else ())]

    columns = ["cluster", "clients", "number"]
    columns += ["certainty %\nmean", "\nlowest"] if has_certainty else []
    caption = f"{what}: {grouping.num_clusters.chosen} cluster(s)"
    return TextTable(caption, columns, cluster_rows(grouping.clusters, cells_of), {0, 2, 3, 4})


def _drawn(report: Grouping) -> str:
    if report.why_indistinguishable:
        return "\n".join(warnings_of(report))
    if not report.resamples:
        return "the certainty is unknown: `fedkin group` computes it from resamples"
    return (
        f"certainty: in how many of {report.resamples} resamples a client lands with its "
        f"cluster\nresampled: {report.resampled}\n{LIMITS}"
    )


def doubts_table(grouping: Grouping) -> TextTable | None:
    """Tabulate the clients that may belong to another cluster; None without any."""
    doubts = grouping.in_doubt
    sure = dict(zip(grouping.names, grouping.certainty, strict=True))
    rows = [
        [
            printable(one.client),
            str(one.cluster),
            f"{100 * sure[one.client]:.0f}",
            "alone" if one.other_cluster == NO_CLUSTER else str(one.other_cluster),
            f"{100 * one.share:.0f}",
        ]
        for one in doubts[:_MOST_DOUBTS]
    ]
    caption = f"In doubt: {len(doubts)} client(s)"
    if len(doubts) > _MOST_DOUBTS:
        caption += f", the first {_MOST_DOUBTS}; grouping.json has all"
    columns = ["client", "cluster", "certainty %", "else", "share %"]
    return TextTable(caption, columns, rows, range(1, 5)) if doubts else None


def candidates_table(grouping: Grouping) -> TextTable | None:
    """Tabulate the numbers of clusters that the evidence supports most; None without any."""
    number = grouping.num_clusters
    # Of many clients whose number was given, or chosen by the elbow, none was weighed.
    weighed = any(one.resamples for one in number.candidates)
    rows = [
        [
            str(one.num_clusters),
            "–" if np.isnan(one.score) else f"{one.score:.3f}",
            *([f"{100 * one.resamples:.0f}"] if weighed else []),
        ]
        for one in number.foremost(_MOST_CANDIDATES)
    ]
    columns = ["clusters", "score", *(["best in % of resamples"] if weighed else [])]
    table = TextTable("How many groups the evidence supports", columns, rows, range(3))
    return table if rows else None


def _remarks(report: Grouping) -> list[str]:
    lines = []
    if not supports_groups(report):
        lines.append(
            "Fewer than half of the clients are certain: the data hardly have such groups. Train "
            f"all together (strategy=single), or bring more {report.sample}s."
        )
    if not report.why_indistinguishable:  # otherwise they were printed instead of the certainty
        lines += warnings_of(report)
    lines += [f"outliers: {line}" for line in lines_by_reason(report.outliers)]
    unknown = [f"{name}: {printable(why)}" for name, why in report.unknown_nodes.items()]
    lines += [f"left out: {one}" for one in unknown[:_MOST_DOUBTS]]
    if len(unknown) > _MOST_DOUBTS:
        lines.append(f"left out: {len(unknown) - _MOST_DOUBTS} more nodes, in grouping.json")
    return [*lines, f"cost: {describe_cost(report)}"]
