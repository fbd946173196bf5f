"""What a run has come to, over seeds."""

import math

import pytest

from fl_app.results.run_result import RunResult, table_rows
from strategies import RoundReport


def run(seed, *scores):
    report = RoundReport(1, 1, scores={"accuracy": dict(enumerate(scores))} if scores else {})
    report.clusters = {0: 0, 1: 0}
    return RunResult(
        *("single", seed, 2, {0: 0, 1: 0}, [report], {}, {"train-up": 1}, {"total": 1.0}, {})
    )


def test_a_seed_on_which_no_client_was_tested_does_not_count():
    (row,) = table_rows([run(0, 0.9, 0.8), run(1), run(2, 0.9, 0.7)])
    assert row["accuracy-mean"] == pytest.approx(0.825)
    assert row["accuracy-std"] == pytest.approx(0.05 / math.sqrt(2))
    assert row["accuracy-std-over-clients"] == pytest.approx(0.075)
    (nobody,) = table_rows([run(0)])
    assert math.isnan(nobody["accuracy-mean"])
