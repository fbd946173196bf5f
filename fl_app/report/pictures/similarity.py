"""The relevance between all clients, with the tree and the clusters made from it."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import LEGEND, Spec, channel, layer, picture, unique_labels
from fl_app.report.pictures.style import FAINT, GRID, INK, MUTED, cluster_colour, task_colour
from fl_core.text import listed

MOST_CELLS = 120  # of more clients, neighbours in the tree share a cell

_Strip = tuple[str, Sequence[int], Callable[[int], str], Mapping[int, str]]
_TREE, _STRIP, _GAP = 0.2, 0.03, 0.012  # of the side of the matrix
_COLOURS = ("#ffffd9", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#0c2c84")
_MOST_NAMES = 25  # beside the rows; of more, every second, third …
_LETTERS = 14  # of such a name, without its number


def similarity_figure(
    similarity: NDArray[np.float64],
    merges: NDArray[np.float64],
    clusters: Sequence[int],
    tasks: Sequence[int] | None,
    task_names: Sequence[str] | None = None,
    measure: str = "relevance",
    client_names: Sequence[str] | None = None,
) -> Spec:
    """Draw the similarity of all clients, (K, K), with the tree and the clusters made from it.

    Rows and columns follow the leaves of the tree, so that clusters are blocks on the diagonal; the
    arguments are by client index. `merges`, (n − 1, 4), is SciPy's linkage matrix of the first
    n ≤ K clients; of shape (0, 4): there is no tree, and the order is by cluster.
    """
    count = len(similarity)
    names = [str(c) for c in range(count)] if client_names is None else client_names
    order, links = _tree(merges, clusters)
    side = math.ceil(count / math.ceil(count / MOST_CELLS))
    blocks = [block.tolist() for block in np.array_split(np.array(order), side)]
    values = _block_means(similarity, blocks)
    labels = [listed([names[client] for client in block], 3, ", ") for block in blocks]
    beside = unique_labels(labels, _LETTERS) if side == count else []
    # The width of the names beside the rows, as a share of the side.
    left = 0.03 + 0.017 * max(map(len, beside), default=1)
    scale = side / count  # the tree and the strips count clients, the matrix cells
    layers = _cells(values, labels, measure, colour_range(values))
    framed = [
        {"x": start, "x2": stop, "y": start, "y2": stop}
        for _, start, stop in _runs_of_equals([clusters[block[0]] for block in blocks])
    ]
    layers += [  # visible on dark and on light cells
        _rects(framed, {"filled": False, "stroke": colour, "strokeWidth": width})
        for colour, width in (("white", 3), (INK, 1.5))
    ]
    top = 0.0
    numbers = {c: "left out" if c < 0 else str(c) for c in sorted(set(clusters))}
    strips: list[_Strip] = [("cluster", clusters, cluster_colour, numbers)]
    if tasks is not None:
        called = {t: f"task {t}" if task_names is None else task_names[t] for t in sorted({*tasks})}
        strips.append(("true task", tasks, task_colour, called))
    for title, of_client, colour_of, words in strips:
        top += _GAP
        rows = [
            {"x": scale * start, "x2": scale * stop, "name": words[one]}
            | {"y": -side * (top + _STRIP), "y2": -side * top}
            for one, start, stop in _runs_of_equals([of_client[client] for client in order])
        ]
        colours = [colour_of(one) for one in words]
        names_scale = {"domain": list(words.values()), "range": colours}
        legend = {**LEGEND, "title": title} if len({*colours}) == len(words) else None
        fill = channel("name:N", sort=None, scale=names_scale, legend=legend)
        layers.append(_rects(rows, {}, fill=fill, tooltip=channel("name:N", title)))
        top += _STRIP
    notes = [f"frames: {len(numbers)} cluster{'s' * (len(numbers) > 1)}"]
    if measure == "consensus":
        notes.append("consensus: the share of resamples in which two are in one cluster")
    if links:
        layers += _branches(links, side, top + _GAP, scale)
        top += _GAP + _TREE
        notes.append("grey branches join clusters")
    if len(merges) and (first := scale * (len(merges) + 1)) < side:
        ends = [(first, first, 0, side), (0, side, first, first)]
        rows = [dict(zip(("x", "x2", "y", "y2"), one, strict=True)) for one in ends]
        look = {"strokeDash": [3, 2], "strokeWidth": 1.2, "color": INK}
        layers.append(layer("rule", rows, look, x2=channel("x2"), y2=channel("y2")))
        notes.append("beyond the dashes: joined later, not in the tree")
    if beside:
        rows = [{"x": -0.01 * side, "y": y + 0.5, "name": one} for y, one in enumerate(beside)]
        limit = {"expr": f"width * {0.9 * left / (1 + left):.4f}"}
        shown = rows[:: math.ceil(side / _MOST_NAMES)]
        layers.append(_texts(shown, "name", {"align": "right", "limit": limit}))
    order_by = "the merge tree" if links else "cluster"
    title = f"{measure[0].upper()}{measure[1:]} between clients, ordered by {order_by}"
    drawn = _placed(layers, (-left * side, side), (-top * side, side))
    drawn["usermeta"]["renderer"] = "canvas" if side > 30 else "svg"
    return picture(title, "; ".join(notes), [*strips[-1][3].values()], **drawn)


def _runs_of_equals(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (value, start, stop) of each run of equal values."""
    ends = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(values[start], start, stop) for start, stop in pairwise(ends)]


def colour_range(similarity: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of colours in steps of 0.05, without the lowest hundredth of the pairs."""
    pairs = similarity[~np.eye(len(similarity), dtype=bool) & np.isfinite(similarity)]
    if pairs.size == 0:
        return 0.0, 1.0
    # 1e-9, since 0.45 is not exactly 9 steps of 0.05, and would take a step more.
    low = math.floor(np.percentile(pairs, 1) / 0.05 + 1e-9)
    high = max(math.ceil(pairs.max() / 0.05 - 1e-9), low + 1)
    return low / 20, high / 20


def _branches(
    links: Sequence[tuple[list[float], list[float], bool]], side: int, above: float, scale: float
) -> list[Spec]:
    """Return the tree, with the distances of its lowest and its highest point."""
    highest = max((height for _, heights, _ in links for height in heights), default=0.0)
    rows = [
        {
            "link": number,
            "corner": corner,
            "x": round(x * scale, 4),
            "y": round(-side * (above + 0.92 * _TREE * height / (highest or 1.0)), 4),
            "colour": FAINT if joins else INK,
        }
        for number, (across, heights, joins) in enumerate(links)
        for corner, (x, height) in enumerate(zip(across, heights, strict=True))
    ]
    branches = layer(
        "line",
        rows,
        {"strokeWidth": 1.2},
        detail=channel("link:N"),
        order=channel("corner:Q"),
        stroke=channel("colour:N", scale=None),
    )
    numbers = [
        {"x": -0.01 * side, "y": -side * (above + 0.92 * _TREE * share), "said": f"{value:.2f}"}
        for share, value in ((0, 0.0), (1, highest))
    ]
    return [branches, _texts(numbers, "said", {"align": "right", "color": MUTED})]


def _tree(
    merges: NDArray[np.float64], clusters: Sequence[int]
) -> tuple[list[int], list[tuple[list[float], list[float], bool]]]:
    """Return the clients in the order of the tree's leaves, and its links, leaf n at n + 1/2.

    Of each link its corners' places and heights, and whether it joins clusters.
    """
    from scipy.cluster.hierarchy import leaves_list  # noqa: PLC0415 - slow to load

    late_from = len(merges) + 1 if len(merges) else 0
    late = sorted(range(late_from, len(clusters)), key=lambda client: clusters[client])
    if not len(merges):
        return late, []
    members = [{cluster} for cluster in clusters[: len(merges) + 1]]
    leaves: list[int] = leaves_list(merges).tolist()
    # Not by SciPy's dendrogram, which calls itself and fails where a tree is deep.
    places = [0.0] * len(leaves)
    for place, leaf in enumerate(leaves):
        places[leaf] = place + 0.5
    heights = [0.0] * len(leaves)
    links = []
    for left, right, height in merges[:, :3].tolist():
        a, b = int(left), int(right)
        members.append(members[a] | members[b])
        corners = [places[a], places[a], places[b], places[b]]
        links.append((corners, [heights[a], height, height, heights[b]], len(members[-1]) > 1))
        places.append((places[a] + places[b]) / 2)
        heights.append(height)
    return [*leaves, *late], links


def _rects(rows: Sequence[Any], look: Spec, **encoding: Any) -> Spec:
    """Return a layer of rectangles, each from (x, y) to (x2, y2)."""
    return layer("rect", rows, look, x2=channel("x2"), y2=channel("y2"), **encoding)


def _placed(
    layers: Sequence[Spec], across: tuple[float, float], up: tuple[float, float]
) -> dict[str, Any]:
    """Return layers with the place of each mark, over these ranges of cells, and their ratio."""
    fixed = {"nice": False, "zero": False}
    x = channel("x:Q", axis=None, scale={**fixed, "domain": list(across)})
    y = channel("y:Q", axis=None, scale={**fixed, "domain": list(up), "reverse": True})
    return {
        "layer": [{**one, "encoding": {"x": x, "y": y, **one["encoding"]}} for one in layers],
        "resolve": {"scale": {"fill": "independent", "stroke": "independent"}},
        "usermeta": {"ratio": (up[1] - up[0]) / (across[1] - across[0])},
    }


def _cells(
    values: NDArray[np.float64], names: Sequence[str], measure: str, limits: tuple[float, float]
) -> list[Spec]:
    """Return the matrix as layers of numbers, with the names looked up by index."""
    side = len(values)
    # A number is short for {"data": number}; Vega knows no such short form of null.
    numbers: list[float | Spec] = [
        {"data": None} if math.isnan(value) else round(value, 3)
        for value in values.ravel().tolist()
    ]
    labels = {"values": [{"place": place, "name": name} for place, name in enumerate(names)]}
    source = {"data": labels, "key": "place", "fields": ["name"]}
    scale = {"domain": list(limits), "range": list(_COLOURS), "clamp": True}
    legend = {"title": measure, "gradientLength": 160, "gradientThickness": 8}
    drawn = _rects(
        numbers,
        {"strokeWidth": 0},
        color=channel("data:Q", scale=scale, legend=legend),
        tooltip=[
            channel("row:N", "client"),
            channel("column:N", "and"),
            channel("data:Q", measure, format=".3f"),
        ],
    )
    drawn["transform"] = [
        {"window": [{"op": "row_number", "as": "number"}]},
        {"calculate": f"(datum.number - 1) % {side}", "as": "x"},
        {"calculate": f"floor((datum.number - 1) / {side})", "as": "y"},
        # A little more than a cell, or the ground would shine through between them.
        {"calculate": f"min(datum.x + 1.04, {side})", "as": "x2"},
        {"calculate": f"min(datum.y + 1.04, {side})", "as": "y2"},
        {"lookup": "y", "from": source, "as": ["row"]},
        {"lookup": "x", "from": source, "as": ["column"]},
    ]
    return [_rects([{"x": 0, "x2": side, "y": 0, "y2": side}], {"color": GRID}), drawn]


def _texts(rows: Sequence[Spec], field: str, look: Spec, **encoding: Any) -> Spec:
    """Return a layer of texts, each with its middle at the height of (x, y)."""
    look = {"baseline": "middle", **look}
    return layer("text", rows, look, text=channel(f"{field}:N"), **encoding)


def _block_means(
    values: NDArray[np.float64], blocks: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the mean of each pair of blocks, (n, n); NaN where no value is known."""
    if all(len(block) == 1 for block in blocks):
        order = [client for block in blocks for client in block]
        return values[np.ix_(order, order)]
    members = np.zeros((len(blocks), len(values)))
    for place, block in enumerate(blocks):
        members[place, block] = 1
    known = np.isfinite(values)
    counts = members @ known @ members.T
    sums = members @ np.where(known, values, 0) @ members.T
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
