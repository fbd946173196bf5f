"""What each cluster looks like: typical images, and what HoG sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.features.dimensions import CELLS_PER_BLOCK, ORIENTATIONS, cell_size
from fl_app.report.pictures import style
from fl_app.report.pictures.figure import Spec, data_url, picture, short_name
from fl_app.report.typical import TypicalImages
from fl_core.extras import load_extra

MOST_CLUSTERS = 6  # fit on a page
_ACROSS = style.WIDTH - 16  # points without the margins
_LARGEST = 53.0  # that the longer side of an image takes at most
_STRIP, _LEFT, _BETWEEN, _GAP = 5, 16, 3, 10  # the strip, where images begin, beside and between
_HEADER, _CAPTION = 15, 12  # what lines of text take
_TEXT = 62  # where a cluster's tasks are written
_LETTER = 4.3  # of small text
_WEAKEST = 0.03  # of the strongest: shorter strokes would be dots


def clusters_figure(
    clusters: Sequence[TypicalImages],
    num_clusters: int,
    found_by: str,
    task_names: Sequence[str],
) -> Spec:
    """Draw typical images of each cluster, each beside its histogram of oriented gradients.

    Places are in points, y downwards.

    Parameters
    ----------
    clusters : sequence of TypicalImages
        From top to bottom.
    num_clusters : int
        How many there are; the picture says so where some are not shown.
    found_by : str
        What found the clusters.
    task_names : sequence of str
        What to call the tasks; task t is `task_names[t]`.
    """
    if not clusters:
        raise ValueError("there is no cluster to draw")
    height, width = clusters[0].images.shape[2:]
    pitch = (_ACROSS - _LEFT) / max(len(one.images) for one in clusters)
    pixel = min(_LARGEST, (pitch - 1.5 * _GAP) / 2) / max(height, width)
    row = _HEADER + pixel * height + _CAPTION
    strips: list[Spec] = []
    words: list[Spec] = []
    images: list[Spec] = []
    lines: list[Spec] = []
    for place, one in enumerate(clusters):
        y = (row + _GAP) * place
        strips.append({"y": y, "y2": y + row, "colour": style.cluster_colour(one.cluster)})
        words.append({"x": _LEFT, "y": y, "said": f"Cluster {one.cluster}", "bold": True})
        words.append({"x": _LEFT + _TEXT, "y": y + 1, "said": _describe(one, task_names)})
        for column, (image, caption) in enumerate(zip(one.images, one.captions, strict=True)):
            x, top = _LEFT + pitch * column, y + _HEADER
            beside = x + pixel * width + _BETWEEN
            url = data_url(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
            images.append({"x": x, "y": top, "url": url})
            lines += _hog_lines((beside, top), pixel, image)
            name = short_name(caption, int((pitch - _GAP) / _LETTER))
            words.append({"x": x, "y": top + pixel * height + 3, "said": name})
    size = {"width": pixel * width, "height": pixel * height, "aspect": False}
    image_mark = {"type": "image", "align": "left", "baseline": "top", **size}
    strip: Spec = {"x": {"value": 0}, "x2": {"value": _STRIP}, "y2": {"field": "y2"}}
    colour = {"field": "colour", "type": "nominal", "scale": None}
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    width_of = {"field": "width", "type": "quantitative", "scale": None}
    layers = [
        _layer(strips, "rect", **strip, fill=colour),
        _layer(images, image_mark, url={"field": "url", "type": "nominal"}),
        _layer(lines, "rule", **ends, stroke=colour, strokeWidth=width_of),
    ]
    for bold in (True, False):
        look: Spec = {"fontWeight": "bold", "fontSize": style.LABEL_SIZE} if bold else {}
        mark = {"type": "text", "align": "left", "baseline": "top", **look}
        said = [one for one in words if ("bold" in one) == bold]
        layers.append(_layer(said, mark, text={"field": "said", "type": "nominal"}))
    return picture(
        f"What HoG sees in the clusters of {found_by}",
        _note(height, width, len(clusters), num_clusters),
        layer=layers,
        height=round((row + _GAP) * len(clusters)),
    )


def _layer(rows: Sequence[Spec], mark: Any, **encoding: Spec) -> Spec:
    place = {"type": "quantitative", "axis": None, "scale": None}
    places = {"x": {**place, "field": "x"}, "y": {**place, "field": "y"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": {**places, **encoding}}


def _note(height: int, width: int, shown: int, num_clusters: int) -> str:
    down, across = cell_size(height, width)
    parts = [
        "Left: the training image whose HoG is nearest to the mean of its class in the cluster.",
        f"Right: its HoG. In each {down} × {across} cell, {ORIENTATIONS} strokes show how strong "
        "the edges of a direction are.",
    ]
    if shown < num_clusters:
        hidden = num_clusters - shown
        parts.append(
            f"These are the {shown} largest of {num_clusters} clusters; "
            f"{hidden} {'is' if hidden == 1 else 'are'} not shown."
        )
    return "\n".join(parts)


def _describe(one: TypicalImages, task_names: Sequence[str]) -> str:
    """Return whose cluster it is, in a line."""
    tasks = [f"{task_names[task]} ({count})" for task, count in one.tasks.items()]
    if len(tasks) == 1:
        tasks = [task_names[task] for task in one.tasks]
    clients = f"{one.num_clients} client{'s' * (one.num_clients > 1)}"
    text = f"{clients}, true task{'s' * (len(tasks) > 1)}: "
    left_out = one.num_classes - len(one.images)
    ending = f" · {left_out} more class{'es' * (left_out > 1)}" if left_out else ""
    room = int((_ACROSS - _LEFT - _TEXT) / _LETTER)
    return short_name(text + "; ".join(tasks), room - len(ending)) + ending


def _hog_lines(corner: tuple[float, float], pixel: float, image: NDArray[np.uint8]) -> list[Spec]:
    """Return a stroke along the edges of each direction in each cell: the stronger, the longer.

    `skimage.feature.hog(visualize=True)` draws such strokes into the image's own pixels, which are
    too few: in a cell of 7 × 7, all nine lie over each other, 4 or 5 pixels long.

    Parameters
    ----------
    corner : tuple of float
        Top left, in points.
    pixel : float
        Points that a pixel takes.
    image : NDArray[np.uint8], shape (C, H, W)
    """
    cell = cell_size(*image.shape[1:])
    strengths = edge_strengths(image)
    rows, columns, _ = strengths.shape
    right, bottom = columns * cell[1], rows * cell[0]
    grid = [[(0, y), (right, y)] for y in range(0, bottom + 1, cell[0])]
    grid += [[(x, 0), (x, bottom)] for x in range(0, right + 1, cell[1])]
    shares = strengths / max(strengths.max(), 1e-12)
    lines = strokes(shares, cell)[shares > _WEAKEST]
    found = []
    for segments, colour, width in ((np.array(grid), style.GRID, 0.6), (lines, style.INK, 0.9)):
        for (x, y), (x2, y2) in (np.array(corner) + pixel * segments).round(2).tolist():
            found.append({"x": x, "y": y, "x2": x2, "y2": y2, "colour": colour, "width": width})
    return found


def edge_strengths(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the HoG features of each cell: shape (cells down, cells across, orientations).

    A cell's entries are scaled once for each block that it is in: their mean over the blocks.

    Parameters
    ----------
    image : NDArray[np.uint8], shape (C, H, W)
    """
    # Imported here: only runs that draw this picture need scikit-image.
    hog = load_extra("skimage.feature", "clusters.png").hog

    # (block rows, block columns, cell rows, cell columns, orientations); with the arguments that
    # clients.features.hog equals, and by scikit-image so that the picture is a second opinion.
    blocks = hog(
        image.transpose(1, 2, 0),
        orientations=ORIENTATIONS,
        pixels_per_cell=cell_size(*image.shape[1:]),
        cells_per_block=(CELLS_PER_BLOCK, CELLS_PER_BLOCK),
        block_norm="L2-Hys",
        feature_vector=False,
        channel_axis=-1,
    )
    down, across = blocks.shape[:2]
    beyond = CELLS_PER_BLOCK - 1
    sums = np.zeros((down + beyond, across + beyond, ORIENTATIONS))
    counts = np.zeros((*sums.shape[:2], 1))
    for row in range(CELLS_PER_BLOCK):
        for column in range(CELLS_PER_BLOCK):
            cells = (slice(row, row + down), slice(column, column + across))
            sums[cells] += blocks[:, :, row, column]
            counts[cells] += 1
    return sums / counts


def strokes(shares: NDArray[np.float64], cell: tuple[int, int]) -> NDArray[np.float64]:
    """Return a stroke through each cell's middle for each direction, in pixels of the image.

    Parameters
    ----------
    shares : NDArray[np.float64], shape (rows, columns, orientations)
        How long, in [0, 1]: 1 is nearly as long as a cell.
    cell : tuple of int
        Height and width of a cell.

    Returns
    -------
    NDArray[np.float64], shape (rows, columns, orientations, 2, 2)
        Of each its two ends, across and down.
    """
    rows, columns, orientations = shares.shape
    angles = np.pi * (np.arange(orientations) + 0.5) / orientations
    # A gradient points across (cos) and down (sin); its edge lies at a right angle to it.
    along = 0.47 * min(cell) * np.stack([-np.sin(angles), np.cos(angles)], axis=1)
    halves = shares[..., None] * along
    down = (np.arange(rows) + 0.5) * cell[0]
    across = (np.arange(columns) + 0.5) * cell[1]
    middles = np.stack(np.meshgrid(across, down), axis=-1)[:, :, None]
    return np.stack([middles - halves, middles + halves], axis=-2)
