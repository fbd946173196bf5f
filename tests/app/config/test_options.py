"""Every option is declared once; pages and defaults are written from the declarations."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from fl_app.config.options_page import written
from fl_app.config.run_config import OF_STRATEGIES, Config, parse_config
from fl_core.options import COUNT, NATURAL, NotAllowedError, options_of
from strategies.catalogue import AGGREGATIONS, CLUSTERINGS
from tests.app_runs import DEFAULTS

ROOT = Path(__file__).parents[3]


def test_what_make_options_writes_is_current():
    for path, content in written(ROOT).items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name}: run `make options`"


def test_an_option_is_declared_once():
    owners = (*Config.__bases__, *CLUSTERINGS.values(), *AGGREGATIONS.values())
    declared = {}
    for owner in owners:
        for key, one in options_of(owner).items():
            assert declared.setdefault(key, one) is one, key
    run_options = options_of(Config)
    assert not run_options.keys() & OF_STRATEGIES.keys()
    assert all(run_options[key] is one for key, one in declared.items() if key in run_options)


def test_the_profile_for_devices_knows_the_options():
    profile = tomllib.loads((ROOT / "pyproject-flwr.toml").read_text(encoding="utf-8"))
    assert parse_config({**DEFAULTS, **profile}).validation_share == 0.2
    grouped = parse_config({**DEFAULTS, **profile, "num-server-rounds": 0})
    assert (grouped.num_server_rounds, grouped.validation_share) == (0, 0)


@pytest.mark.parametrize("value", [2**53 + 1, str(2**53 + 1)])
def test_whole_numbers_are_read_as_they_are(value):
    assert NATURAL.parse(value) == 2**53 + 1  # which no float is
    assert NATURAL.parse(f"{7:e}") == NATURAL.parse(7.0) == NATURAL.parse(np.int64(7)) == 7
    assert NATURAL.parse(2**63 - 1) == 2**63 - 1


@pytest.mark.parametrize(
    "value",
    ["0.99999999999999999999", "9007199254740992.6", "nan", "-inf", "1e999", 1.5, 2**63, True, ""],
)
def test_what_is_no_whole_number_is_none_whatever_a_float_would_make_of_it(value):
    with pytest.raises(NotAllowedError):
        COUNT.parse(value)
