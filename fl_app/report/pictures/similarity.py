"""The relevance between all clients, with the tree and the clusters made from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    LEGEND,
    Spec,
    channel,
    layer,
    picture,
    runs_of_equals,
)
from fl_app.report.pictures.matrix import (
    block_means,
    cells,
    frames,
    names_beside,
    placed,
    rects,
    room_of,
    texts,
)
from fl_app.report.pictures.style import FAINT, INK, MUTED, cluster_colour, task_colour

MOST_CELLS = 120
"""Of more clients, neighbours in the tree share a cell."""

_Strip = tuple[str, Sequence[int], Callable[[int], str], Mapping[int, str]]
_TREE, _STRIP, _GAP = 0.2, 0.03, 0.012  # of the side of the matrix


def similarity_figure(
    similarity: NDArray[np.float64],
    merges: NDArray[np.float64],
    clusters: Sequence[int],
    tasks: Sequence[int] | None,
    task_names: Sequence[str] | None = None,
    measure: str = "relevance",
    client_names: Sequence[str] | None = None,
) -> Spec:
    """Draw the relevance between all clients, with the tree and the clusters made from it.

    Rows and columns follow the leaves of the tree, so that clusters are blocks on the diagonal.
    That order is for this picture only: every argument is by client index.

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (K, K)
        Of each pair of clients; NaN where it is not known.
    merges : NDArray[np.float64], shape (n − 1, 4)
        SciPy linkage matrix of the first n ≤ K clients. The others came later.
    clusters : sequence of K int
    tasks : sequence of K int, optional
        The true task of each client.
    task_names : sequence of str, optional
        Task t is `task_names[t]`. By default "task 0", "task 1" ...
    measure : str
        What `similarity` is.
    client_names : sequence of K str, optional
        By default, their indices.
    """
    count = len(similarity)
    names = [str(c) for c in range(count)] if client_names is None else client_names
    order, links = _tree(merges, clusters)
    side = math.ceil(count / math.ceil(count / MOST_CELLS))
    blocks = [block.tolist() for block in np.array_split(np.array(order), side)]
    values = block_means(similarity, blocks)
    labels = [_joined([names[client] for client in block]) for block in blocks]
    left = room_of(labels) if side == count else 0.05
    scale = side / count  # the tree and the strips count clients, the matrix cells
    layers = cells(values, labels, measure, colour_range(values))
    layers += frames([clusters[block[0]] for block in blocks])

    top = 0.0
    numbers = {c: "left out" if c < 0 else str(c) for c in sorted(set(clusters))}
    strips: list[_Strip] = [("cluster", clusters, cluster_colour, numbers)]
    if tasks is not None:
        called = {t: f"task {t}" if task_names is None else task_names[t] for t in sorted({*tasks})}
        strips.append(("true task", tasks, task_colour, called))
    for title, of_client, colour, words in strips:
        top += _GAP
        rows = [
            {"x": scale * start, "x2": scale * stop, "name": words[one]}
            | {"y": -side * (top + _STRIP), "y2": -side * top}
            for one, start, stop in runs_of_equals([of_client[client] for client in order])
        ]
        colours = [colour(one) for one in words]
        names_scale = {"domain": list(words.values()), "range": colours}
        legend = {**LEGEND, "title": title} if len({*colours}) == len(words) else None
        fill = channel("name:N", sort=None, scale=names_scale, legend=legend)
        layers.append(rects(rows, {}, fill=fill, tooltip=channel("name:N", title)))
        top += _STRIP
    notes = [f"frames: {len(numbers)} cluster{'s' * (len(numbers) > 1)}"]
    if links:
        layers += _branches(links, side, top + _GAP, scale)
        top += _GAP + _TREE
        notes.append("grey branches join clusters")
    if len(merges) + 1 < count:
        layers.append(_lines_before_latecomers(scale * (len(merges) + 1), side))
        notes.append("beyond the dashes: joined later, not in the tree")
    if side == count:
        layers.append(names_beside(labels, left))
    title = f"{measure[0].upper()}{measure[1:]} between clients, ordered by the merge tree"
    drawn = placed(layers, (-left * side, side), (-top * side, side))
    drawn["usermeta"]["renderer"] = "canvas" if side > 30 else "svg"
    return picture(title, "; ".join(notes), [*strips[-1][3].values()], **drawn)


def colour_range(similarity: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of colours over the pairs, in whole steps of 0.05.

    The diagonal and the lowest hundredth of pairs are left out, since one extreme pair would reduce
    the contrast of all others. High pairs all count: many small clusters have few of them.
    """
    pairs = similarity[~np.eye(len(similarity), dtype=bool) & np.isfinite(similarity)]
    if pairs.size == 0:
        return 0.0, 1.0
    # 1e-9, since 0.45 is not exactly 9 steps of 0.05, and would take a step more.
    low = math.floor(np.percentile(pairs, 1) / 0.05 + 1e-9)
    high = max(math.ceil(pairs.max() / 0.05 - 1e-9), low + 1)
    return low / 20, high / 20


def _lines_before_latecomers(first: float, side: int) -> Spec:
    """Return a dashed line before the rows and the columns of clients that came later."""
    rows = [
        {"x": first, "x2": first, "y": 0, "y2": side},
        {"x": 0, "x2": side, "y": first, "y2": first},
    ]
    look = {"strokeDash": [3, 2], "strokeWidth": 1.2, "color": INK}
    return layer("rule", rows, look, x2=channel("x2"), y2=channel("y2"))


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
    return [branches, texts(numbers, "said", {"align": "right", "color": MUTED})]


def _tree(
    merges: NDArray[np.float64], clusters: Sequence[int]
) -> tuple[list[int], list[tuple[list[float], list[float], bool]]]:
    """Return the clients in the order of the tree's leaves, and its links, leaf n at n + 1/2.

    Of each link its corners' places and heights, and whether it joins clusters.
    """
    from scipy.cluster.hierarchy import leaves_list  # noqa: PLC0415 - slow to load

    late = sorted(range(len(merges) + 1, len(clusters)), key=lambda client: clusters[client])
    if not len(merges):
        return [0, *late], []
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


def _joined(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"
