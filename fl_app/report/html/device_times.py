"""Where the time of devices' rounds goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fl_app.report.html.matrices import Shown
from fl_app.report.html.reading import Result, Run
from fl_app.report.html.sections import Grid, costs_of, first_runs
from fl_app.report.pictures import device_times_figure, on_page


def costs_with_times_of(result: Result) -> list[Grid | Callable[[], Shown]]:
    """Tabulate what strategies cost, and draw the time of each one's devices on its first seed."""
    devices = [run for run in first_runs(result) if run.device_seconds]
    return [*costs_of(result), *(partial(_drawn, run) for run in devices)]


def _drawn(run: Run) -> Shown:
    names = run.names
    twice = {name for name in names if names.count(name) > 1}
    seconds = {
        f"{names[client]} ({client})" if names[client] in twice else names[client]: parts
        for client, parts in run.device_seconds.items()
    }
    title, note, spec = on_page(device_times_figure(seconds))
    return f"{title} · {run.strategy}, seed {run.seed}", note, spec
