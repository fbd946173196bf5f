"""Verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fl_app.report.text_table import TextTable, render
from fl_app.results.schema import Run
from fl_app.results.verdict import (
    EXPLANATION,
    NUMBER_COLUMNS,
    VERDICT_COLUMNS,
    SeedVerdicts,
    verdict_row,
)
from fl_core.text import printable

_MOST_SHOWN = 60  # clients; verdicts.csv has all


def print_verdicts(found: SeedVerdicts, run: Run, *, several: bool = False) -> None:
    """Print a row for each client, of a run that knows their names; the seed if of several."""
    metric, verdicts = run.metrics.main, found.clients
    of_seed = f", seed {found.seed}" if several else ""
    rows = [verdict_row(one, printable(run.names[one.client])) for one in verdicts[:_MOST_SHOWN]]
    more = f"{_MOST_SHOWN} of {len(verdicts):,} sites; verdicts.csv has all"
    note = more if len(verdicts) > _MOST_SHOWN else ""
    title = f"What each site should do{of_seed}"
    table = TextTable(title, VERDICT_COLUMNS, rows, NUMBER_COLUMNS, {1}, note=note)
    print(f"\n{render(table)}{found.details(metric)}\n{EXPLANATION}", flush=True)


def print_headlines(found: Sequence[SeedVerdicts], run: Run) -> None:
    """Print what the verdicts of each seed say in a sentence or two."""
    names = [printable(name) for name in run.names]
    for one in found:
        of_seed = f"seed {one.seed}: " if len(found) > 1 else ""
        print(f"\n{of_seed}{one.headline(run.metrics.main, names)}", flush=True)


def say_no_verdicts(runs: Sequence[Run]) -> None:
    """Print why there are no verdicts after these runs of one seed."""
    why = "no client could compare models: raise validation-share, or give them more samples"
    if len(runs) == 1:
        why = f"only {runs[0].strategy} has run: add a strategy to compare it with"
    print(f"seed {runs[0].seed}: there are no verdicts, as {why}.", flush=True)
