"""What was published and what was measured again, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.dots import over_words
from fl_app.report.pictures.figure import Spec, colours, in_panels, picture, shapes
from fl_app.report.pictures.style import MUTED, WIDTH, Style, strategy_styles

Stated = Mapping[str, tuple[float, float | None]]
"""By strategy, a mean and its standard deviation, if any."""
Group = tuple[str, Stated, Mapping[str, NDArray[np.float64]]]
"""A name, what was published, and what was measured: by strategy, a value per seed."""


def published_figure(title: str, panels: Mapping[str, Sequence[Group]], up: str) -> Spec:
    """Draw a panel for each row of a table: hollow marks are the paper's, full ones ours.

    Parameters
    ----------
    title : str
    panels : mapping of str to sequence of Group
        The columns of each row. Lines are one standard deviation to either side.
    up : str
        What is measured, with its unit.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    names = dict.fromkeys(
        name
        for groups in panels.values()
        for _, stated, measured in groups
        for name in (*stated, *measured)
    )
    styles = strategy_styles(names)
    published = any(stated for groups in panels.values() for _, stated, _ in groups)
    sides = ("paper", "ours") if published else ("ours",)
    slots = [f"{whose} of {name}" for name in styles for whose in sides]
    axis: Spec = {"type": "quantitative", "title": up, "axis": {"tickCount": 5}}
    axis["scale"] = {"zero": False, "padding": 8}
    parts = []
    for panel, groups in panels.items():
        rows = [row for group in groups for row in _rows_of(*group)]
        encoding = over_words(styles, slots, [name for name, _, _ in groups], "", WIDTH)
        spread = {**encoding, "y": {**axis, "field": "low"}, "y2": {"field": "high"}}
        del spread["shape"]
        layers: list[Spec] = [{"mark": {"type": "rule", "aria": False}, "encoding": spread}]
        layers += [
            {
                "transform": [{"filter": f"datum.whose == '{whose}'"}],
                "mark": {"type": "point", "filled": full, "size": 45, "opacity": 1, "aria": False},
                "encoding": {**encoding, "y": {**axis, "field": "mean"}},
            }
            for whose, full in (("paper", False), ("ours", True))
        ]
        parts.append((panel, {"data": {"values": rows}, "layer": layers}))
    note = "hollow: the paper; full: measured here; " if published else ""
    note += "lines: one standard deviation to either side"
    return picture(title, note, styles, **in_panels(parts, 1, 120))


Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""What was published and what was measured, by what they are numbers of."""


def agreement_figure(title: str, panels: Mapping[str, Pairs]) -> Spec:
    """Draw each published number against the one measured again, and the line where they agree.

    Parameters
    ----------
    title : str
    panels : mapping of str to Pairs
        By what they are, with its unit. Where the largest is more than a hundred times the
        smallest, axes are logarithmic.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    styles = strategy_styles(dict.fromkeys(name for series in panels.values() for name in series))
    parts = [(unit, _agreement(series, styles)) for unit, series in panels.items()]
    note = "a mark for each method in each cell of a table; below the line, ours is lower"
    return picture(title, note, styles, **in_panels(parts, 2, 165))


def _agreement(series: Pairs, styles: Mapping[str, Style]) -> Spec:
    rows: list[Spec] = [
        {"series": name, "paper": paper, "ours": ours}
        for name, pairs in series.items()
        for paper, ours in pairs
    ]
    known = [row[whose] for row in rows for whose in ("paper", "ours")]
    ends = [min(known), max(known)]
    kind = "log" if 0 < 100 * ends[0] < ends[1] else "linear"
    axis: Spec = {"type": "quantitative", "axis": {"tickCount": 5}}
    axis["scale"] = {"type": kind, "domain": ends, "nice": True}
    x: Spec = {**axis, "field": "paper", "title": "published"}
    y: Spec = {**axis, "field": "ours", "title": "measured here"}
    line: Spec = {
        "data": {"values": [{"paper": end, "ours": end} for end in ends]},
        "mark": {"type": "line", "color": MUTED, "strokeDash": [4, 3], "aria": False},
        "encoding": {"x": x, "y": y},
    }
    points: Spec = {
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.75, "aria": False},
        "encoding": {"x": x, "y": y, "color": colours(styles), "shape": shapes(styles)},
    }
    return {"layer": [line, points]}


def _rows_of(word: str, stated: Stated, measured: Mapping[str, NDArray[np.float64]]) -> list[Spec]:
    found = [("paper", name, *numbers) for name, numbers in stated.items()]
    for name, values in measured.items():
        if len(values):
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            found.append(("ours", name, float(values.mean()), std))
    return [
        {
            **{"word": word, "series": name, "whose": whose, "slot": f"{whose} of {name}"},
            **{"mean": mean, "low": mean - (std or 0.0), "high": mean + (std or 0.0)},
        }
        for whose, name, mean, std in found
    ]
