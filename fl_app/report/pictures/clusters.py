"""What each cluster looks like: typical images, and what HoG sees of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from clients.features.dimensions import CELLS_PER_BLOCK, ORIENTATIONS, cell_size
from fl_app.report.pictures import style
from fl_app.report.pictures.figure import new_figure, short_name, wrapped
from fl_app.report.typical import TypicalImages
from fl_core.extras import load_extra

MOST_CLUSTERS = 6  # fit on a page
_LARGEST = 0.74  # inches that the longer side of an image takes at most
_MARGIN, _STRIP, _GAP = 0.12, 0.07, 0.14  # inches: around all, the tasks' strip, between others
_LEFT, _BETWEEN = 0.29, 0.04  # inches: where images begin, and between an image and its HoG
_TITLE, _HEADER, _CAPTION = 0.38, 0.2, 0.17  # inches: what lines of text take
_LETTERS = 15  # of small text that fit into an inch
_WEAKEST = 0.03  # of the strongest: shorter strokes would be dots


def clusters_figure(
    clusters: Sequence[TypicalImages],
    num_clusters: int,
    found_by: str,
    task_names: Sequence[str],
) -> Figure:
    """Draw typical images of each cluster, each beside its histogram of oriented gradients.

    In one pair of axes, in inches, y downwards.

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
    note = _note(height, width, len(clusters), num_clusters)
    pitch = (style.WIDTH - _LEFT - _MARGIN) / max(len(one.images) for one in clusters)
    pixel = min(_LARGEST, (pitch - 1.5 * _GAP) / 2) / max(height, width)
    row = _HEADER + pixel * height + _CAPTION
    title = wrapped(f"What HoG sees in the clusters of {found_by}", 58)
    below = _TITLE + title.count("\n") * 1.2 * style.TITLE_SIZE / 72
    top = below + style.LINE_HEIGHT * (note.count("\n") + 1) + _GAP
    total = top + (row + _GAP) * len(clusters)

    figure = new_figure("", total)
    # Dozens of small axes would take seconds.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, style.WIDTH), ylim=(total, 0))
    axes.set_axis_off()
    figure.set_layout_engine("none")  # or the title would push the axes down
    _write(axes, 0.06, _MARGIN, title, fontsize=style.TITLE_SIZE, fontweight="bold")
    _write(axes, 0.06, below, note, color=style.MUTED, linespacing=1.2)
    for place, one in enumerate(clusters):
        y = top + (row + _GAP) * place
        _draw_strip(axes, y, row, one)
        _write(
            axes, _LEFT, y, f"Cluster {one.cluster}", fontsize=style.LABEL_SIZE, fontweight="bold"
        )
        _write(axes, _LEFT + 0.85, y + 0.015, _describe(one, task_names))
        for column, (image, caption) in enumerate(zip(one.images, one.captions, strict=True)):
            x = _LEFT + pitch * column
            beside = x + pixel * width + _BETWEEN
            _show_image(axes, (x, y + _HEADER), pixel, image)
            _show_hog(axes, (beside, y + _HEADER), pixel, image)
            name = short_name(caption, int(_LETTERS * (pitch - _GAP)))
            under = y + _HEADER + pixel * height + 0.03
            _write(axes, beside - _BETWEEN / 2, under, name, ha="center")
    return figure


def _write(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    defaults: dict[str, Any] = {"fontsize": style.SMALL_SIZE, "color": style.INK, "va": "top"}
    axes.text(x, y, text, **defaults | options)


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
    return "\n".join(line for part in parts for line in textwrap.wrap(part, 100))


def _describe(one: TypicalImages, task_names: Sequence[str]) -> str:
    """Return whose cluster it is, in a line."""
    tasks = [f"{task_names[task]} ({count})" for task, count in one.tasks.items()]
    if len(tasks) == 1:
        tasks = [task_names[task] for task in one.tasks]
    clients = f"{one.num_clients} client{'s' * (one.num_clients > 1)}"
    text = f"{clients}, true task{'s' * (len(tasks) > 1)}: "
    left_out = one.num_classes - len(one.images)
    ending = f" · {left_out} more class{'es' * (left_out > 1)}" if left_out else ""
    room = int(_LETTERS * (style.WIDTH - _LEFT - 0.85 - _MARGIN))
    return short_name(text + "; ".join(tasks), room - len(ending)) + ending


def _draw_strip(axes: Axes, y: float, row: float, one: TypicalImages) -> None:
    """Draw a strip in the colours of the true tasks, as long as they have clients."""
    for task, count in one.tasks.items():
        share = row * count / one.num_clients
        axes.add_patch(Rectangle((_MARGIN, y), _STRIP, share, color=style.task_colour(task), lw=0))
        y += share


def _show_image(
    axes: Axes, corner: tuple[float, float], pixel: float, image: NDArray[np.uint8]
) -> None:
    """Show an image, shape (C, H, W), grey or in colour, from its top left corner on."""
    height, width = image.shape[1:]
    left, top = corner
    limits = axes.axis()  # imshow moves them
    axes.imshow(
        image[0] if len(image) == 1 else image.transpose(1, 2, 0),
        cmap="gray",
        vmin=0,
        vmax=255,
        extent=(left, left + pixel * width, top + pixel * height, top),
        aspect="auto",
    )
    axes.axis(limits)


def _show_hog(
    axes: Axes, corner: tuple[float, float], pixel: float, image: NDArray[np.uint8]
) -> None:
    """Draw a stroke along the edges of each direction in each cell: the stronger, the longer.

    `skimage.feature.hog(visualize=True)` draws such strokes into the image's own pixels, which are
    too few: in a cell of 7 × 7, all nine lie over each other, 4 or 5 pixels long.

    Parameters
    ----------
    corner : tuple of float
        Top left, in inches.
    pixel : float
        Inches that a pixel takes.
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
    for segments, colour, width in ((np.array(grid), style.GRID, 0.6), (lines, style.INK, 0.9)):
        axes.add_collection(
            LineCollection(
                list(np.array(corner) + pixel * segments),
                colors=colour,
                linewidths=width,
                capstyle="butt",
            ),
            autolim=False,
        )


def edge_strengths(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return what HoG features say of each cell: shape (cells down, cells across, orientations).

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
