"""docs/simulation.md says what is measured, what is sent, and what the terminal shows."""

import re
import tomllib
from pathlib import Path

from fl_app.config.run_config import TRACKERS
from fl_app.run.tracking import TRACKER_OF, round_values
from strategies import RoundReport

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")


def test_every_tracker_is_an_option_an_extra_and_on_the_page():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tuple(TRACKER_OF) == TRACKERS
    for name in TRACKERS:
        assert name in pyproject["project"]["optional-dependencies"]
        assert f"| `{name}` | `pip install '.[{name}]'` |" in PAGE


def test_every_number_of_a_round_is_on_the_page():
    report = RoundReport(1, 1, 0.5, {0: 0.5}, {0: 0.5}, clusters={0: 0})
    for name in (*round_values(report, 1.0, None), "ari"):
        assert re.search(rf"^\| .*`{name}`", PAGE, re.MULTILINE), name
