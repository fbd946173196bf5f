"""What a run has come to, over seeds."""

import math
from dataclasses import replace

import pytest

from fl_app.config.run_config import DEFAULTS, parse_config
from fl_app.results.run_result import RunResult, ari_and_nmi, isolated, table_rows
from fl_app.run.writer import ResultsFolder
from strategies import Failure, RoundReport


def run(seed, *scores):
    report = RoundReport(1, 1, scores={"accuracy": dict(enumerate(scores))} if scores else {})
    report.clusters = {0: 0, 1: 0}
    return RunResult.of_reports("single", seed, 2, {0: 0, 1: 0}, [report])


def test_a_seed_on_which_no_client_was_tested_does_not_count():
    (row,) = table_rows([run(0, 0.9, 0.8), run(1), run(2, 0.9, 0.7)])
    assert row["accuracy-mean"] == pytest.approx(0.825)
    assert row["accuracy-std"] == pytest.approx(0.05 / math.sqrt(2))
    assert row["accuracy-std-over-clients"] == pytest.approx(0.075)
    (row,) = table_rows([run(0, 0.9, 0.7), run(1, 1.0, 0.4)])  # deviations of 0.1 and 0.3
    assert row["accuracy-variance"] == pytest.approx((0.01 + 0.09) / 2)
    (untested,) = table_rows([run(0)])
    assert math.isnan(untested["accuracy-mean"])


def test_who_attacks_or_was_left_out_is_not_counted_where_it_does_not_belong():
    # Client 2 was left out: of the two that attack, one is with an honest client.
    assert isolated([0, 0, -1], (1, 2)) == 0
    assert isolated([0, 1, -1], (1, 2)) == 1
    clusters = {0: 0, 1: 0, 2: 1, 3: 1, 4: 1}
    assert ari_and_nmi([0, 0, 1, 1, 0], clusters, left_out=[4]) == pytest.approx((1, 1))
    assert ari_and_nmi([0, 0, 1, 1, 0], clusters)[0] < 0.5


def test_a_run_has_the_failures_of_its_folds(tmp_path):
    results = ResultsFolder(parse_config({**DEFAULTS, "output-dir": str(tmp_path)}))
    results.runs = [run(3, 0.9, 0.8), run(4, 0.9, 0.8)]
    failures = [Failure(1, "train", (1, 2), "validation-fold=1: its data is empty")]
    results.judge(4, [[replace(run(4, 0.9), failures=failures, never_trained=(1,))]])
    assert [(one.failures, one.never_trained) for one in results.runs] == [
        ([], ()),
        (failures, (1,)),
    ]
