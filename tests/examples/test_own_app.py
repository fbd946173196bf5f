"""The app of `examples/own_app`, and the training loop of docs/own-code.md in it."""

import re
from typing import Any

import pytest
from flwr.app import ArrayRecord

from strategies import make_strategy
from tests.example_runs import EXAMPLES, ROOT, run_example
from tests.local_grid import LocalGrid

PAGE = (ROOT / "docs/own-code.md").read_text(encoding="utf-8")
APP = EXAMPLES / "own_app"


def test_the_page_trains_by_a_local_objective_with_a_user_defined_loop():
    """The page's train function in the place of the example's, and Ditto as the strategy."""
    source = (APP / "my_app/client.py").read_text(encoding="utf-8")
    (loop,) = (b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "add_term()" in b)
    before, after = source.split("@app.train()", 1)
    test = "@app.evaluate()" + after.partition("@app.evaluate()")[2]
    (old,) = re.findall(r"model\.load_state_dict\(.*\)", test)
    (new,) = re.findall(r"`(load_tested_model\(.*?)` instead", PAGE)
    names: dict[str, Any] = {}
    exec(before + loop + test.replace(old, new), names)  # noqa: S102 - our own page
    initial = ArrayRecord(names["make_model"]().state_dict())
    grid, plain = LocalGrid(names["app"], 2), LocalGrid(names["app"], 2)
    strategy, without = make_strategy("ditto", ditto_weight=0.5), make_strategy("single")
    result = strategy.start(grid, initial, num_rounds=3)
    expected = without.start(plain, initial, num_rounds=3)
    for name in expected.arrays:  # the shared model is trained as without an objective
        assert result.arrays[name].numpy().tobytes() == expected.arrays[name].numpy().tobytes()
    assert strategy.reports[-1].of("loss") != without.reports[-1].of("loss")
    assert all("personal" in context.state for context in grid.contexts.values())


def numbers(said: str, name: str) -> list[float]:
    """Return what the log says of a mean over the clients, round by round."""
    return [
        float(re.search(rf"'{name}': ([0-9.]+|nan)", line)[1])
        for line in said.splitlines()
        if "Aggregated MetricRecord" in line and f"'{name}': " in line and "accuracy" in line
    ]


@pytest.mark.slow
@pytest.mark.faults
def test_the_app_groups_its_clients_and_learns(tmp_path):
    said = run_example("own_app", tmp_path)
    assert "clusters {0: 0, 1: 1, 2: 0, 3: 1}" in said, said
    assert "models ['0', '1']" in said
    accuracies, losses = numbers(said, "accuracy"), numbers(said, "loss")
    assert len(accuracies) == len(losses) == 3
    assert accuracies[0] < accuracies[-1]
    assert accuracies[-1] > 0.95
    assert losses == sorted(losses, reverse=True)
