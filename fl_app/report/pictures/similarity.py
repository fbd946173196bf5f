"""The relevance between all clients, with the tree and the clusters made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.cluster.hierarchy import dendrogram

from fl_app.report.pictures.figure import (
    check_shape,
    index_ticks,
    keep_spines,
    label_axes,
    legend_below,
    new_figure,
    runs_of_equals,
    short_name,
)
from fl_app.report.pictures.style import (
    FAINT,
    GRID,
    INK,
    LABEL_SIZE,
    MUTED,
    SMALL_SIZE,
    task_colour,
)

_LONGEST_NAME = 16  # characters of a client's name


def similarity_figure(
    similarity: NDArray[np.float64],
    merges: NDArray[np.float64],
    clusters: Sequence[int],
    tasks: Sequence[int] | None,
    task_names: Sequence[str] | None = None,
    measure: str = "relevance",
    client_names: Sequence[str] | None = None,
) -> Figure:
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
        The cluster that each client was put into.
    tasks : sequence of K int, optional
        The true task of each client, or None when it is not known.
    task_names : sequence of str, optional
        What to call the tasks; task t is `task_names[t]`. By default "task 0", "task 1" ...
    measure : str
        What `similarity` is.
    client_names : sequence of K str, optional
        What to call the clients; by default, by their index.
    """
    clients = len(similarity)
    check_shape("similarity", similarity, (clients, clients))
    check_shape("merges", merges, (min(clients, len(merges) + 1) - 1, 4))
    check_shape("clusters", clusters, (clients,))
    order, tree = _leaf_order(merges, clusters)

    height = 5.2 + (1.0 if tree else 0.0) + (0.0 if tasks is None else 0.2)
    title = f"{measure[0].upper()}{measure[1:]} between clients, ordered by the merge tree"
    figure = new_figure(title, height)
    axes = figure.add_subplot()
    low, high = colour_range(similarity)
    colours = colormaps["YlGnBu"].with_extremes(bad=GRID)
    image = axes.imshow(similarity[np.ix_(order, order)], cmap=colours, vmin=low, vmax=high)
    shown = (
        order
        if client_names is None
        else [short_name(client_names[c], _LONGEST_NAME) for c in order]
    )
    index_ticks(axes.xaxis, shown, inches=4.4)
    index_ticks(axes.yaxis, shown, inches=4.4)
    label_axes(axes, "client", "client")

    # Insets keep the tree and the strip aligned with the columns, whatever the layout does.
    handles: list[Artist] = []
    if tasks is not None:
        check_shape("tasks", tasks, (clients,))
        strip = axes.inset_axes((0, 1.015, 1, 0.035), sharex=axes)
        handles += _fill_task_strip(strip, [tasks[client] for client in order], task_names)
    handles.append(_frame_blocks(axes, [clusters[client] for client in order]))
    if len(merges) + 1 < clients:
        handles.append(_part_late(axes, len(merges) + 1, clients))
    if tree is not None:
        bottom = 1.03 if tasks is None else 1.065
        _draw_tree(axes.inset_axes((0, bottom, 1, 0.2), sharex=axes), tree)
        if FAINT in tree["color_list"]:
            handles.append(Line2D([], [], color=FAINT, lw=1.6, label="links between clusters"))
    _draw_bar(figure, axes, image, similarity, measure)
    legend_below(figure, handles)
    return figure


def _leaf_order(
    merges: NDArray[np.float64], clusters: Sequence[int]
) -> tuple[list[int], dict[str, Any] | None]:
    """Return the clients in the order of the tree's leaves, and the tree as scipy lays it out."""
    count = len(merges) + 1
    late = sorted(range(count, len(clusters)), key=lambda client: clusters[client])
    if count == 1:
        return [0, *late], None
    members = [{cluster} for cluster in clusters[:count]]
    for left, right in merges[:, :2].astype(int):
        members.append(members[left] | members[right])
    # A branch that joins clusters is one that the cut has removed: it fades.
    tree = dendrogram(
        merges,
        no_plot=True,
        link_color_func=lambda node: INK if len(members[node]) == 1 else FAINT,
    )
    return [*tree["leaves"], *late], tree


def colour_range(similarity: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of the pairs, in whole steps of 0.05.

    The diagonal tells nothing and the lowest hundredth is left out, since one odd pair would take
    the contrast from all others. High pairs all count: of many small clusters they are few.
    """
    pairs = similarity[~np.eye(len(similarity), dtype=bool) & np.isfinite(similarity)]
    if pairs.size == 0:
        return 0.0, 1.0
    # 1e-9 keeps 0.45, which is not exactly 9 steps of 0.05, from costing a step more.
    low = math.floor(np.percentile(pairs, 1) / 0.05 + 1e-9)
    high = max(math.ceil(pairs.max() / 0.05 - 1e-9), low + 1)
    return low / 20, high / 20


def _draw_bar(
    figure: Figure, axes: Axes, image: AxesImage, similarity: NDArray[np.float64], measure: str
) -> None:
    low, high = image.get_clim()
    # Pointed ends tell that some cells, such as the diagonal, lie beyond the range.
    below, above = bool((similarity < low).any()), bool((similarity > high).any())
    extend = ("neither", "min", "max", "both")[below + 2 * above]
    bar = figure.colorbar(image, cax=axes.inset_axes((1.03, 0, 0.04, 1)), extend=extend)
    bar.ax.tick_params(labelsize=SMALL_SIZE)
    bar.ax.set_ylabel(f"{measure} of clients i and j", fontsize=LABEL_SIZE)


def _draw_tree(axes: Axes, tree: Mapping[str, Any]) -> None:
    # scipy puts leaf n at 10 n + 5; here it belongs over column n.
    links = [
        np.column_stack(((np.asarray(across) - 5) / 10, up))
        for across, up in zip(tree["icoord"], tree["dcoord"], strict=True)
    ]
    axes.add_collection(LineCollection(links, colors=tree["color_list"], linewidths=1.1))
    highest = max(link[:, 1].max() for link in links)
    axes.set_ylim(0, 1.05 * highest if highest > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    axes.tick_params(axis="y", labelsize=SMALL_SIZE, colors=MUTED)
    axes.set_ylabel("merge\ndistance", fontsize=SMALL_SIZE, color=MUTED)
    keep_spines(axes, "left")


def _frame_blocks(axes: Axes, values: Sequence[int]) -> Artist:
    """Frame each run of equal clusters on the diagonal, and return what the legend says of it."""
    for _, start, stop in runs_of_equals(values):
        corner, side = (start - 0.5, start - 0.5), stop - start
        # White under black shows on dark and on light cells alike.
        for colour, width in (("white", 3.2), (INK, 1.6)):
            axes.add_patch(
                Rectangle(corner, side, side, fill=False, ec=colour, lw=width, clip_on=False)
            )
    found = len(set(values))
    label = "cluster found" if found == 1 else f"{found} clusters found"
    return Patch(facecolor="white", edgecolor=INK, linewidth=1.6, label=label)


def _part_late(axes: Axes, count: int, clients: int) -> Artist:
    """Draw a line before clients that came later, and return what the legend says of it."""
    line: dict[str, Any] = {"color": INK, "lw": 1.2, "linestyle": (0, (3, 2))}
    axes.hlines(count - 0.5, -0.5, clients - 0.5, **line)
    axes.vlines(count - 0.5, -0.5, clients - 0.5, **line)
    return Line2D([], [], label="beyond: joined later, not in the tree", **line)


def _fill_task_strip(axes: Axes, values: Sequence[int], names: Sequence[str] | None) -> list[Patch]:
    """Colour the columns by task, and return what the legend says of it."""
    present = sorted(set(values))
    colours = [task_colour(task) for task in present]
    axes.imshow(
        [[present.index(task) for task in values]],
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(present) - 0.5,
        aspect="auto",
    )
    axes.tick_params(length=0, labelbottom=False)
    axes.set_yticks([0], ["true task"], fontsize=SMALL_SIZE, color=MUTED)
    keep_spines(axes)
    labels = [f"task {t}" if names is None else short_name(names[t], 300) for t in present]
    return [Patch(color=c, label=label) for c, label in zip(colours, labels, strict=True)]
