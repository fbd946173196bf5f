"""An experiment's picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.cells import current_cells
from experiments.experiment_file import OURS, Experiment
from experiments.judging import TableEntry, as_array, measured_of
from fl_app.report import pictures
from fl_app.report.pictures.figure import Spec, by_series, channel, in_panels, layer, picture
from fl_app.report.pictures.points import from_low_to_high
from fl_app.report.pictures.style import MUTED, WIDTH, strategy_styles
from fl_app.sweeps.measures import measure_of, measure_title, tested_rounds
from fl_app.sweeps.store import Cell
from fl_core.metrics import metrics_in

Published = Mapping[str, tuple[float, float | None]]
"""By strategy, a mean and its standard deviation, if any."""
Group = tuple[str, Published, Mapping[str, NDArray[np.float64]]]
"""A name, what was published, and what was measured: by strategy, a value per seed."""
Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""Pairs of a published and a measured number, by series."""


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
        pictures.save(agreement_figure("Published and measured", panels), path)


def _published(experiment: Experiment, cells: Sequence[Cell]) -> Spec:
    """Draw the published beside the measured numbers of the first measure."""
    measured, name = measured_of(experiment, cells), experiment.measures[0]
    methods = experiment.methods()
    panels: dict[str, list[Group]] = {}
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
    return published_figure(experiment.title, panels, measure_title(name))


def _sweep(experiment: Experiment, cells: Sequence[Cell]) -> Spec:
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


def _rounds(experiment: Experiment, cells: Sequence[Cell], *, per_task: bool) -> Spec:
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


def published_figure(title: str, panels: Mapping[str, Sequence[Group]], up: str) -> Spec:
    """Draw a panel for each row of a table: hollow marks are the paper's, full ones ours.

    `panels` have the columns of each row. Lines are one standard deviation to either side.
    """
    names = dict.fromkeys(
        name
        for groups in panels.values()
        for _, published, measured in groups
        for name in (*published, *measured)
    )
    styles = strategy_styles(names)
    has_published = any(published for groups in panels.values() for _, published, _ in groups)
    sides = ("paper", "ours") if has_published else ("ours",)
    slots = [f"{source} of {name}" for name in styles for source in sides]
    y = channel("mean:Q", up, axis={"tickCount": 5}, scale={"zero": False, "padding": 8})
    parts = []
    for panel, groups in panels.items():
        x = _over_words(slots, [name for name, _, _ in groups], "", WIDTH)
        x["color"] = by_series(styles, "colour")
        layers = [from_low_to_high("y", y, {}, x)]
        for source, full in (("paper", False), ("ours", True)):
            look = {"filled": full, "size": 45, "opacity": 1}
            points = layer("point", None, look, **x, y=y, shape=by_series(styles, "mark"))
            layers.append({"transform": [{"filter": f"datum.source == '{source}'"}], **points})
        rows = [row for group in groups for row in _rows_of(*group)]
        parts.append((panel, {"data": {"values": rows}, "layer": layers}))
    note = "hollow: the paper; full: measured here; " if has_published else ""
    note += "lines: one standard deviation to either side"
    return picture(title, note, styles, **in_panels(parts, 1, 120))


def agreement_figure(title: str, panels: Mapping[str, Pairs]) -> Spec:
    """Draw each published number against the measured one, with the line of equality.

    Panels go by what they show, with its unit. Where the largest number is more than a hundred
    times the smallest, axes are logarithmic.
    """
    styles = strategy_styles(dict.fromkeys(name for series in panels.values() for name in series))
    looks = {"color": by_series(styles, "colour"), "shape": by_series(styles, "mark")}
    parts = []
    for unit, series in panels.items():
        rows: list[Spec] = [
            {"series": name, "paper": paper, "ours": ours}
            for name, pairs in series.items()
            for paper, ours in pairs
        ]
        known = [row[source] for row in rows for source in ("paper", "ours")]
        ends = [min(known), max(known)]
        kind = "log" if 0 < 100 * ends[0] < ends[1] else "linear"
        scale = {"type": kind, "domain": ends, "nice": True}
        x = channel("paper:Q", "published", axis={"tickCount": 5}, scale=scale)
        y = channel("ours:Q", "measured here", axis={"tickCount": 5}, scale=scale)
        equal = [{"paper": end, "ours": end} for end in ends]
        line = layer("line", equal, {"color": MUTED, "strokeDash": [4, 3]}, x=x, y=y)
        look = {"filled": True, "size": 22, "opacity": 0.75}
        parts.append((unit, {"layer": [line, layer("point", rows, look, x=x, y=y, **looks)]}))
    note = "a mark for each method in each cell of a table; below the line, ours is lower"
    return picture(title, note, styles, **in_panels(parts, 2, 165))


def _rows_of(
    word: str, published: Published, measured: Mapping[str, NDArray[np.float64]]
) -> list[Spec]:
    numbers = [("paper", name, *stated) for name, stated in published.items()]
    for name, values in measured.items():
        if len(values):
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            numbers.append(("ours", name, float(values.mean()), std))
    return [
        {
            "word": word,
            "series": name,
            "source": source,
            "slot": f"{source} of {name}",
            "mean": mean,
        }
        | {"low": mean - (std or 0.0), "high": mean + (std or 0.0)}
        for source, name, mean, std in numbers
    ]


def _over_words(slots: Sequence[str], words: Sequence[str], across: str, width: float) -> Spec:
    """Return the positions of marks over words, with a slot for each series beside the others."""
    axis = {"labelAngle": 0, "labelOverlap": False, "labelLimit": width / len(words) - 6}
    scale = {"domain": list(words), "paddingInner": 0.15}
    x = channel("word:N", across, sort=None, axis={**axis, "ticks": False}, scale=scale)
    return {"x": x, "xOffset": channel("slot:N", sort=None, scale={"domain": list(slots)})}
