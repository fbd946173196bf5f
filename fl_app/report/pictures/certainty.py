"""How often each pair of clients lands together when their data are drawn again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import Spec, check_shape, picture
from fl_app.report.pictures.matrix import cells, frames, names_beside, placed, rects, room_of
from fl_app.report.pictures.style import GRID, INK, MUTED

MOST_SINGLE = 60
"""More clients than this are drawn as means over clusters."""

_MOST_WRITTEN = 12  # clusters whose numbers are written into the squares
_BARS = 0.16  # of the side of the matrix


def certainty_figure(
    together: NDArray[np.float64],
    clusters: Sequence[int],
    certainty: Sequence[float | None],
    names: Sequence[str],
) -> Spec:
    """Draw in how many resamples each pair of clients lands together, ordered by cluster.

    In a cluster the surest clients come first; beside the squares is how sure each is. Of more
    than `MOST_SINGLE` clients, the means over clusters are drawn.

    Parameters
    ----------
    together : NDArray[np.float64], shape (K, K)
        Shares, in [0, 1].
    clusters : sequence of K int
    certainty : sequence of K float
        In how many resamples each client lands with its own cluster; None or NaN: not known.
    names : sequence of K str
    """
    count = len(clusters)
    check_shape("together", together, (count, count))
    known = np.nan_to_num(np.array(certainty, np.float64))  # what is not known has no bar
    check_shape("certainty", known, (count,))
    if count > MOST_SINGLE:
        numbers, members = np.unique(clusters, return_inverse=True)
        table = _means(together, members)
        labels = [f"{n} ({(members == i).sum()})" for i, n in enumerate(numbers.tolist())]
        sure = [float(known[members == i].mean()) for i in range(len(numbers))]
        rows = "rows: clusters (their clients)"
    else:
        order = sorted(range(count), key=lambda c: (clusters[c], -known[c], c))
        table = together[np.ix_(order, order)]
        labels = [names[client] for client in order]
        sure = known[order].tolist()
        rows = "rows: clients, by cluster"
    side, left = len(table), room_of(labels)
    layers = [*cells(table, labels, "share of resamples together", (0, 1))]
    if count <= MOST_SINGLE:
        layers += frames([clusters[client] for client in order])
    elif side <= _MOST_WRITTEN:
        layers.append(_written(table))
    layers += [_bars([1.0] * side, side, GRID), _bars(sure, side, MUTED)]
    layers.append(names_beside(labels, left))
    note = f"{rows}; bars: certainty, the share of resamples in which each is with its own cluster"
    drawn = placed(layers, (-left * side, (1.04 + _BARS) * side), (0, side))
    return picture("Share of resamples in which each pair is together", note, **drawn)


def _means(together: NDArray[np.float64], members: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean share of two different clients of each two clusters, shape (C, C)."""
    sizes = np.bincount(members)
    own = np.eye(len(sizes))[members]
    sums = own.T @ together @ own - np.diag(own.T @ together.diagonal())
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    found: NDArray[np.float64] = np.divide(sums, pairs, out=np.ones_like(sums), where=pairs > 0)
    return found


def _written(table: NDArray[np.float64]) -> Spec:
    rows = [
        {"x": column + 0.5, "y": row + 0.5, "said": f"{100 * value:.0f}"}
        | {"colour": "white" if value > 0.55 else INK}
        for (row, column), value in np.ndenumerate(table)
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "text", "baseline": "middle", "aria": False},
        "encoding": {
            "text": {"field": "said", "type": "nominal"},
            "stroke": {"value": None},
            "fill": {"field": "colour", "type": "nominal", "scale": None},
        },
    }


def _bars(shares: Sequence[float], side: int, colour: str) -> Spec:
    """Return a bar beside each row; 1 is the whole of their room."""
    rows = [
        {"x": 1.03 * side, "x2": (1.03 + _BARS * share) * side, "y": row + 0.1, "y2": row + 0.9}
        | {"share": share}
        for row, share in enumerate(shares)
    ]
    tooltip = {"field": "share", "type": "quantitative", "title": "certainty", "format": ".0%"}
    return rects(rows, {"color": colour, "tooltip": {"content": "encoding"}}, tooltip=tooltip)
