"""An experiment's picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.cells import current_cells
from experiments.experiment_file import OURS, Experiment
from experiments.judging import TableEntry, as_array, measured_of
from fl_app.report import pictures
from fl_app.sweeps.measures import measure_of, measure_title, tested_rounds
from fl_app.sweeps.store import Cell
from fl_core.metrics import metrics_in


def draw(experiment: Experiment, cells: Sequence[Cell], path: Path) -> None:
    """Draw what the experiment's `picture` says, as PNG."""
    if experiment.picture == "none":
        return
    if experiment.picture == "table":
        figure = _published(experiment, cells)
    elif experiment.picture == "sweep":
        figure = _sweep(experiment, cells)
    else:
        figure = _rounds(experiment, cells, per_task=experiment.picture == "tasks")
    pictures.save(figure, path)


def draw_agreement(found: Sequence[tuple[Experiment, Sequence[Cell]]], path: Path) -> None:
    """Draw all published numbers of the papers' tables against ours, if there are any."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one, cells in found:
        for place, numbers in measured_of(one, cells).items():
            stated = one.stated(*place)
            if one.paper != OURS and stated is not None:
                pair = (stated[0], float(as_array(numbers).mean()))
                row = f", {place.row}" if len(one.rows) > 1 else ""
                series = panels.setdefault(measure_of(place.measure).words, {})
                series.setdefault(f"{one.name}{row}", []).append(pair)
    if panels:
        pictures.save(pictures.agreement_figure("Published and measured", panels), path)


def _published(experiment: Experiment, cells: Sequence[Cell]) -> pictures.Spec:
    """Draw the published beside the measured numbers of the first measure."""
    measured, name = measured_of(experiment, cells), experiment.measures[0]
    methods = experiment.methods()
    panels: dict[str, list[pictures.Group]] = {}
    for row in experiment.rows:
        for column in experiment.columns:
            stated = {m: experiment.stated(name, row, column, m) for m in methods}
            ours = {m: measured.get(TableEntry(name, row, column, m)) for m in methods}
            panels.setdefault(row, []).append(
                (
                    column,
                    {m: number for m, number in stated.items() if number is not None},
                    {m: as_array(numbers) for m, numbers in ours.items() if numbers is not None},
                )
            )
    return pictures.published_figure(experiment.title, panels, measure_title(name))


def _sweep(experiment: Experiment, cells: Sequence[Cell]) -> pictures.Spec:
    """Draw each measure against the columns, a panel for each measure in each row."""
    measured = measured_of(experiment, cells)
    columns = tuple(experiment.columns)
    across = np.array([float(column) for column in columns])
    keys = {key for keys in experiment.columns.values() for key in keys}
    panels = {}
    for row in experiment.rows:
        for name in experiment.measures:
            lines = {}
            for method in experiment.methods():
                found = [measured.get(TableEntry(name, row, c, method), {}) for c in columns]
                if seeds := sorted(set[int]().union(*found)):
                    values = [[one.get(seed, np.nan) for one in found] for seed in seeds]
                    lines[method] = (across, np.array(values))
            if lines:
                panels[row if len(experiment.rows) > 1 else "", measure_title(name)] = lines
    ranges = {measure_title(name): measure_of(name).limits for name in experiment.measures}
    limits = {words: found for words, found in ranges.items() if found is not None}
    return pictures.lines_figure(experiment.title, panels, ", ".join(sorted(keys)), limits)


def _rounds(experiment: Experiment, cells: Sequence[Cell], *, per_task: bool) -> pictures.Spec:
    """Draw the main metric by round, a panel for each row, column and, with `per_task`, task."""
    found: dict[tuple[str, str], dict[str, list[dict[int, float]]]] = {}
    for cell in current_cells(experiment, cells):
        title = ", ".join(
            name
            for name, group in (
                (cell["row"], experiment.rows),
                (cell["column"], experiment.columns),
            )
            if len(group) > 1
        )
        for method, stored in cell["methods"].items():
            metric = metrics_in(stored).main
            tested, per = tested_rounds(stored, metric.name), f"{metric.name}-per-task"
            unit = 100 if metric.is_share else 1
            tasks = {task for one in tested.values() for task in one.get(per, {})}
            for task in sorted(tasks, key=int) if per_task else [""]:
                curve = {
                    number: unit * (one[per][task] if task else one[metric.name])
                    for number, one in tested.items()
                }
                up = f"{metric.head} in task {int(task) + 1}" if task else metric.head
                panel = found.setdefault((title, up), {})
                panel.setdefault(method, []).append(curve)
    panels = {}
    for name, methods in found.items():
        lines = {}
        for method in experiment.methods():
            if curves := methods.get(method):
                rounds = sorted(set.intersection(*(set(curve) for curve in curves)))
                values = np.array([[curve[number] for number in rounds] for curve in curves])
                lines[method] = (np.array(rounds, float), values)
        panels[name] = lines
    return pictures.lines_figure(experiment.title, panels, "round")
