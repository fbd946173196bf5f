"""The example of docs/adding.md, run as it stands there."""

import re
from pathlib import Path

import numpy as np
import pytest

from fl_core.messages import protocol
from strategies import ClusteredStrategy, ClusterMean
from tests.local_grid import LocalGrid
from tests.toy_app import TASKS, in_rounds, run, toy_app, weights, with_arrays

PAGE = Path(__file__).parents[2] / "docs/adding.md"
MODEL = {"w": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}


@pytest.fixture(scope="module")
def example():
    """Return the class that the page's first code block defines."""
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    found = {"__name__": "__main__"}
    exec(block, found)  # noqa: S102 - our own page
    return found["BiasClustering"]


def test_the_example_groups_by_task_after_the_first_round_and_then_stays(example):
    def turn(arrays):
        arrays["b"] -= (50, 0)

    app = toy_app(TASKS, {("train", 0): in_rounds(2, corrupt=with_arrays(turn))})
    strategy = ClusteredStrategy(example(3), ClusterMean())
    result = run(strategy, LocalGrid(app, 7), 2, protocol.to_record(MODEL))
    assert strategy.clusters.of_client == dict(enumerate(TASKS))
    # Clients 0, 2, 5 add 1, 3 and 6 in each round; 1 and 4 add 2 and 5; 3 and 6 add 4 and 7.
    assert weights(result) == pytest.approx([2 * 10 / 3, 2 * 3.5, 2 * 5.5])


def test_the_page_uses_the_example_as_it_can_be_used(example):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    initial = protocol.to_record(MODEL)
    found = {"grid": LocalGrid(toy_app(TASKS), 7), "initial_arrays": initial}
    (use,) = (block for block in blocks if "strategy.start(" in block)
    exec(blocks[0] + use, found)  # noqa: S102
    assert len(protocol.unpack_models(found["result"].arrays)) == 3
