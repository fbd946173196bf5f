"""Verdicts in the terminal, where there is little room."""

from types import SimpleNamespace

import pytest

from fl_app.report.text_table import WIDTH
from fl_app.report.verdict_table import print_verdicts
from fl_app.results.verdict import UNSURE, Gain, SeedVerdicts, Verdict
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES

GAIN = Gain(mean=-0.0412, low=-0.154, high=0.0713, observed=-0.05, probability=0.123)


def printed(metrics, name, **own):
    """Print the verdict of one client that cannot tell yet."""
    one = Verdict(
        client=0,
        verdict=UNSURE,
        strategy="rcc-pfl",
        compared="rcc-pfl",
        gains={"rcc-pfl": GAIN},
        **own,
    )
    found = SeedVerdicts(seed=0, clients=[one], means={"rcc-pfl": (0.1, 0.0, 0.2)})
    print_verdicts(found, SimpleNamespace(metrics=metrics, names=[name]))


@pytest.mark.parametrize("metrics", [OF_A_NUMBER, OF_CLASSES])
def test_neither_a_name_nor_an_interval_is_cut_into_pieces(metrics, capsys):
    own = {"validation_samples": 12345, "samples_needed": 674282}
    printed(metrics, "authority 131", cluster=10, **own)
    table = [line for line in capsys.readouterr().out.splitlines() if line[:1] in {*"┏┃┡│└"}]
    assert {len(line) for line in table} <= set(range(WIDTH + 1))
    assert len({len(line) for line in table}) == 1
    said = "\n".join(table)
    interval = "(−0.154…+0.0713)" if metrics is OF_A_NUMBER else "(−15.4…+7.1)"
    names = ("authority 131", "rcc-pfl / 10")
    if metrics is OF_CLASSES:  # on two lines
        names = ("authority ", "131 ", "rcc-pfl / ")
    for whole in (*names, UNSURE, "674,282", interval):
        assert whole in said


def test_a_name_is_no_interval(capsys):
    printed(OF_CLASSES, "A to B", cluster=0, validation_samples=20)
    said = capsys.readouterr().out
    assert "A to B" in said
    assert "(−15.4…+7.1)" in said
