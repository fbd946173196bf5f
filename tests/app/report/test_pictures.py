"""The pictures are whole, alone and the same each time."""

import re

import numpy as np
import pytest
import vl_convert
from PIL import Image, ImageColor

from fl_app.report.pictures import (
    clients_figure,
    labels_figure,
    lines_figure,
    rounds_figure,
    save,
    similarity_figure,
    traffic_figure,
)
from fl_app.report.pictures.figure import on_paper
from fl_app.report.pictures.style import (
    _COLOURS,
    WIDTH,
    cluster_colour,
    strategy_styles,
    task_colour,
)
from strategies.catalogue import SYSTEMS
from tests.picture_data import (
    TWELVE,
    accuracies,
    as_tested,
    costs,
    curves,
    labels,
    rows_of,
    similar,
)
from tests.samples import sampled

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
    "similarity of many": similarity_call(100, 12),
    "similarity, no tasks": similarity_call(7, 2, known=False),
    "rounds": lambda: rounds_figure(curves(TWELVE[:5], 3, 40)),
    "rounds of many": lambda: rounds_figure(curves(TWELVE, 2, 100)),
    "clients": lambda: clients_figure(as_tested(accuracies(TWELVE[:5], 3, 25))),
    "clients of many": lambda: clients_figure(as_tested(accuracies(TWELVE, 1, 100))),
    "clients by the thousand": lambda: clients_figure(as_tested(accuracies(TWELVE[:2], 1, 10_000))),
    "traffic": lambda: traffic_figure(costs(TWELVE[:5], 3)),
    "traffic of many": lambda: traffic_figure(costs(MANY, 5)),
    "lines": lambda: lines_figure("Sweep", panels(4), "noise-rate"),
    "lines, one point": lambda: lines_figure(
        "Rounds", {("", "ARI"): {"flt": (np.ones(1), np.ones((1, 1)))}}, "round"
    ),
    "words": lambda: lines_figure(
        "Sweep", {("", "ARI"): {"flt": (np.array(["hog", "raw"]), np.ones((2, 2)))}}, "features"
    ),
    "labels": counts_call(25, 10, known=True, noisy=True),
    "labels of many": counts_call(100, 47, known=True, noisy=True),
    "labels, no tasks": counts_call(4, 3, known=False, noisy=False),
}


@pytest.mark.parametrize("call", sampled(CALLS.values(), 3, CALLS))
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


@pytest.mark.parametrize("name", ["rounds", "similarity"])
def test_same_input_gives_same_bytes(name, tmp_path):
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        first, second = (
            save(CALLS[name](), tmp_path / f"{letter}.{kind}").read_bytes() for letter in "ab"
        )
        assert first.startswith(start)
        assert second == first or kind == "pdf"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_vega_lite_understands_every_picture(call, capfd):
    vl_convert.vegalite_to_vega(on_paper(call()), show_warnings=True)
    assert "WARN" not in "".join(capfd.readouterr())


def test_each_strategy_has_one_look_everywhere():
    known = sorted({*SYSTEMS, "fedkin", "fedavg"})
    together = strategy_styles(known)
    assert len(set(together.values())) == len(known)
    for name in known:
        assert strategy_styles([name, "my:Own"])[name] == together[name]
        neutral = name in {"optimum", "single", "local", "random", "fedavg"}
        assert (len(set(ImageColor.getrgb(together[name].colour))) == 1) == neutral
    unknown = strategy_styles([f"strategy {n}" for n in range(24)])
    assert unknown == strategy_styles(list(unknown)[::-1])
    assert len({style.colour for style in list(unknown.values())[:12]}) >= 10
    assert len({(style.colour, style.dashes) for style in unknown.values()}) == 24


def test_a_strategy_of_several_runs_keeps_its_colour():
    found = strategy_styles([f"{name} · {run}" for run in "abc" for name in ("rcc-pfl", "my:Own")])
    rcc_pfl = [look for name, look in found.items() if name.startswith("rcc-pfl")]
    assert rcc_pfl[0] == strategy_styles(["rcc-pfl"])["rcc-pfl"]
    assert {look.colour for look in rcc_pfl} == {rcc_pfl[0].colour}
    assert len({look.dashes for look in rcc_pfl}) == len({look.mark for look in rcc_pfl}) == 3
    assert len({look.colour for look in found.values()}) == 2


# What people see who have no receptors for long or for medium waves (Machado et al., 2009).
PROTAN = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
DEUTAN = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))


@pytest.mark.parametrize("seen", [np.eye(3), np.array(PROTAN), np.array(DEUTAN)])
def test_twelve_colours_are_told_apart_by_all(seen):
    """In OKLab, where 0.02 is about the least difference that anybody sees."""
    to_cones = ((0.412, 0.536, 0.051), (0.212, 0.681, 0.107), (0.088, 0.282, 0.630))
    to_lab = ((0.210, 0.794, -0.004), (1.978, -2.429, 0.451), (0.026, 0.783, -0.809))
    places = []
    for colour in (*_COLOURS, "#000000", "#666666"):
        parts = np.array(ImageColor.getrgb(colour)) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        places.append(np.array(to_lab) @ np.cbrt(np.array(to_cones) @ np.clip(seen @ linear, 0, 1)))
    apart = np.linalg.norm(np.array(places)[:, None] - np.array(places), axis=2)
    assert apart[~np.eye(len(places), dtype=bool)].min() > 0.06


def test_a_cluster_has_one_colour_in_all_pictures_and_a_task_another():
    relevance, merges, clusters, tasks = similar(9, 3)
    assert sorted(set(clusters)) == [1, 2, 3]
    expected = {str(cluster): cluster_colour(cluster) for cluster in (1, 2, 3)}
    layers = similarity_figure(relevance, merges, clusters, tasks)["layer"]
    fills = {
        one["encoding"]["fill"]["legend"]["title"]: one
        for one in layers
        if "fill" in one["encoding"]
    }
    scale = fills["cluster"]["encoding"]["fill"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == expected
    colours = {cluster_colour(number) for number in range(10)}
    assert len(colours) == 10
    assert not colours & {task_colour(number) for number in range(9)}
    assert {row["name"] for row in rows_of(fills["true task"])} == {"task 0", "task 1", "task 2"}


@pytest.mark.parametrize("longest", [40, 200])
def test_no_word_is_too_long_for_a_legend(longest):
    names = [f"{number}{'abcdefghij' * 30}"[:longest] for number in range(12)]
    paper = on_paper(traffic_figure(costs(names, 1)))
    svg = vl_convert.vegalite_to_svg(paper)
    letters = paper["params"][0]["value"]
    words = {word for part in svg.split(">") for word in part.partition("<")[0].split()}
    assert max(map(len, words)) <= letters
    for name in names:
        assert {name[at : at + letters] for at in range(0, len(name), letters)} <= words
    width = float(re.search(r'width="([\d.]+)"', svg)[1])
    assert width < 1.02 * WIDTH
