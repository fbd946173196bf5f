"""Vega-Lite specifications of pictures: parts, axes, legends and files.

Names are values in the data of a specification, never parts of an expression.
"""

import io
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from fl_app.report.pictures import style
from fl_core.extras import load_extra
from fl_core.files import replacing
from fl_core.metrics import Metric
from fl_core.text import printable

Spec = dict[str, Any]

_TITLE_LETTERS, _NOTE_LETTERS = 60, 108  # that are as wide as a picture
_AXIS, _TITLE, _BETWEEN = 28, 14, 12  # points beside a panel: its axis, the axis' title, the gap
_PPI = 150.05  # pixels per inch: a picture is 900 wide, not 899
_SQUARE = 375  # points that a picture of about the same height is wide
_LETTER, _SYMBOL, _LEFT = 4.8, 36, 40  # of a legend, in points: a letter, and beside a name, all
# On a page, with larger letters, its script sets how many columns and letters a legend has.
_PAPER_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first is that of vl-convert
_PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
_IN_LINES = (  # after a blank, and a word that is longer than a line, anywhere
    "split(trim(replace(datum.label, regexp('(.{1,' + letters + '})( |$)|(.{' + letters + '})', "
    "'g'), '$1$3\\n')), '\\n')"
)
_LAST_DIGIT = 1e-4  # of a number that is `rounded`, at most
_PERCENT = "datum.value < 0 || datum.value > 1 ? '' : format(100 * datum.value, '.0f') + '\\u202f%'"
_IDS = re.compile(r"(?:gradient|clip)_?\d+")
_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
POINT: Spec = {"filled": True, "opacity": 1}  # the look of an opaque point
LEGEND: Spec = {"labelExpr": _IN_LINES}
"""The legend of names, in lines of so many letters that none is cut."""


def picture(title: str, note: str = "", names: Iterable[str] = (), **parts: Any) -> Spec:
    """Return a Vega-Lite specification with a title, a note, and the `names` of its legend."""
    shown = _title(title, note.splitlines())
    found: Spec = with_texts(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "description": " ".join(shown["text"]),
            "title": shown,
            "params": [{"name": "letters", "value": 60}],
            **parts,
            "usermeta": {"longest": max(map(len, names), default=1), **parts.get("usermeta", {})},
        },
        _harmless,
    )
    return found


def _harmless(text: str) -> str:
    """Return printable lines: other characters crash vl-convert."""
    return "\n".join(map(printable, text.split("\n")))


def with_texts(part: Any, change: Callable[[str], str]) -> Any:
    """Return a part of a description with changed texts."""
    if isinstance(part, str):
        return change(part)
    if isinstance(part, dict):
        return {key: with_texts(value, change) for key, value in part.items()}
    return [with_texts(one, change) for one in part] if isinstance(part, list | tuple) else part


def channel(shorthand: str, *title: str | None, **more: Any) -> Spec:
    """Return the encoding by a field, such as "score:Q", "name:N" or "place:O".

    Its title is the field's name where none is given; None: it has no title.
    """
    field, _, kind = shorthand.partition(":")
    typed = {"type": _TYPES[kind]} if kind else {}
    return {"field": field, **typed, **dict(zip(["title"], title, strict=False)), **more}


def layer(mark: str, rows: Sequence[Any] | None, look: Spec, **encoding: Any) -> Spec:
    """Return a layer of marks over rows; None: over those of the picture."""
    data = {} if rows is None else {"data": {"values": list(rows)}}
    return {**data, "mark": {"type": mark, **look}, "encoding": encoding}


def by_series(styles: Mapping[str, style.Style], look: str, **legend: Any) -> Spec:
    """Return the encoding of series by a field of their style, such as "colour", with a legend."""
    shown = [getattr(one, look) for one in styles.values()]
    scale = {"type": "ordinal", "domain": list(styles), "range": shown}
    return channel("series:N", scale=scale, legend={**LEGEND, **legend})


def on_page(spec: Spec) -> tuple[str, str, Spec]:
    """Return a picture's title, its note as a sentence, and the specification for a page."""
    title = spec["title"]
    rest = {key: value for key, value in spec.items() if key != "title"}
    rest |= {"autosize": {"type": "fit-x", "contains": "padding"}, "padding": 4}
    rest["config"] = _config(_PAGE_FONT, 12, 12, style.MUTED, "transparent")
    note = " ".join(title.get("subtitle", []))
    return " ".join(title["text"]), f"{note[:1].upper()}{note[1:]}." if note else "", rest


def on_paper(spec: Spec, width: float = style.WIDTH) -> Spec:
    """Return the specification for a paper, on white, so many points wide."""
    longest, ratio = (spec["usermeta"].get(key) for key in ("longest", "ratio"))
    config = _config(_PAPER_FONT, style.SMALL_SIZE, style.LABEL_SIZE, style.INK, "white")
    letters = min(longest, 30)
    columns = max(1, min(6, int(width / (_LETTER * letters + _SYMBOL))))
    # A legend begins where its panel does, to the right of the axis.
    letters = max(letters, int(((width - _LEFT) / columns - _SYMBOL) / _LETTER))
    config["legend"]["columns"] = columns
    paper = {**spec, "config": config, "params": [{"name": "letters", "value": letters}]}
    share = width / style.WIDTH
    if share != 1:
        text, below = (" ".join(spec["title"].get(part, ())) for part in ("text", "subtitle"))
        paper["title"] = _title(text, [below], share)
    wide = width if ratio is None else _SQUARE * share
    if "layer" in spec:
        paper |= {"width": wide, "autosize": {"type": "fit-x", "contains": "padding"}}
    return paper if ratio is None else {**paper, "height": round(ratio * wide)}


def _title(title: str, notes: Sequence[str], share: float = 1) -> Spec:
    """Return a title, and in small letters notes, in lines that fit a share of the usual width."""
    lines = textwrap.wrap(title, int(_TITLE_LETTERS * share)) or [""]
    below = [one for note in notes for one in textwrap.wrap(note, int(_NOTE_LETTERS * share))]
    return {"text": lines, **({"subtitle": below} if below else {})}


def _config(font: str, small: float, label: float, ink: str, background: str) -> Spec:
    """Return the look of all pictures: fonts, their sizes, and the colours of axes and ground."""
    return {
        "background": background,
        "font": font,
        "view": {"stroke": None},
        "mark": {"aria": False},  # the page describes the picture as a whole
        "axis": {
            "domainColor": style.MUTED,
            "tickColor": style.MUTED,
            "gridColor": style.GRID,
            "gridWidth": 0.8,
            "labelColor": ink,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "labelFontSize": small,
            "titleFontSize": label,
            "tickSize": 3,
            # By default, one that overlaps its neighbour costs every other label.
            "labelOverlap": "greedy",
        },
        "legend": {
            "orient": "bottom",
            "offset": 10,
            "title": None,
            "labelColor": style.INK,
            "labelFontSize": small,
            "labelLimit": 0,
            "titleColor": style.INK,
            "titleFontSize": small,
            "titleFontWeight": "normal",
            "titleLimit": 0,
            "symbolOpacity": 1,
            "symbolSize": 5 * small,
            "columnPadding": 12,
            "rowPadding": 2,
            "layout": {"bottom": {"direction": "vertical", "margin": 5, "anchor": "start"}},
        },
        "text": {"fontSize": small, "color": style.INK},
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "fontSize": style.TITLE_SIZE,
            "subtitleFontSize": style.SMALL_SIZE,
            "subtitleColor": style.MUTED,
            "color": style.INK,
            "limit": 0,
        },
        "concat": {"spacing": _BETWEEN},
    }


def rename_strategy(text: str, names: Mapping[str, str]) -> str:
    """Return a text that begins with a strategy, with another name for that."""
    parts = re.split(r"(\n| · )", text, maxsplit=1)
    return "".join([names.get(parts[0], parts[0]), *parts[1:]])


def save(spec: Spec, path: Path, width: float = style.WIDTH) -> Path:
    """Write a PNG, PDF or SVG file, so many points wide, by the ending of its path; return that.

    The same picture gives the same bytes each time, but for the order of a PDF's parts.
    """
    converter = load_extra("vl_convert", "a picture")
    svg = _widened(converter.vegalite_to_svg(on_paper(spec, width)), width)
    # Vega counts what it refers to over all pictures of a process.
    found = {name: f"{name[:4]}-{place}" for place, name in enumerate(_IDS.findall(svg))}
    svg = _IDS.sub(lambda one: found[one[0]], svg)
    with replacing(path) as partial:
        if path.suffix == ".png":
            drawn = Image.open(io.BytesIO(converter.svg_to_png(svg, ppi=_PPI)))
            drawn.convert("RGB").save(partial, "PNG", dpi=(150, 150))  # a quarter of the bytes
        elif path.suffix == ".pdf":
            partial.write_bytes(converter.svg_to_pdf(svg))
        else:
            partial.write_text(svg, encoding="utf-8")
    return path


def _widened(svg: str, width: float) -> str:
    """Return a drawing on a background of the common width, which panels rarely fill."""
    found = re.match(r'(<svg [^>]*)width="([^"]+)" height="([^"]+)" viewBox="[^"]+">', svg)
    if found is None or float(found[2]) >= width:
        return svg
    size = f'width="{width:g}" height="{found[3]}"'
    ground = f'<rect {size} fill="white"/>'
    return f'{found[1]}{size} viewBox="0 0 {width:g} {found[3]}">{ground}{svg[found.end() :]}'


def score_axis(
    field: str, metric: Metric, values: Sequence[ArrayLike], title: str | None = None
) -> Spec:
    """Return the encoding of a metric over its range; shares are in percent, over ten points."""
    known = np.concatenate([np.empty(0), *map(np.ravel, values)])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    axis: Spec = {"tickCount": 6}
    if metric.is_share:
        axis |= {"labelExpr": _PERCENT, "tickMinStep": 0.01}
        pad = max(0.03 * (high - low), (0.1 - (high - low)) / 2 + 0.003)
        # A little beyond 0 and 100 %, so that dots there are not cut.
        domain = [max(low - pad, -0.02), min(high + pad, 1.02)]
    else:
        pad = 0.03 * (high - low) or 0.03 * abs(high) or 1.0
        pad = max(pad, _LAST_DIGIT * max(abs(low), abs(high)))  # or rounding leaves no room
        domain = [low - pad, high + pad]
    scale = {"domain": [rounded(end) for end in domain], "nice": False, "zero": False}
    text = f"test {metric.title}" if title is None else title
    return channel(f"{field}:Q", text, axis=axis, scale=scale)


def score_form(metric: Metric) -> str:
    """Return the format of a metric's values in tooltips."""
    return ".1%" if metric.is_share else ".4r"


def in_panels(panels: Sequence[tuple[str, Spec]], most: int, height: float) -> Spec:
    """Return panels with titles, at most `most` in a row; one without a title fills the picture."""
    if len(panels) == 1 and not panels[0][0]:
        return {**panels[0][1], "height": 2 * height}
    columns = min(most, len(panels))
    width = (style.WIDTH - 12 + _BETWEEN) / columns - _AXIS - _TITLE - _BETWEEN
    title = {"fontSize": style.LABEL_SIZE, "fontWeight": "normal", "frame": "group"}
    parts = []
    for name, part in panels:
        lines = textwrap.wrap(name, int(width / 4.5)) or [""]
        parts.append({**part, "width": width, "height": height, "title": {"text": lines, **title}})
    return {"columns": columns, "concat": parts}


def rounded(value: float) -> float:
    """Return a number with as many digits as a picture shows."""
    return float(f"{value:.5g}")


def shorten(name: str, longest: int) -> str:
    """Return a printable name without its middle, since names often differ at their ends."""
    name, half = printable(name), longest // 2
    return name if len(name) <= longest else f"{name[: half - 1]}…{name[-half:]}"


def unique_labels(names: Sequence[str], longest: int) -> list[str]:
    """Return names for an axis, shortened, with their index where two would be the same."""
    short = [shorten(name, longest) for name in names]
    counts = Counter(short)
    return [f"{one} ({k})" if counts[one] > 1 else one for k, one in enumerate(short)]
