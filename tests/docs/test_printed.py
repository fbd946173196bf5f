"""Tables that a benchmark prints stand in the docs as it printed them (benchmarks/results)."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def printed(name):
    return (DOCS.parent / "benchmarks/results" / f"{name}.txt").read_text(encoding="utf-8")


def cells_of(text):
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_counts_of_relevances_are_those_printed():
    heads, _, *counts = cells_of(printed("relevance-search"))
    columns = ("changed", "federations", "paper", "missed energy")
    page = (DOCS / "comparing-clients.md").read_text(encoding="utf-8")
    for row in counts:
        shown = " | ".join(row[heads.index(column)] for column in columns)
        assert f"| {shown} |" in page


def test_the_grid_of_clusterings_is_as_the_page_says():
    """On digits and clothes all are right; on CIFAR-10 five of six if the number is known."""
    grids = re.split(r"^### ", printed("clustering-grid"), flags=re.M)[1:]
    mnist, fashion, hog = ([row[2:] for row in cells_of(grid)[2:]] for grid in grids[:3])
    assert all(row[0] == "1.00" and row[1].startswith("1.00") for row in (*mnist, *fashion))
    assert [sum(row[column].startswith("1.00") for row in hog) for column in (0, 1)] == [5, 3]


def test_the_speeds_are_those_printed():
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    (share,) = re.findall(r"median: 0\.(\d+) of the bare loop", printed("rounds"))
    assert f"[{share} %]" in page
    ours, theirs = re.findall(r"(\S+) µs", printed("hog"))
    assert f"[{ours} µs]" in page
    assert f"scikit-image takes {theirs}." in page


def test_all_clients_of_the_seven_groups_of_airports_are_sure():
    commands = printed("natural-groups").split("$ fedkin group ")
    seven = "dataset=flights features=raw relevance=missed-energy"
    for options in (seven, f"{seven} train-share=0.8"):
        (shown,) = (one for one in commands if one.startswith(f"{options}\n"))
        rows = [line.split("│") for line in shown.splitlines() if line.count("│") == 6]
        assert [int(row[5]) for row in rows if row[1].strip().isdigit()] == [100] * 7
