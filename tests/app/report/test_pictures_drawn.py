"""The pictures show the numbers that they were given."""

import re

import numpy as np
import pytest

from fl_app.report.pictures import (
    clients_figure,
    labels_figure,
    lines_figure,
    rounds_figure,
    save,
    similarity_figure,
    traffic_figure,
)
from fl_app.report.pictures.clients import MOST_POINTS
from fl_app.report.pictures.similarity import MOST_CELLS, colour_range
from fl_app.report.pictures.style import FAINT, strategy_styles
from fl_core.metrics import OF_A_NUMBER
from tests.picture_data import (
    TWELVE,
    accuracies,
    as_tested,
    costs,
    curves,
    labels,
    marked,
    rows_of,
    similar,
)


def cells_of(spec):
    """Return the matrix of a picture, and the names beside its rows."""
    numbers = next(
        rows
        for one in marked(spec, "rect")
        if np.isscalar((rows := rows_of(one))[0]) or "data" in rows[0]
    )
    side = round(len(numbers) ** 0.5)
    plain = [one["data"] if isinstance(one, dict) else one for one in numbers]
    names = [row["name"] for row in rows_of(marked(spec, "text")[-1])]
    return np.array(plain, float).reshape(side, side), names  # None becomes NaN


def strips_of(spec):
    """Return the strips above a matrix, by what they show."""
    return {
        one["encoding"]["fill"]["legend"]["title"]: one
        for one in marked(spec, "rect")
        if "fill" in one["encoding"]
    }


def note_of(spec):
    return " ".join(spec["title"].get("subtitle", []))


def test_similarity_rows_are_the_clients_beside_them():
    relevance, merges, clusters, tasks = similar(25, 3)
    spec = similarity_figure(relevance, merges, clusters, tasks)
    cells, names = cells_of(spec)
    order = [int(name) for name in names]
    assert sorted(order) == list(range(25))
    assert order != list(range(25))
    np.testing.assert_allclose(cells, relevance[np.ix_(order, order)], atol=5e-4)

    # One frame per cluster, around the clusters' clients.
    (frames,) = (
        rows_of(one) for one in marked(spec, "rect") if one["mark"].get("stroke") == "#222222"
    )
    blocks = [order[row["x"] : row["x2"]] for row in frames]
    assert all((row["x"], row["x2"]) == (row["y"], row["y2"]) for row in frames)
    expected = [[i for i in range(25) if clusters[i] == c] for c in set(clusters)]
    assert sorted(map(sorted, blocks)) == sorted(expected)
    assert "frames: 3 clusters" in note_of(spec)


def test_similarity_strips_and_tree_stand_over_their_clients():
    relevance, merges, clusters, tasks = similar(25, 3)
    spec = similarity_figure(relevance, merges, clusters, tasks, ["a", "b", "c"])
    order = [int(name) for name in cells_of(spec)[1]]
    for what, labels_of, words in (("true task", tasks, "abc"), ("cluster", clusters, " 123")):
        strip = strips_of(spec)[what]
        shown = [row["name"] for row in rows_of(strip) for _ in range(int(row["x2"] - row["x"]))]
        assert shown == [words[labels_of[i]] for i in order]
        assert strip["encoding"]["fill"]["scale"]["domain"] == sorted(set(shown))
        assert all(row["y"] < row["y2"] < 0 for row in rows_of(strip))

    (tree,) = marked(spec, "line")
    links = {}
    for row in rows_of(tree):
        links.setdefault(row["link"], []).append(row)
    ground = max(row["y"] for row in rows_of(tree))
    tops = sorted(ground - min(row["y"] for row in link) for link in links.values())
    np.testing.assert_allclose(
        np.array(tops) / tops[-1], np.sort(merges[:, 2]) / merges[:, 2].max(), atol=1e-3
    )
    feet = {row["x"] for row in rows_of(tree) if row["y"] == ground}
    assert feet == {place + 0.5 for place in range(25)}
    assert [link[0]["colour"] for link in links.values()].count(FAINT) == 2
    heights = [row["said"] for one in marked(spec, "text")[:-1] for row in rows_of(one)]
    assert heights == ["0.00", f"{merges[:, 2].max():.2f}"]


def test_similarity_colours_cover_the_pairs_not_the_diagonal():
    relevance, merges, clusters, tasks = similar(25, 3)
    cells = marked(similarity_figure(relevance, merges, clusters, tasks), "rect")[1]
    assert cells["encoding"]["color"]["scale"]["domain"] == [pytest.approx(0.4), pytest.approx(1.0)]
    assert colour_range(np.array([[1.0, 0.45], [0.45, 1.0]])) == (0.45, 0.5)
    assert colour_range(np.ones((1, 1))) == (0.0, 1.0)


def test_of_many_clients_neighbours_share_a_cell():
    relevance, merges, clusters, tasks = similar(300, 2)
    spec = similarity_figure(relevance, merges, clusters, tasks)
    rects = marked(spec, "rect")
    side = round(len(rows_of(rects[1])) ** 0.5)
    assert side == 100 < MOST_CELLS
    assert sum(rows_of(rects[1])) / side**2 == pytest.approx(relevance.mean(), abs=1e-3)
    assert [(row["x"], row["x2"]) for row in rows_of(rects[2])] == [(0, side / 2), (side / 2, side)]


def test_late_clients_stand_behind_the_tree():
    relevance, merges, clusters, tasks = similar(9, 3)
    whole = np.full((11, 11), np.nan)
    whole[:9, :9] = relevance
    whole[9, :9] = whole[:9, 9] = relevance[4]
    spec = similarity_figure(whole, merges, [*clusters, 2, 1], [*tasks, 0, 1])
    cells, names = cells_of(spec)
    order = [int(name) for name in names]
    assert order[9:] == [10, 9]  # by cluster
    np.testing.assert_allclose(cells[10, :9], relevance[4][order[:9]], atol=5e-4)
    assert np.isnan(cells[9, 0])  # of whom nothing is known
    assert "beyond the dashes: joined later, not in the tree" in note_of(spec)
    (dashes,) = marked(spec, "rule")
    assert [(row["x"], row["y"]) for row in rows_of(dashes)] == [(9, 0), (0, 9)]
    assert max(row["x"] for row in rows_of(marked(spec, "line")[0])) == 8.5


def lines_of(panel):
    """Return the places, means, lowest and highest of each line."""
    found = {}
    for row in rows_of(panel):
        numbers = [row["place"], row["mean"], row.get("low"), row.get("high")]
        found.setdefault(row["series"], []).append(numbers)
    return {name: np.array(numbers, float).T for name, numbers in found.items()}


def test_rounds_lines_are_means_and_bands_are_extremes():
    given = curves(TWELVE[:5], 3, 20)
    spec = rounds_figure(given)
    lines = lines_of(spec)
    assert set(lines) == set(given)
    for name, (steps, values) in given.items():
        expected = [steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0)]
        np.testing.assert_allclose(lines[name], expected, atol=6e-5)
    (band,) = marked(spec, "area")
    assert (band["encoding"]["y"]["field"], band["encoding"]["y2"]["field"]) == ("low", "high")
    assert "3 seeds" in note_of(spec)
    assert spec["layer"][1]["encoding"]["color"]["scale"]["domain"] == list(given)


def test_rounds_leave_out_what_is_unknown():
    values = np.array([[0.2, 0.4, np.nan], [0.4, np.nan, np.nan]])
    means = lines_of(rounds_figure({"local": (np.arange(3), values)}))["local"][1]
    np.testing.assert_allclose(means, [0.3, 0.4, np.nan])
    untested = (np.empty(0, int), np.empty((1, 0)))
    assert set(lines_of(rounds_figure({"flt": untested, "local": (np.arange(3), values)}))) == {
        "local"
    }
    assert not rows_of(rounds_figure({"flt": untested}))
    nothing = {"local": (np.arange(3), np.full((2, 3), np.nan))}
    assert not marked(rounds_figure(nothing), "area")
    # Of a thousand rounds, the last is among those shown; a band over one round is a line.
    rounds = np.arange(1, 1001)
    places = lines_of(rounds_figure({"flt": (rounds, rounds[None] / 1000)}))["flt"][0]
    assert (len(places), places[-1]) == (250, 1000)
    spec = rounds_figure(curves(("flt",), 3, 1))
    assert (len(marked(spec, "rule")), len(marked(spec, "area"))) == (1, 0)


def test_equal_curves_are_all_seen():
    """Narrow over wide: what is below has an edge on both sides."""
    one = curves(("rcc-pfl",), 1, 30)["rcc-pfl"]
    names = ["optimum", "fedhc", "rcc-pfl"]
    spec = rounds_figure(dict.fromkeys(names, one))
    drawn = list(dict.fromkeys(row["series"] for row in rows_of(spec)))
    (line,) = marked(spec, "line")
    widths = line["encoding"]["strokeWidth"]["scale"]
    found = dict(zip(widths["domain"], widths["range"], strict=True))
    assert drawn == ["rcc-pfl", "fedhc", "optimum"]
    assert np.diff([found[name] for name in drawn]).max() < -0.5
    every = [style.width for style in strategy_styles(TWELVE[:10]).values()]
    assert len(set(every)) == len(every)


def test_traffic_points_are_means_and_lines_extremes():
    given = costs(TWELVE[:5], 3)
    given["single"] = (np.array([3.0, 5.0, 100.0]), np.array([0.5, 0.9, np.nan]))
    rows = {row.pop("series"): row for row in rows_of(traffic_figure(given))}
    assert list(rows) == list(given)
    assert rows["single"] == {"megabytes": 4.0, "mean": 0.7, "low": 0.5, "high": 0.9}
    failed = {"flt": (np.ones(2), np.ones(2)), "local": (np.ones(2), np.full(2, np.nan))}
    assert [row["series"] for row in rows_of(traffic_figure(failed))] == ["flt"]
    assert not rows_of(traffic_figure({"local": failed["local"]}))


def test_words_have_points_for_means_and_lines_from_end_to_end():
    values = np.array([[80.0, 90.0], [82.0, np.nan]])
    line = (np.array(["cnn", "mlp"]), values)
    spec = lines_figure("model", {("a", "up"): {"single": line}}, "model")
    (panel,) = spec["concat"]
    assert panel["title"]["text"] == ["a"]
    found = [(row["place"], row["mean"], row["low"], row["high"]) for row in rows_of(panel)]
    assert found == [("cnn", 81, 80, 82), ("mlp", 90, 90, 90)]
    assert [one["mark"]["type"] for one in panel["layer"]] == ["rule", "point"]


def heads_of(spec):
    """Return the strategy and its mean, beside each row of the picture of clients."""
    return [head.split("\n") for head in spec["layer"][0]["encoding"]["y"]["scale"]["domain"]]


def test_clients_have_a_point_each_unless_they_failed():
    given = accuracies(TWELVE[:3], 3, 25)
    given["random"][1, :4] = np.nan
    given["optimum"][:] = np.nan
    spec = clients_figure(as_tested(given))
    points = {name: [] for name in given}
    for row in rows_of(spec):
        points[row["strategy"].partition("\n")[0]].append((row["score"], row["level"]))
    assert [len(found) for found in points.values()] == [75, 0, 71]
    for name in ("rcc-pfl", "random"):
        known = given[name][np.isfinite(given[name])]
        np.testing.assert_allclose([x for x, _ in points[name]], np.sort(known), atol=6e-5)
        assert len(set(points[name])) == known.size
    assert [name for name, _ in heads_of(spec)] == list(given)
    assert [mean for _, mean in heads_of(spec)][1:] == [
        "–, 75 not tested",
        f"mean {100 * np.nanmean(given['random']):.1f} %, 4 not tested",
    ]


@pytest.mark.parametrize("count", [1, 12])
def test_no_row_of_points_reaches_into_another(count, tmp_path):
    """As Vega draws them: y of each point lies in the row of its strategy."""
    spec = clients_figure(as_tested(accuracies(TWELVE[:count], 3, 25)))
    svg = save(spec, tmp_path / "a.svg").read_text(encoding="utf-8")
    marks = svg.partition("mark-symbol")[2].partition("</g>")[0]
    places = [float(y) for y in re.findall(r"translate\([\d.]+,([\d.]+)\)", marks)]
    assert len(places) == 75 * count
    row = spec["height"] / count
    for number, y in enumerate(places):
        assert abs(y - row * (number // 75 + 0.5)) < 0.3 * row


def test_errors_that_differ_in_no_digit_that_is_shown_have_a_range():
    """Five digits are; a range of none had been divided by."""
    given = {"flt": 100_000.1 + 0.1 * np.arange(5)[None]}
    spec = clients_figure(as_tested(given), metric=OF_A_NUMBER.main)
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < given["flt"].min()
    assert given["flt"].max() < high
    assert [row["score"] for row in rows_of(spec)] == [100_000] * 5


def test_of_too_many_clients_some_are_points_and_the_box_stays_the_same():
    given = {name: 0.9 + a / 20 for name, a in accuracies(("flt", "single"), 1, 10_000).items()}
    spec = clients_figure(as_tested(given))
    shown = [row["score"] for row in rows_of(spec) if row["strategy"].startswith("flt")]
    assert len(shown) == MOST_POINTS
    for share in (0, 25, 50, 75, 100):
        assert np.percentile(shown, share) == pytest.approx(
            np.percentile(given["flt"], share), abs=5e-4
        )
    assert f"about {MOST_POINTS} at evenly spaced ranks" in note_of(spec)


def test_labels_are_grouped_by_task_and_gains_outlined():
    after, before, tasks = labels(12, 4)
    true, seen = labels_figure(after, tasks, list("abcd"), before)["concat"]
    order = sorted(range(12), key=lambda client: (tasks[client], client))
    for panel, counts in ((true, before), (seen, after)):
        rows = rows_of(panel)
        assert [row["client"] for row in rows[::4]] == [str(client) for client in order]
        assert [row["label"] for row in rows[:4]] == list("abcd")
        shown = np.array([row["samples"] for row in rows]).reshape(12, 4)
        np.testing.assert_array_equal(shown, counts[order])
        assert {(int(row["client"]), row["task"]) for row in rows} == {
            (client, f"task {task}") for client, task in enumerate(tasks)
        }
    gained = {(int(row["client"]), row["label"]) for row in rows_of(seen) if "gained" in row}
    assert gained == {(client, "d") for client in range(12) if after[client, 3] > before[client, 3]}
    assert [len(panel["layer"]) for panel in (true, seen)] == [2, 3]
    share = 100 * (after - before).clip(0).sum() / before.sum()
    assert f"{share:.0f} % changed" in seen["title"]["text"][0]


def test_labels_without_tasks_keep_the_clients_order():
    counts = labels(6, 3)[0]
    spec = labels_figure(counts, None, list("abc"))
    np.testing.assert_array_equal([row["samples"] for row in rows_of(spec)], counts.ravel())
    assert len(spec["layer"]) == 1
    clean = labels_figure(counts, None, list("abc"), counts)
    assert note_of(clean) == ""
    assert "0 % changed" in clean["concat"][1]["title"]["text"][0]


def test_clients_of_labels_go_by_their_names():
    counts, names = labels(6, 3)[0], ["berlin", "lyon", "oslo", "paris", "rome", "turin"]
    spec = labels_figure(counts, None, list("abc"), client_names=names)
    assert list(dict.fromkeys(row["client"] for row in rows_of(spec))) == names
    many = labels_figure(np.ones((6000, 3), int), None, list("abc"), client_names=["x"] * 6000)
    assert rows_of(many)[0]["client"] == "0"  # a row is the mean of several


@pytest.mark.parametrize(("count", "has_legend"), [(9, True), (10, False)])
def test_tasks_of_one_colour_have_no_legend(count, has_legend):
    relevance, merges, _, _ = similar(24, 2)
    tasks = [client % count for client in range(24)]
    strips = [
        *marked(similarity_figure(relevance, merges, [0] * 24, tasks), "rect")[-1:],
        *marked(labels_figure(labels(24, 3)[0], tasks, list("abc")), "rect")[-1:],
    ]
    assert [one["encoding"]["fill"]["legend"] is not None for one in strips] == [has_legend] * 2


def test_names_with_equal_short_forms_are_numbered():
    names = [f"ward {number}, hospital of the north" for number in range(25)]
    relevance, merges, clusters, tasks = similar(25, 3)
    spec = similarity_figure(relevance, merges, clusters, tasks, client_names=names)
    assert len(set(cells_of(spec)[1])) == 25
    spec = labels_figure(labels(6, 3)[0], None, names[:3], client_names=names[:6])
    assert len({row["label"] for row in rows_of(spec)}) == 3
    assert len({row["client"] for row in rows_of(spec)}) == 6
    spec = clients_figure(as_tested({name: np.ones((1, 2)) for name in names[:2]}))
    assert len({head for head, _ in heads_of(spec)}) == 2
