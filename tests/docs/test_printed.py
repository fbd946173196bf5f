"""Tables that a benchmark prints stand in the docs as it printed them (benchmarks/results)."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
RELEVANCE = {  # the docs' columns of `benchmarks.relevance_search`, as it calls them
    "paper": "paper",
    "missed energy": "missed energy",
    "k = 3": "k = 3",
    "k = 10": "k = 10",
    "k = 20": "k = 20",
    "at the server: paper": "paper, rank 20",
    "rank 20": "missed energy, rank 20",
    "rank 10": "rank 10",
    "rank 5": "rank 5",
}


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables_in(text):
    """Return the tables of a text, each as its heads and its rows."""
    found = []
    for part in text.split("\n\n"):
        lines = [cells_of(line) for line in part.splitlines() if line.startswith("|")]
        if len(lines) > 2:
            found.append((lines[0], lines[2:]))
    return found


def printed(name):
    return (DOCS.parent / "benchmarks/results" / f"{name}.txt").read_text(encoding="utf-8")


def test_the_counts_of_relevances_are_those_printed():
    ((columns, counts),) = tables_in(printed("relevance-search"))
    assert columns == ["changed", "federations", *RELEVANCE.values()]
    page = (DOCS / "comparing-clients.md").read_text(encoding="utf-8")
    (heads, rows), *_ = (one for one in tables_in(page) if one[0][0] == "changed")
    assert heads == ["changed", "federations", *RELEVANCE]
    assert rows == counts


def test_the_grid_of_clusterings_is_the_one_printed():
    grids = []
    for _, rows in tables_in(printed("clustering-grid")):
        grids.append({tuple(row[:2]): f"{row[2]} / {row[-1]}" for row in rows})
    *digits, hog, net, net_30 = grids
    assert len(digits) == 2
    for grid in digits:
        assert grid.keys() == hog.keys()
        assert all(found == f"1.00 / 1.00 ({tasks})" for (_, tasks), found in grid.items())
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    for place, found in hog.items():
        row = [*place, found, net[place], net_30[place]]
        assert (f"| {' | '.join(row)} |" in page) != (found == f"1.00 / 1.00 ({place[1]})")


def test_the_thresholds_of_flts_graph_are_those_printed():
    ((heads, rows),) = tables_in(printed("graph-threshold"))
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    for row in (heads, *rows):
        assert f"| {' | '.join(row)} |" in page


def test_the_speeds_are_those_printed():
    page = (DOCS / "results.md").read_text(encoding="utf-8").partition("## How fast is it?")[2]
    first, *_, median = printed("rounds").splitlines()
    assert f"```\n{first}\n{median}\n```" in page
    ours, theirs = re.findall(r"(\S+) µs", printed("hog"))
    assert f"[{ours} µs]" in page
    assert f"scikit-image takes {theirs}." in page


def test_the_groups_of_natural_data_are_those_printed():
    commands = printed("natural-groups").removeprefix("$ fedkin group ").split("\n$ fedkin group ")
    found = {
        shown.splitlines()[0]: [
            int(cells[5])
            for line in shown.splitlines()
            if len(cells := line.split("│")) == 7 and cells[1].strip().isdigit()
        ]
        for shown in commands
    }
    sure = {
        command: [100] * count
        for command, count in {
            "dataset=flights features=raw relevance=missed-energy": 7,
            "dataset=flights features=raw relevance=missed-energy train-share=0.8": 7,
            "dataset=flights features=raw": 2,
            "dataset=watch features=raw train-share=0.8": 3,
        }.items()
    }
    in_doubt = {
        "dataset=flights": [100, 94, 40, 100, 54, 100, 100],
        "dataset=watch": [98, 60],
        "dataset=watch train-share=0.8": [100, 100, 100, 92],
        "dataset=watch features=raw": [24, 82],
        "dataset=watch features=raw relevance=missed-energy": [100, 96, 100, 100, 96, 100],
        "dataset=watch features=raw relevance=missed-energy train-share=0.8": (
            [100, 94, 100, 100, 100]
        ),
    }
    assert found == sure | in_doubt
