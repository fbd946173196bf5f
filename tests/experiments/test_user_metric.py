"""A user-defined metric in an experiment's table."""

import pytest

from experiments.__main__ import main
from fl_app.sweeps.store import read_cells
from tests.own_modules import TABLE, own_modules

METRIC = """

def misses(outputs, labels):
    return float((outputs.argmax(1) != labels).double().mean())
"""
EXPERIMENT = """
paper = "ours"
title = "Rows of six numbers"
source = "Nowhere."
seeds = 1
measures = ["accuracy", "user-metric"]
picture = "none"
[options]
strategy = "single"
dataset = "rows:load"
metric = "rows:misses"
num-clients = 4
model = "mlp-32"
client-test = "task"
num-server-rounds = 2
[rows.rows]
[columns."two tasks"]
num-tasks = 2
"""


def test_it_has_a_table_on_a_page_and_is_stored_with_the_numbers(tmp_path):
    (tmp_path / "user.toml").write_text(EXPERIMENT, encoding="utf-8")
    with own_modules(tmp_path, rows=TABLE + METRIC):
        assert main(["user.toml", "--workers", "0"]) == 0
    (cell,) = read_cells(tmp_path / "results/user.json.xz")
    stored = cell["methods"]["single"]
    assert stored["user-metric"] == pytest.approx(1 - stored["accuracy"], abs=1e-6)
    page = (tmp_path / "results/user.md").read_text(encoding="utf-8")
    assert "|  | accuracy % | user-defined metric |" in page
    assert f"| single | {100 * stored['accuracy']:.1f} | {stored['user-metric']:#.4g} |" in page
