"""The pictures are whole, alone and the same each time, and nothing else is touched."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from fl_app.report.pictures import (
    clients_figure,
    cluster_rounds_figure,
    labels_figure,
    lines_figure,
    published_figure,
    rounds_figure,
    save,
    similarity_figure,
    traffic_figure,
)
from fl_app.report.pictures.figure import spread
from fl_app.report.pictures.style import strategy_styles
from tests.picture_data import (
    TWELVE,
    accuracies,
    cluster_curves,
    costs,
    curves,
    labels,
    similar,
)

STATED = {"flt": (0.9, None), "single": (0.8, 0.02)}
MEASURED = {"flt": np.array([0.91]), "cfl": np.array([0.8, 0.9])}
MANY = [f"strategy {n}" for n in range(20)]


def panels(count):
    """Return panels of three methods and seeds, one of which lacks a value."""
    places = np.array([0.0, 0.3, 0.6])
    values = {name: np.random.default_rng(n).random((3, 3)) for n, name in enumerate(TWELVE[:3])}
    values[TWELVE[0]][0, 1] = np.nan
    lines = {name: (places, found) for name, found in values.items()}
    return {(f"row {number}", "accuracy %"): lines for number in range(count)}


def similarity_call(clients, groups, known=True):
    relevance, merges, clusters, tasks = similar(clients, groups)
    return lambda: similarity_figure(relevance, merges, clusters, tasks if known else None)


def counts_call(clients, classes, known, noisy):
    after, before, tasks = labels(clients, classes)
    names = [f"label {n}" if classes < 20 else str(n) for n in range(classes)]
    return lambda: labels_figure(
        after, tasks if known else None, names, true_counts=before if noisy else None
    )


CALLS = {
    "similarity": similarity_call(25, 3),
    "similarity of one": similarity_call(1, 1),
    "similarity of two": similarity_call(2, 2),
    "similarity of many": similarity_call(100, 12),
    "similarity, no tasks": similarity_call(7, 2, known=False),
    "rounds": lambda: rounds_figure(curves(TWELVE[:5], 3, 40)),
    "rounds of one": lambda: rounds_figure(curves(("rcc-pfl",), 1, 1)),
    "rounds of many": lambda: rounds_figure(curves(TWELVE, 2, 100)),
    "clients": lambda: clients_figure(accuracies(TWELVE[:5], 3, 25)),
    "clients of one": lambda: clients_figure(accuracies(("flt",), 1, 1)),
    "clients of many": lambda: clients_figure(accuracies(TWELVE, 1, 100)),
    "clients by the thousand": lambda: clients_figure(accuracies(TWELVE[:2], 1, 10_000)),
    "clusters": lambda: cluster_rounds_figure(cluster_curves(TWELVE[:5], 3, 40), 0),
    "clusters of one": lambda: cluster_rounds_figure(cluster_curves(("flt",), 1, 1), 0),
    "clusters of many": lambda: cluster_rounds_figure(cluster_curves(MANY, 100, 9), 0),
    "traffic": lambda: traffic_figure(costs(TWELVE[:5], 3)),
    "traffic of one": lambda: traffic_figure(costs(("flt",), 1)),
    "traffic of many": lambda: traffic_figure(costs(MANY, 5)),
    "published": lambda: published_figure(
        "Table", {"row": [("two", STATED, MEASURED)]}, "accuracy %"
    ),
    "published, half": lambda: published_figure(
        "Table", {"a": [("two", {}, MEASURED)], "b": [("two", STATED, {})]}, "ARI"
    ),
    "lines": lambda: lines_figure("Sweep", panels(4), "noise-rate"),
    "lines, one point": lambda: lines_figure(
        "Rounds", {("", "ARI"): {"flt": (np.ones(1), np.ones((1, 1)))}}, "round"
    ),
    "labels": counts_call(25, 10, known=True, noisy=True),
    "labels of one": counts_call(1, 1, known=True, noisy=False),
    "labels of many": counts_call(100, 47, known=True, noisy=True),
    "labels, no tasks": counts_call(4, 3, known=False, noisy=False),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_png_is_whole_and_alone_and_fits_a_page(call, tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"an older picture")
    assert save(call(), path) == path
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        assert "Software" not in image.info
        width, height = image.size
        pixels = np.asarray(image.convert("L"))
    assert width == 900
    assert 200 <= height <= 1350
    # Something cut at the edge would leave ink there.
    assert pixels[0].min() == pixels[-1].min() == pixels[:, 0].min() == pixels[:, -1].min() == 255


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # an SVG names its parts, by chance unless told otherwise
        *((name, "svg") for name in ("similarity", "rounds", "clients", "clusters", "labels")),
        *(("similarity", kind) for kind in ("png", "pdf")),
    ],
)
def test_same_input_gives_same_bytes(name, kind, tmp_path):
    first, second = (save(CALLS[name](), tmp_path / f"{letter}.{kind}") for letter in "ab")
    assert first.read_bytes() == second.read_bytes()
    start = {"png": b"\x89PNG", "pdf": b"%PDF-", "svg": b"<?xml"}[kind]
    assert first.read_bytes().startswith(start)


def test_failed_write_leaves_the_old_picture_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")

    def half(self, target, **_):
        target.write_bytes(b"half a pict")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="disk full"):
        save(CALLS["rounds"](), path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


@pytest.mark.slow
def test_no_global_state_is_touched(tmp_path):
    program = """
import sys
import pathlib
import matplotlib, numpy
before = str(matplotlib.rcParams.copy())
from fl_app.report import pictures
path = pathlib.Path(sys.argv[1])
pictures.save(pictures.similarity_figure(numpy.eye(1), numpy.zeros((0, 4)), [0], [0]), path)
assert "matplotlib.pyplot" not in sys.modules
assert str(matplotlib.rcParams.copy()) == before
"""
    # As in pyproject.toml: not ours to mend.
    warnings = ("-W", "error", "-W", "ignore::DeprecationWarning:typer")
    command = [sys.executable, *warnings, "-c", program, str(tmp_path / "picture.png")]
    subprocess.run(command, check=True)


def test_input_is_left_as_it_was(tmp_path):
    relevance, merges, clusters, tasks = similar(9, 3)
    rounds = curves(("rcc-pfl", "local"), 2, 5)
    clients = accuracies(("rcc-pfl", "local"), 2, 5)
    after, before, owners = labels(9, 4)
    arrays = [relevance, merges, after, before, *clients.values()]
    arrays += [array for curve in rounds.values() for array in curve]
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    path = tmp_path / "picture.png"
    save(similarity_figure(relevance, merges, clusters, tasks), path)
    save(rounds_figure(rounds), path)
    save(clients_figure(clients), path)
    save(labels_figure(after, owners, list("abcd"), before), path)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_styles_belong_to_names():
    alone = {name: strategy_styles([name])[name] for name in TWELVE}
    together = strategy_styles(TWELVE)
    assert together == strategy_styles(TWELVE[::-1])
    assert {name: together[name] for name in TWELVE[:10]} == {
        name: alone[name] for name in TWELVE[:10]
    }
    for name, style in together.items():
        neutral = name in {"optimum", "single", "local", "random"}
        assert (len(set(to_rgb(style.colour))) == 1) == neutral
    unknown = strategy_styles([f"strategy {n}" for n in range(24)])
    assert len({(style.colour, style.dashes) for style in unknown.values()}) == 24


def test_spread_keeps_order_and_gaps():
    wanted = np.array([0.9, 0.2, 0.91, 0.905, 0.99])
    placed = spread(wanted, 0.05)
    assert list(np.argsort(placed)) == list(np.argsort(wanted))
    assert np.diff(np.sort(placed)).min() >= 0.05 - 1e-12
    assert placed.max() <= 1
    assert placed[1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: rounds_figure({}), "no strategy"),
        (lambda: clients_figure({}), "no strategy"),
        (lambda: cluster_rounds_figure({}, 0), "no strategy"),
        (
            lambda: cluster_rounds_figure({"flt": (np.arange(3), {7: np.ones(2)})}, 0),
            "cluster 7 of flt has shape",
        ),
        (
            lambda: clients_figure({"flt": np.full((1, 2), 93.0)}),
            r"flt is not in \[0, 1\]",
        ),
        (
            lambda: rounds_figure({"flt": (np.arange(3), np.ones((2, 4)))}),
            "flt has shape",
        ),
        (lambda: published_figure("Table", {}, "ARI"), "no strategy"),
        (lambda: lines_figure("Sweep", {}, "round"), "no strategy"),
        (
            lambda: lines_figure(
                "Sweep", {("a", "b"): {"flt": (np.ones(2), np.ones((1, 3)))}}, "round"
            ),
            "b of flt has shape",
        ),
        (lambda: traffic_figure({}), "no strategy"),
        (
            lambda: traffic_figure({"flt": (np.ones(2), np.ones(3))}),
            "megabytes of flt has shape",
        ),
        (
            lambda: similarity_figure(np.eye(3), np.zeros((3, 4)), [0, 0, 0], None),
            "merges has shape",
        ),
        (
            lambda: labels_figure(np.ones((2, 3)), None, ["a"]),
            "class_names has shape",
        ),
    ],
)
def test_wrong_input_is_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
