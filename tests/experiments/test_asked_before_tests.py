"""IFCA that asks all clients in rounds that are tested, which flt-1 and flt-2 show beside ours."""

from itertools import groupby

from experiments import asked_before_tests
from experiments.asked_before_tests import AskedBeforeTests
from fl_core.messages import protocol
from strategies import ClusteredStrategy, ClusterMean
from tests.local_grid import LocalGrid
from tests.toy_app import TASKS, draw_model, run, toy_app


def test_all_clients_choose_in_a_round_that_is_tested(monkeypatch):
    monkeypatch.setattr(asked_before_tests, "_EVERY", 2)
    grid = LocalGrid(toy_app(TASKS), len(TASKS))
    strategy = ClusteredStrategy(
        AskedBeforeTests(3, draw_model), ClusterMean(), fraction_train=0.3, evaluate_every=2
    )
    run(strategy, grid, 3)
    losses = protocol.query(protocol.LOSSES)
    kinds = groupby(message.metadata.message_type for message in grid.sent)
    asked = [len(list(own)) for kind, own in kinds if kind == losses]
    # By the first models; in round 2, which is tested; round 3's participants; then the others.
    assert asked == [7, 7, 2, 5]
