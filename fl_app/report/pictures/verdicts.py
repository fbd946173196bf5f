"""What each client gains over staying alone: a bar for what it can be, a dot for what was seen."""

from __future__ import annotations

from collections.abc import Sequence

from fl_app.report.pictures.figure import Spec, picture, told_apart
from fl_app.results.verdict import WORDS, Verdict, gain_text, unit_of
from fl_core.metrics import Metric

_COLOURS = ("#0072b2", "#009e73", "#d55e00", "#8a8a8a")
_ROW = 16  # points
_LONGEST = 40
_MOST = 100  # clients; verdicts.csv has all


def verdicts_figure(verdicts: Sequence[Verdict], names: Sequence[str], metric: Metric) -> Spec:
    """Draw a row for each client, the first ones: its gain over staying alone, by its verdict.

    Parameters
    ----------
    verdicts : sequence of Verdict
    names : sequence of str
        What to call the clients, by index.
    metric : Metric
        In whose unit gains are; shares are drawn in points.
    """
    factor = 100 if metric.is_share else 1
    called = told_apart(names, _LONGEST)
    rows = [
        {
            "client": called[one.client],
            "verdict": one.verdict,
            "model": one.model,
            "gain": factor * one.gain[0],
            "low": factor * one.gain[1],
            "high": factor * one.gain[2],
            "said": gain_text(metric, one.gain),
        }
        for one in verdicts[:_MOST]
    ]
    title = f"gain over staying alone, {unit_of(metric)}"
    across = {"type": "quantitative", "title": title, "axis": {"tickCount": 6}}
    colour = {
        "field": "verdict",
        "type": "nominal",
        "scale": {"domain": list(WORDS), "range": list(_COLOURS)},
        "title": None,
    }
    limit = {"labelLimit": 260}
    down = {"field": "client", "type": "nominal", "title": None, "sort": None, "axis": limit}
    tooltip = [{"field": key} for key in ("client", "verdict", "model", "said")]
    layers = [
        {
            "data": {"values": [{"nothing": 0}]},
            "mark": {"type": "rule", "strokeDash": [3, 3]},
            "encoding": {"x": {"field": "nothing", "type": "quantitative"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 3},
            "encoding": {
                "x": {"field": "low", **across},
                "x2": {"field": "high"},
                "y": down,
                "color": colour,
                "tooltip": tooltip,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 55, "stroke": "white"},
            "encoding": {
                "x": {"field": "gain", **across},
                "y": down,
                "color": colour,
                "tooltip": tooltip,
            },
        },
    ]
    return picture(
        "What each client gains over staying alone",
        "by its validation samples; the bar is the interval that its verdict rests on"
        + (f"; the first {_MOST} of {len(verdicts)}" if len(verdicts) > _MOST else ""),
        WORDS,
        height=_ROW * len(rows),
        data={"values": rows},
        layer=layers,
    )
