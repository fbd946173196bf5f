"""Where the time of a device's rounds goes: a bar for each, with a part for each kind."""

from __future__ import annotations

from collections.abc import Mapping

from fl_app.report.device_times import TIMES
from fl_app.report.pictures import style
from fl_app.report.pictures.figure import LEGEND, Spec, picture, told_apart

_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", style.FAINT)
_ROW = 20  # points
_LONGEST = 30
_MOST = 25  # devices


def device_times_figure(seconds: Mapping[str, Mapping[str, float]]) -> Spec:
    """Draw a bar for each device, those with most seconds of their own first.

    Parameters
    ----------
    seconds : mapping of str to mapping of str to float
        By device: its seconds in all rounds together, by the names of `TIMES`.

    Raises
    ------
    ValueError
        If there is no device.
    """
    if not seconds:
        raise ValueError("there is no device to draw")

    def own(name: str) -> float:
        return sum(value for part, value in seconds[name].items() if part != "waiting")

    shown = sorted(seconds, key=own, reverse=True)[:_MOST]
    called = told_apart(shown, _LONGEST)
    rows = [
        {
            "device": device,
            "what": said,
            "seconds": round(seconds[name][part], 3),
            "order": order,
        }
        for name, device in zip(shown, called, strict=True)
        for order, (part, said) in enumerate(TIMES.items())
    ]
    left_out = len(seconds) - len(shown)
    return picture(
        "Where the time of devices' rounds goes",
        "all rounds together, by the server's clock and by what devices say with their answers"
        + (f"; {left_out:,} with less of their own are left out" if left_out else ""),
        TIMES.values(),
        height=_ROW * len(shown),
        data={"values": rows},
        mark={"type": "bar", "height": {"band": 0.75}},
        encoding={
            "x": {"field": "seconds", "type": "quantitative", "title": "seconds"},
            "y": {
                "field": "device",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"labelLimit": 200},
            },
            "color": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(TIMES.values()), "range": list(_COLOURS)},
                "legend": LEGEND,
            },
            "order": {"field": "order"},
            "tooltip": [{"field": name} for name in ("device", "what", "seconds")],
        },
    )
