"""What each client should do: its verdict, and the gain that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fl_app.report.matrices import TitledPicture
from fl_app.report.pictures import on_page, verdicts_figure
from fl_app.report.sections import MOST_CLIENTS
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result
from fl_app.results.schema import largest_run
from fl_app.results.verdict import (
    EXPLANATION,
    NUMBER_COLUMNS,
    VERDICT_COLUMNS,
    SeedVerdicts,
    verdict_row,
)


def verdict_parts(result: Result) -> list[TextTable | str | Callable[[], TitledPicture]]:
    """Count and draw the first seed's verdicts, and tabulate those of each."""
    if not result.verdicts:
        return []
    first = result.verdicts[0]
    metric, names = result.runs[0].metrics.main, largest_run(result.runs).names
    grids = [
        TextTable(
            f"Seed {one.seed}{_how_many(len(one.clients))}",
            VERDICT_COLUMNS,
            [verdict_row(verdict, names[verdict.client]) for verdict in one.clients[:MOST_CLIENTS]],
            NUMBER_COLUMNS,
            open=one is first,
        )
        for one in result.verdicts
    ]
    return [
        first.headline(metric, names),
        partial(_drawn, result, first),
        f"{first.details(metric)} {EXPLANATION}",
        *grids,
    ]


def _drawn(result: Result, shown: SeedVerdicts) -> TitledPicture:
    run = largest_run(result.runs)
    spec = verdicts_figure(shown.clients, run.names, run.metrics.main)
    title, note, page = on_page(spec)
    return f"{title} · seed {shown.seed}", note, page


def _how_many(clients: int) -> str:
    more = clients > MOST_CLIENTS
    return f", {MOST_CLIENTS} of {clients} sites: verdicts.csv has all" if more else ""
