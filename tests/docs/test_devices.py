"""The numbers of docs/devices.md are those of the committed run."""

import json
from pathlib import Path

from fl_app.report.tables import cluster_table, printed_strategies, render

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_on_the_page_are_those_of_the_committed_run():
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    run = json.loads((DOCS / "runs/measured/devices.json").read_text(encoding="utf-8"))
    assert render(printed_strategies(run["runs"])) in page
    assert render(cluster_table(run["runs"][0])) in page
