"""What each client should do: in the terminal, and on a report's page."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fl_app.report.comparisons import draw_verdicts
from fl_app.report.matrices import TitledPicture
from fl_app.report.pictures import on_page
from fl_app.report.text_table import TextTable, render
from fl_app.results.reading import Result
from fl_app.results.schema import Run, largest_run
from fl_app.results.verdict import (
    EXPLANATION,
    NUMBER_COLUMNS,
    VERDICT_COLUMNS,
    SeedVerdicts,
    verdict_row,
)
from fl_core.text import printable

_MOST_PRINTED, _MOST_ON_PAGE = 60, 300  # clients; verdicts.csv has all


def verdict_table(found: SeedVerdicts, run: Run, most: int = _MOST_ON_PAGE) -> TextTable:
    """Return a row for each client, of a run that knows their names."""
    rows = [verdict_row(one, printable(run.names[one.client])) for one in found.clients[:most]]
    more = f", {most} of {len(found.clients):,} sites: verdicts.csv has all"
    caption = f"What each site should do, seed {found.seed}{more * (len(found.clients) > most)}"
    return TextTable(caption, VERDICT_COLUMNS, rows, NUMBER_COLUMNS, {1})


def verdict_parts(result: Result) -> list[TextTable | str | Callable[[], TitledPicture]]:
    """Count and draw the first seed's verdicts, and tabulate those of each."""
    if not result.verdicts:
        return []
    first, run = result.verdicts[0], largest_run(result.runs)
    of_seed = f"Seed {first.seed}: " if len(result.verdicts) > 1 else ""
    return [
        f"{of_seed}{first.headline(run.metrics.main, run.names)}",
        lambda: on_page(draw_verdicts(result)),
        f"{first.details(run.metrics.main)} {EXPLANATION}",
        *(replace(verdict_table(one, run), open=one is first) for one in result.verdicts),
    ]


def print_verdicts(found: SeedVerdicts, run: Run) -> None:
    """Print the verdicts of a seed."""
    table = render(verdict_table(found, run, _MOST_PRINTED))
    print(f"\n{table}{found.details(run.metrics.main)}\n{EXPLANATION}", flush=True)


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
