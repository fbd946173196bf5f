"""What docs/comparing-clients.md says of lies and honest federations that were measured."""

from benchmarks.writing import measured
from fl_app.report.tables import cluster_table
from fl_app.report.text_table import render
from tests.report_data import read_runs

MEASURED = measured("outliers")


def test_no_lie_changes_the_clustering():
    assert {row["liars"] for row in MEASURED["rows"]} == {1, 2, 3, 4, 5}
    assert min(row["ari"] for row in MEASURED["rows"]) >= 0.95
    assert min(row["plain"] for row in MEASURED["rows"]) == 0  # what it is about


def test_honest_clients_are_left_alone():
    honest = MEASURED["without-liars"]["rows"]
    assert sum(row["federations"] for row in honest) >= 1_000
    assert [row for row in honest if row["outliers"]] == []


def test_outliers_are_named_below_the_table_of_clusters():
    run = {
        **{"strategy": "rcc-pfl", "seed": 0, "num-clients": 4, "names": ["a", "b", "c", "[red]d"]},
        **{"clusters": [0, 0, 1, 2], "outliers": {"2": "it lies", "3": "it lies", "0": "so so"}},
        **{
            "accuracy": 1,
            "accuracy-per-client": [1] * 4,
            "bytes": {},
            "seconds": {},
            "failures": [],
        },
    }
    (run,) = read_runs([run])
    assert render(cluster_table(run)).rstrip().endswith("outliers\nc [red]d: it lies\na: so so")
