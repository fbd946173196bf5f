"""docs/privacy.md says what secure aggregation was measured to cost, and what it refuses."""

import re
from pathlib import Path

import pytest

from benchmarks.writing import measured
from fl_core.masking import MOST_CHANGE, STEP, max_weight, threshold
from strategies.catalogue import SYSTEMS, UNGROUPED
from strategies.secure_aggregation import why_not

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "privacy.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Secure aggregation")[2]
ROWS = measured("secure-sums")["rows"]


def test_accuracy_stays_and_bytes_up_double():
    for row in ROWS:
        plain, secure = row["plain"], row["secure"]
        assert secure["accuracy"] == pytest.approx(plain["accuracy"], abs=0.002)
        assert 2 * plain["up"] < secure["up"] < 2 * plain["up"] + 10_000
        assert plain["down"] < secure["down"] < plain["down"] + 10_000


def test_the_numbers_of_the_section_are_those_of_the_code():
    assert [threshold(n) for n in (3, 4, 5, 7, 25)] == [3, 3, 3, 4, 13]
    assert (STEP, MOST_CHANGE, max_weight(25)) == (2**-28, 256, 2**27 // 25 - 1)


def test_the_section_names_the_strategies_that_can():
    (text,) = re.findall(r"cluster's mean: (.*?), and pairs", SECTION)
    named = set(re.findall(r"`([\w-]+)`", text))
    others = SYSTEMS.keys() - named - set(UNGROUPED)
    assert not any(why_not(SYSTEMS[name].clustering, SYSTEMS[name].aggregation) for name in named)
    assert all(why_not(SYSTEMS[name].clustering, SYSTEMS[name].aggregation) for name in others)
