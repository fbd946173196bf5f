"""Verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fl_app.report.text_table import TextTable, render
from fl_app.results.schema import Run
from fl_app.results.verdict import (
    EXPLANATION,
    GAIN_COLUMN,
    NUMBER_COLUMNS,
    SeedVerdicts,
    verdict_columns,
    verdict_row,
)
from fl_core.text import printable

_MOST_SHOWN = 60  # clients; verdicts.csv has all


def print_verdicts(found: SeedVerdicts, run: Run, *, several: bool = False) -> None:
    """Print a row for each client, of a run that knows their names; the seed if of several."""
    metric, verdicts = run.metrics.main, found.clients
    of_seed = f", seed {found.seed}" if several else ""

    def fit(text: str) -> str:
        text = text.replace(" to ", "…").replace(": ", ":\n")
        if metric.is_share:
            return text
        # An interval of errors is too long to stand beside its middle.
        return text.replace(" (", "\n(").replace(" over alone", "\nover alone")

    heads = verdict_columns(metric)
    rows = [heads] + [
        verdict_row(one, printable(run.names[one.client]), metric) for one in verdicts[:_MOST_SHOWN]
    ]
    for row in rows:
        row[GAIN_COLUMN] = fit(row[GAIN_COLUMN])
    more = f"{_MOST_SHOWN} of {len(verdicts):,} sites; verdicts.csv has all"
    note = more if len(verdicts) > _MOST_SHOWN else ""
    title = f"What each site should do{of_seed}"
    table = TextTable(title, heads, rows[1:], NUMBER_COLUMNS, {1}, note=note)
    print(f"\n{render(table)}{found.details(metric)}\n{EXPLANATION}", flush=True)


def print_headlines(found: Sequence[SeedVerdicts], run: Run) -> None:
    """Print what the verdicts of each seed say in a sentence or two."""
    for one in found:
        of_seed = f"seed {one.seed}: " if len(found) > 1 else ""
        print(f"\n{of_seed}{one.headline(run.metrics.main, run.names)}", flush=True)


def say_no_verdicts(runs: Sequence[Run]) -> None:
    """Print why there are no verdicts after these runs of one seed."""
    why = "no client could compare models: raise validation-share, or give them more samples"
    if len(runs) == 1:
        why = f"only {runs[0].strategy} has run: add a strategy to compare it with"
    print(f"seed {runs[0].seed}: there are no verdicts, as {why}.", flush=True)
