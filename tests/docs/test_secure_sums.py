"""docs/privacy.md says what secure aggregation was measured to cost, and what it refuses."""

import re
from pathlib import Path

import pytest

from benchmarks.secure_sums import tables
from benchmarks.writing import measured
from fl_core.masking import MOST_CHANGE, STEP, max_weight, threshold
from strategies.catalogue import SYSTEMS
from strategies.secure_aggregation import why_not

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "privacy.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Secure aggregation")[2]
NUMBERS = measured("secure-sums")
ROWS = NUMBERS["rows"]


def test_the_table_is_the_measured_one_and_accuracy_stays():
    assert tables(NUMBERS)["plain / secure"] in SECTION
    assert ROWS
    for row in ROWS:
        plain, secure = row["plain"], row["secure"]
        assert secure["accuracy"] == pytest.approx(plain["accuracy"], abs=0.002)
        assert 2 * plain["up"] < secure["up"] < 2 * plain["up"] + 10_000
        assert plain["down"] < secure["down"] < plain["down"] + 10_000


def test_the_numbers_of_the_section_are_those_of_the_code():
    assert [threshold(n) for n in (3, 4, 5, 7, 25)] == [3, 3, 3, 4, 13]
    assert "3 of 3, 4 or 5, 4 of 7, 13 of 25" in SECTION
    assert (STEP, MOST_CHANGE, max_weight(25)) == (2**-28, 256, 2**27 // 25 - 1)
    assert "rounded to 2⁻²⁸ and summed exactly" in SECTION
    assert "changed by more than 256 in a round, or with a weight above 2²⁷/n − 1" in SECTION


def test_the_section_names_strategies_that_can_and_that_cannot():
    can, cannot = SECTION.partition("Only strategies")[2].split("`mt-hfl`", 1)
    for text, count in ((can, 12), (f"`mt-hfl`{cannot}", 11)):
        named = set(re.findall(r"`([\w-]+)`", text)) & SYSTEMS.keys()
        assert len(named) == count
        for system in (SYSTEMS[name] for name in named):
            assert bool(why_not(system.clustering, system.aggregation)) == (text != can)
