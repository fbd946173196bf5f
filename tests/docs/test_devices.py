"""The numbers of docs/devices.md are those of the committed run."""

from pathlib import Path
from types import SimpleNamespace

from benchmarks.writing import measured
from fl_app.report.tables import printed_strategies
from fl_app.report.text_table import render
from fl_app.report.verdict_table import print_headlines, print_verdicts
from fl_app.results.verdict import EXPLANATION, SeedVerdicts
from fl_core.json_records import checker
from fl_core.metrics import OF_CLASSES
from tests.report_data import read_runs

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_on_the_page_are_those_of_the_committed_run(capsys):
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    run = measured("devices")
    assert render(printed_strategies(read_runs(run["runs"]))) in page
    first = SimpleNamespace(names=run["runs"][0]["names"], metrics=OF_CLASSES)
    verdicts = checker(SeedVerdicts).validate_python(run["verdicts"][0])
    print_verdicts(verdicts, first)
    said, _ = capsys.readouterr().out.rsplit(f"\n{EXPLANATION}")
    assert f"{said} …\n" in page
    print_headlines([verdicts], first)
    assert capsys.readouterr().out in page
