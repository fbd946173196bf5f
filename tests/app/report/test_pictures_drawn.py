"""The pictures show the numbers that they were given."""

import numpy as np
import pytest
from matplotlib.collections import PatchCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from fl_app.report.pictures.clients import clients_figure
from fl_app.report.pictures.cluster_rounds import cluster_rounds_figure
from fl_app.report.pictures.labels import labels_figure
from fl_app.report.pictures.published import published_figure
from fl_app.report.pictures.rounds import rounds_figure
from fl_app.report.pictures.similarity import colour_range, similarity_figure
from fl_app.report.pictures.style import FAINT
from fl_app.report.pictures.traffic import traffic_figure
from tests.picture_data import TWELVE, accuracies, costs, curves, labels, similar


def test_similarity_rows_are_the_clients_on_the_ticks():
    relevance, merges, clusters, tasks = similar(25, 3)
    figure = similarity_figure(relevance, merges, clusters, tasks)
    axes = figure.axes[0]
    order = [int(label.get_text()) for label in axes.get_yticklabels()]
    assert order == [int(label.get_text()) for label in axes.get_xticklabels()]
    assert sorted(order) == list(range(25))
    assert order != list(range(25))
    np.testing.assert_array_equal(axes.images[0].get_array(), relevance[np.ix_(order, order)])

    # One frame per cluster, around the clusters' clients.
    frames = {(p.get_y(), p.get_height()) for p in axes.patches if isinstance(p, Rectangle)}
    blocks = [{order[n] for n in range(round(y + 0.5), round(y + 0.5 + h))} for y, h in frames]
    wanted = [{i for i in range(25) if clusters[i] == c} for c in set(clusters)]
    assert sorted(map(sorted, blocks)) == sorted(map(sorted, wanted))


def test_similarity_strip_and_tree_stand_over_their_clients():
    relevance, merges, clusters, tasks = similar(25, 3)
    figure = similarity_figure(relevance, merges, clusters, tasks, ["a", "b", "c"])
    matrix = figure.axes[0]
    order = [int(label.get_text()) for label in matrix.get_xticklabels()]
    strip, tree = (matrix.child_axes[n] for n in (0, 1))
    np.testing.assert_array_equal(strip.images[0].get_array(), [[tasks[i] for i in order]])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["a", "b", "c", "3 clusters found", "links between clusters"]

    links = tree.collections[0]
    tops = sorted(segment[:, 1].max() for segment in links.get_segments())
    np.testing.assert_allclose(tops, np.sort(merges[:, 2]))
    feet = {x for s in links.get_segments() for x, y in s if y == 0}
    assert feet == set(range(25))
    colours = [to_hex(colour) for colour in links.get_colors()]
    assert colours.count(FAINT) == 2


def test_similarity_colours_cover_the_pairs_not_the_diagonal():
    relevance, merges, clusters, tasks = similar(25, 3)
    image = similarity_figure(relevance, merges, clusters, tasks).axes[0].images[0]
    low, high = image.get_clim()
    assert low == pytest.approx(0.4)
    assert high == pytest.approx(1.0)
    assert colour_range(np.array([[1.0, 0.45], [0.45, 1.0]])) == (0.45, 0.5)
    assert colour_range(np.ones((1, 1))) == (0.0, 1.0)


def test_rounds_lines_are_means_and_bands_are_extremes():
    given = curves(TWELVE[:5], 3, 20)
    figure = rounds_figure(given)
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == list(given)
    for band, (name, (steps, values)) in zip(axes.collections, given.items(), strict=True):
        np.testing.assert_array_equal(lines[name].get_xdata(), steps)
        np.testing.assert_allclose(np.asarray(lines[name].get_ydata()), values.mean(axis=0))
        edges = np.asarray(band.get_paths()[0].vertices)
        np.testing.assert_allclose(edges[:, 1].min(), values.min())
        np.testing.assert_allclose(edges[:, 1].max(), values.max())
    assert "3 seeds" in axes.get_title(loc="left")


def test_rounds_leave_out_what_is_unknown():
    values = np.array([[0.2, 0.4, np.nan], [0.4, np.nan, np.nan]])
    line = rounds_figure({"local": (np.arange(3), values)}).axes[0].lines[0]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [0.3, 0.4, np.nan])
    nothing = {"local": (np.arange(3), np.full((2, 3), np.nan))}
    assert len(rounds_figure(nothing).axes[0].lines) == 1


def test_rounds_show_equal_curves_both():
    one = curves(("rcc-pfl",), 3, 30)["rcc-pfl"]
    axes = rounds_figure({"rcc-pfl": one, "optimum": one}).axes[0]
    below, above = sorted(axes.lines, key=lambda line: line.get_zorder())
    assert below.get_linewidth() > 2 * above.get_linewidth()
    assert (below.get_linestyle(), above.get_linestyle()) == ("-", "--")
    assert below.get_markevery() != above.get_markevery()
    assert {text.get_text() for text in axes.texts} == {"rcc-pfl", "optimum"}
    assert len({text.xyann for text in axes.texts}) == 2


def test_rounds_fall_back_to_a_legend():
    figure = rounds_figure(curves(TWELVE, 2, 10))
    assert not figure.axes[0].texts
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(TWELVE)
    assert not rounds_figure(curves(TWELVE[:3], 2, 10)).legends


def test_traffic_points_are_means_and_names_stand_beside_them():
    given = costs(TWELVE[:5], 3)
    given["single"] = (np.array([3.0, 5.0, 100.0]), np.array([0.5, 0.9, np.nan]))
    axes = traffic_figure(given).axes[0]
    points = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert list(points) == list(given)
    assert points["single"] == [[4.0, pytest.approx(0.7)]]
    assert {text.get_text(): list(text.xy) for text in axes.texts} == {
        name: point for name, (point,) in points.items()
    }
    lines = [c.get_segments()[0][:, 1].tolist() for c in axes.collections]
    assert lines[list(given).index("single")] == [0.5, 0.9]
    assert axes.get_xlim()[0] == 0


def test_traffic_leaves_out_a_strategy_that_failed():
    given = {"flt": (np.ones(2), np.ones(2)), "local": (np.ones(2), np.full(2, np.nan))}
    assert [text.get_text() for text in traffic_figure(given).axes[0].texts] == ["flt"]
    assert not traffic_figure({"local": given["local"]}).axes[0].lines


def test_published_and_measured_stand_beside_each_other():
    stated = {"flt": (0.9, None), "single": (0.8, 0.02)}
    measured = {"flt": np.array([0.91]), "cfl": np.array([0.8, 0.9])}
    figure = published_figure("Table 1", {"digits": [("two", stated, measured)]}, "accuracy")
    axes = figure.axes[0]
    drawn = sorted(
        (round(line.get_xdata()[0], 3), line.get_ydata()[0], line.get_markerfacecolor() == "none")
        for line in axes.lines
    )
    # Three strategies share 0.8 of the column; the paper's mark is to the left of ours.
    third = 0.8 / 3
    assert drawn == [
        (round(-third - 0.2 * third, 3), 0.9, True),
        (round(-third + 0.2 * third, 3), 0.91, False),
        (round(-0.2 * third, 3), 0.8, True),
        (round(third + 0.2 * third, 3), pytest.approx(0.85), False),
    ]
    bars = [s[:, 1] for c in axes.collections for s in c.get_segments() if np.ptp(s[:, 1])]
    deviation = 0.1 / np.sqrt(2)  # of 0.8 and 0.9
    np.testing.assert_allclose(bars, [[0.78, 0.82], [0.85 - deviation, 0.85 + deviation]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["two"]


def dots_of(axes):
    return [np.asarray(c.get_offsets()) for c in axes.collections if isinstance(c, PathCollection)]


def test_clients_have_a_dot_each_unless_they_failed():
    given = accuracies(TWELVE[:3], 3, 25)
    given["random"][1, :4] = np.nan
    given["optimum"][:] = np.nan
    axes = clients_figure(given).axes[0]
    dots = dots_of(axes)
    assert [len(offsets) for offsets in dots] == [75, 71]
    for name, offsets in zip(("rcc-pfl", "random"), dots, strict=True):
        known = given[name][np.isfinite(given[name])]
        np.testing.assert_array_equal(offsets[:, 0], np.sort(known))
        assert len(np.unique(offsets, axis=0)) == known.size
    below, above = dots[1][:, 1].min(), dots[0][:, 1].max()
    assert above < below  # rows do not reach into each other
    texts = [text.get_text() for text in axes.texts]
    assert "–, 75 not tested" in texts
    assert f"mean {100 * np.nanmean(given['random']):.1f} %, 4 not tested" in texts
    assert [text for text in texts if text in given] == list(given)


def test_clients_with_the_lowest_accuracy_are_named_and_hollow():
    given = {"flt": np.array([[0.9, 0.5, 0.7, 0.95], [0.6, 0.99, 0.98, 0.97]])}
    names = {"flt": [["a", "b" * 40, "c$", "d"], ["e", "f", "g", "h"]]}
    axes = clients_figure(given, names).axes[0]
    cut = "b" * 10 + "…" + "b" * 11
    assert f"lowest: {cut}: 50.0 %; e: 60.0 %; c\\$: 70.0 %" in [t.get_text() for t in axes.texts]
    (dots,) = (c for c in axes.collections if isinstance(c, PathCollection))
    white = (dots.get_facecolors()[:, :3] == 1).all(axis=1)
    np.testing.assert_array_equal(np.asarray(dots.get_offsets())[white, 0], [0.5, 0.6, 0.7])


def test_few_clients_have_no_quartiles():
    few, many = (clients_figure(accuracies(("flt",), 1, n)).axes[0] for n in (9, 10))
    assert [len(axes.collections) for axes in (few, many)] == [1, 3]


def test_of_too_many_clients_bars_count_all_and_the_lowest_are_dots():
    given = {name: 0.9 + a / 20 for name, a in accuracies(("flt", "single"), 1, 10_000).items()}
    axes = clients_figure(given).axes[0]
    known = np.sort(given["flt"].ravel())
    np.testing.assert_array_equal(dots_of(axes)[0][:, 0], known[:3])
    bars = [patch for patch in axes.patches if patch.get_height()]
    tall = np.array([-bar.get_height() for bar in bars[: len(bars) // 2]])
    counts = np.histogram(known, 100, axes.get_xlim())[0]
    np.testing.assert_allclose(tall / tall.max(), counts[counts > 0] / counts.max())


def test_a_long_name_of_a_strategy_is_wrapped_not_cut():
    name = "a pair with a name that is far longer than a line of the picture is wide"
    texts = [t.get_text() for t in clients_figure({name: np.ones((1, 2))}).axes[0].texts]
    assert name in [text.replace("\n", " ") for text in texts]


def test_late_clients_stand_behind_the_tree():
    relevance, merges, clusters, tasks = similar(9, 3)
    whole = np.full((11, 11), np.nan)
    whole[:9, :9] = relevance
    whole[9, :9] = whole[:9, 9] = relevance[4]
    figure = similarity_figure(whole, merges, [*clusters, 2, 1], [*tasks, 0, 1])
    axes = figure.axes[0]
    order = [int(label.get_text()) for label in axes.get_yticklabels()]
    assert order[9:] == [10, 9]  # by cluster
    drawn = axes.images[0].get_array()
    np.testing.assert_array_equal(drawn[10, :9], relevance[4][order[:9]])
    assert np.ma.is_masked(drawn[9, 0])  # of whom nothing is known
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "beyond: joined later, not in the tree" in texts
    feet = {x for s in axes.child_axes[1].collections[0].get_segments() for x, y in s if y == 0}
    assert feet == set(range(9))


def test_labels_are_grouped_by_task_and_gains_outlined():
    after, before, tasks = labels(12, 4)
    figure = labels_figure(after, tasks, list("abcd"), before)
    true, seen = figure.axes[:2]
    order = [int(label.get_text()) for label in true.get_yticklabels()]
    assert order == sorted(range(12), key=lambda client: (tasks[client], client))
    np.testing.assert_array_equal(true.images[0].get_array(), before[order])
    np.testing.assert_array_equal(seen.images[0].get_array(), after[order])
    assert [label.get_text() for label in seen.get_xticklabels()] == list("abcd")
    assert [text.get_text() for text in seen.texts] == ["task 0", "task 1", "task 2"]

    (outlines,) = (c for c in seen.collections if isinstance(c, PatchCollection))
    centres = {tuple(path.get_extents().get_points().mean(axis=0)) for path in outlines.get_paths()}
    gained = {(3.0, float(row)) for row, i in enumerate(order) if after[i, 3] > before[i, 3]}
    assert centres == gained
    share = 100 * (after - before).clip(0).sum() / before.sum()
    assert f"{share:.0f} % changed" in seen.get_title(loc="left")


def test_labels_without_tasks_keep_the_clients_order():
    counts = labels(6, 3)[0]
    axes = labels_figure(counts, None, list("abc")).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), counts)
    assert not axes.texts
    clean = labels_figure(counts, None, list("abc"), counts)
    assert not clean.legends
    assert "0 % changed" in clean.axes[1].get_title(loc="left")


def test_cluster_panels_show_each_clusters_accuracy_and_number():
    rounds = np.array([2, 4])
    lines = {9: np.array([0.5, 0.7]), 1: np.array([np.nan, 0.9])}  # cluster 9 is the larger one
    figure = cluster_rounds_figure({"flt": (rounds, lines), "single": (rounds, {0: rounds / 8})}, 3)
    flt, single = figure.axes
    assert [axes.get_title("left") for axes in (flt, single)] == ["flt", "single"]
    drawn = {
        text.get_text(): line.get_ydata() for text, line in zip(flt.texts, flt.lines, strict=True)
    }
    assert list(drawn) == ["1", "9"]
    np.testing.assert_array_equal(drawn["9"], [0.5, 0.7])
    np.testing.assert_array_equal(drawn["1"], [np.nan, 0.9])
    assert "largest" not in figure.get_supxlabel()


def test_the_cluster_picture_says_what_it_leaves_out():
    rounds = np.arange(1, 3)
    many = {cluster: np.full(2, 0.5) for cluster in (4, 8, 15, 16, 23, 42, 7)}
    strategies = {f"strategy {n}": (rounds, many) for n in range(16)}
    figure = cluster_rounds_figure(strategies, 0)
    assert len(figure.axes) == 15
    assert [text.get_text() for text in figure.axes[0].texts] == ["4", "8", "15", "16", "23", "42"]
    note = figure.get_supxlabel()
    assert "of each strategy, the 6 largest clusters; 15 of 16 strategies" in note
