"""Verdicts in the terminal, where there is little room."""

from types import SimpleNamespace

import pytest

from fl_app.report.text_table import WIDTH
from fl_app.report.verdict_table import print_verdicts
from fl_app.results.verdict import UNSURE, SeedVerdicts, Verdict
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES

GAIN = (-0.0412, -0.154, 0.0713)


def printed(metrics, name, **own):
    """Print the verdict of one client that cannot tell yet."""
    one = Verdict(
        client=0,
        verdict=UNSURE,
        strategy="rcc-pfl",
        compared="rcc-pfl",
        gain=GAIN,
        candidates={"rcc-pfl": (*GAIN, 0.5)},
        **own,
    )
    found = SeedVerdicts(seed=0, clients=[one], told_among_all=0, means={})
    print_verdicts(found, SimpleNamespace(metrics=metrics, names=[name]))


@pytest.mark.parametrize("metrics", [OF_A_NUMBER, OF_CLASSES])
def test_neither_a_name_nor_an_interval_is_cut_into_pieces(metrics, capsys):
    own = {"validation_samples": 12345, "gain_over_single": GAIN, "samples_needed": 674282}
    printed(metrics, "authority 131", cluster=10, **own)
    table = [line for line in capsys.readouterr().out.splitlines() if line[:1] in {*"┏┃┡│└"}]
    assert {len(line) for line in table} <= set(range(WIDTH + 1))
    assert len({len(line) for line in table}) == 1
    said = "\n".join(table)
    intervals = 2 * ["(−0.154…+0.0713)"] if metrics is OF_A_NUMBER else 2 * ["(−15…+7)"]
    names = ("authority 131", "rcc-pfl / 10")
    if metrics is OF_CLASSES:  # on two lines
        names = ("authority ", "131 ", "rcc-pfl / ")
    for whole in (*names, UNSURE, "(674,282)", *intervals):
        assert whole in said
    assert said.count(intervals[0]) == 2


def test_a_name_is_no_interval(capsys):
    printed(OF_CLASSES, "A to B", cluster=0, validation_samples=20)
    said = capsys.readouterr().out
    assert "A to B" in said
    assert "(−15…+7)" in said
