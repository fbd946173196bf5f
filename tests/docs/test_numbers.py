"""Tables and numbers on the pages are those that were measured, and lists name all there is."""

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.writing import measured
from fl_app.config.run_config import TRACKERS
from fl_app.report.tables import cluster_table, printed_strategies
from fl_app.report.text_table import render
from fl_app.report.verdict_table import print_headlines, print_verdicts
from fl_app.results.verdict import EXPLANATION, SeedVerdicts
from fl_app.run.tracking import TRACKER_OF, round_values
from fl_core.json_records import checker
from fl_core.masking import MOST_CHANGE, STEP, max_weight, threshold
from fl_core.metrics import OF_CLASSES
from strategies import RoundReport
from strategies.catalogue import SYSTEMS, UNGROUPED
from strategies.secure_aggregation import why_not
from tests.report_data import read_runs

ROOT = Path(__file__).parents[2]


def page(name):
    return (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")


def printed(name):
    return (ROOT / f"benchmarks/results/{name}.txt").read_text(encoding="utf-8")


def cells_of(text):
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_counts_of_relevances_are_those_printed():
    heads, _, *counts = cells_of(printed("relevance-search"))
    for row in counts:
        columns = ("changed", "federations", "paper", "missed energy")
        shown = " | ".join(row[heads.index(column)] for column in columns)
        assert f"| {shown} |" in page("comparing-clients")


def test_the_grid_of_clusterings_is_as_the_page_says():
    """On digits and clothes all are right; on CIFAR-10 five of six if the number is known."""
    grids = re.split(r"^### ", printed("clustering-grid"), flags=re.M)[1:]
    mnist, fashion, hog = ([row[2:] for row in cells_of(grid)[2:]] for grid in grids[:3])
    assert all(row[0] == "1.00" and row[1].startswith("1.00") for row in (*mnist, *fashion))
    assert [sum(row[column].startswith("1.00") for row in hog) for column in (0, 1)] == [5, 3]


def test_no_lie_changes_the_clustering_and_no_honest_client_is_an_outlier():
    numbers = measured("outliers")
    assert {row["liars"] for row in numbers["rows"]} == {1, 2, 3, 4, 5}
    assert min(row["ari"] for row in numbers["rows"]) >= 0.95
    assert min(row["plain"] for row in numbers["rows"]) == 0  # without the protection
    honest = numbers["without-liars"]["rows"]
    assert sum(row["federations"] for row in honest) == 1_024
    assert [row for row in honest if row["outliers"]] == []


def test_outliers_are_named_below_the_table_of_clusters():
    run = {
        **{"strategy": "rcc-pfl", "seed": 0, "num-clients": 4, "names": ["a", "b", "c", "[red]d"]},
        **{"clusters": [0, 0, 1, 2], "outliers": {"2": "it lies", "3": "it lies", "0": "so so"}},
        **{"accuracy": 1, "accuracy-per-client": [1] * 4, "failures": []},
        **{"bytes": {}, "seconds": {}},
    }
    (run,) = read_runs([run])
    assert render(cluster_table(run)).rstrip().endswith("outliers\nc [red]d: it lies\na: so so")


def test_the_tables_of_devices_are_those_of_the_committed_run(capsys):
    run = measured("devices")
    assert render(printed_strategies(read_runs(run["runs"]))) in page("devices")
    first = SimpleNamespace(names=run["runs"][0]["names"], metrics=OF_CLASSES)
    verdicts = checker(SeedVerdicts).validate_python(run["verdicts"][0])
    print_verdicts(verdicts, first)
    said, _ = capsys.readouterr().out.rsplit(f"\n{EXPLANATION}")
    assert f"{said} …\n" in page("devices")
    print_headlines([verdicts], first)
    assert capsys.readouterr().out in page("devices")


def test_secure_sums_keep_accuracy_and_double_bytes_up():
    for row in measured("secure-sums")["rows"]:
        plain, secure = row["plain"], row["secure"]
        assert secure["accuracy"] == pytest.approx(plain["accuracy"], abs=0.002)
        assert 2 * plain["up"] < secure["up"] < 2 * plain["up"] + 10_000
        assert plain["down"] < secure["down"] < plain["down"] + 10_000
    assert [threshold(n) for n in (3, 4, 5, 7, 25)] == [3, 3, 3, 4, 13]
    assert (STEP, MOST_CHANGE, max_weight(25)) == (2**-28, 256, 2**27 // 25 - 1)


def test_the_page_names_the_strategies_that_secure_sums_take():
    (text,) = re.findall(r"cluster's mean: (.*?), and pairs", page("privacy"))
    named = set(re.findall(r"`([\w-]+)`", text))
    for name in SYSTEMS.keys() - set(UNGROUPED) | named:
        refused = why_not(SYSTEMS[name].clustering, SYSTEMS[name].aggregation)
        assert bool(refused) == (name not in named), name


def test_every_tracker_and_every_number_of_a_round_is_on_the_page():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tuple(TRACKER_OF) == TRACKERS
    for name in TRACKERS:
        assert name in pyproject["project"]["optional-dependencies"]
        assert f"| `{name}` | `pip install '.[{name}]'` |" in page("simulation")
    report = RoundReport(1, 1, 0.5, {0: 0.5}, {0: 0.5}, clusters={0: 0})
    for name in (*round_values(report, 1.0, None), "ari"):
        assert re.search(rf"^\| .*`{name}`", page("simulation"), re.MULTILINE), name
