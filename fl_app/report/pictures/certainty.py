"""The share of resamples in which each pair of clients is in one cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import Spec, channel, picture
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
    """Draw the share of resamples in which each pair is together, with the clients' certainty.

    Clients are ordered by cluster, then by certainty. Of more than `MOST_SINGLE` clients, the means
    over clusters are drawn.

    Parameters
    ----------
    together : NDArray[np.float64], shape (K, K)
        Shares, in [0, 1].
    clusters, names : sequence of K int, sequence of K str
    certainty : sequence of K float
        Shares of resamples in which each client is in its cluster; None or NaN: unknown.
    """
    count = len(clusters)
    known = np.nan_to_num(np.array(certainty, np.float64))  # what is not known has no bar
    if count > MOST_SINGLE:
        of_cluster = {one: np.flatnonzero(np.equal(clusters, one)) for one in sorted({*clusters})}
        blocks = [members.tolist() for members in of_cluster.values()]
        labels = [f"{one} ({len(members)})" for one, members in of_cluster.items()]
        pairs = np.where(np.eye(count, dtype=bool), np.nan, together)  # of different clients
        table = np.nan_to_num(block_means(pairs, blocks), nan=1.0)
        marked = [_written(table)] if len(blocks) <= _MOST_WRITTEN else []
        rows = "rows: clusters (their clients)"
    else:
        order = sorted(range(count), key=lambda c: (clusters[c], -known[c], c))
        blocks, labels = [[client] for client in order], [names[client] for client in order]
        table = block_means(together, blocks)
        marked = frames([clusters[client] for client in order])
        rows = "rows: clients, by cluster"
    side, left = len(table), room_of(labels)
    sure = [float(known[block].mean()) for block in blocks]
    layers = [
        *cells(table, labels, "share of resamples together", (0, 1)),
        *marked,
        _bars([1.0] * side, GRID),
        _bars(sure, MUTED),
        names_beside(labels, left),
    ]
    note = f"{rows}; bars: certainty, the share of resamples in which each is with its cluster"
    drawn = placed(layers, (-left * side, (1.04 + _BARS) * side), (0, side))
    return picture("Share of resamples in which each pair is together", note, **drawn)


def _written(table: NDArray[np.float64]) -> Spec:
    rows = [
        {"x": column + 0.5, "y": row + 0.5, "said": f"{100 * value:.0f}"}
        | {"colour": "white" if value > 0.55 else INK}
        for (row, column), value in np.ndenumerate(table)
    ]
    return texts(rows, "said", {}, fill=channel("colour:N", scale=None))


def _bars(shares: Sequence[float], colour: str) -> Spec:
    """Return a bar beside each row; a share of 1 has the whole width."""
    side = len(shares)
    rows = [
        {"x": 1.03 * side, "x2": (1.03 + _BARS * share) * side, "y": row + 0.1, "y2": row + 0.9}
        | {"share": share}
        for row, share in enumerate(shares)
    ]
    return rects(rows, {"color": colour}, tooltip=channel("share:Q", "certainty", format=".0%"))
