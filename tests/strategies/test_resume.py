"""A run that is cut off and resumed ends with the same models as one that was not."""

import numpy as np
import pytest

from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from strategies import make_strategy
from strategies.clusterings.first_update import OnceByTraining
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import (
    ENCODER,
    PATHS,
    STRATEGIES,
    TASKS,
    fail,
    groups,
    in_rounds,
    run,
    toy_app,
    with_metrics,
)

ROUNDS = 5

pytestmark = pytest.mark.usefixtures("plane_without_umap")


class CutOffError(Exception):
    pass


def grid(corrupt=None):
    return LocalGrid(toy_app(TASKS, corrupt), len(TASKS))


def cut_off(make, after, path, corrupt=None, **options):
    """Run a strategy that writes a checkpoint after a round, then ends without a word."""

    def on_round(report):
        if report.round == after:
            save_checkpoint(path, strategy.checkpoint())
            raise CutOffError

    strategy = make(on_round=on_round, **options)
    with pytest.raises(CutOffError):
        run(strategy, grid(corrupt), ROUNDS)


def same_models(one, other):
    assert list(one.arrays) == list(other.arrays)
    for name in one.arrays:
        found, expected = one.arrays[name].numpy(), other.arrays[name].numpy()
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "after"), [("flt-graph", 1), ("mt-hfl", 3), ("ifca", ROUNDS)])
def test_a_resumed_run_ends_as_an_undisturbed_one(name, after, tmp_path):
    make = STRATEGIES[name]
    options = {"fraction_train": 0.6, "seed": 3}
    undisturbed = make(**options)
    expected = run(undisturbed, grid(), ROUNDS)

    cut_off(make, after, tmp_path / "c", **options)
    rounds = []
    resumed = make(on_round=lambda report: rounds.append(report.round), **options)
    resumed.resume(load_checkpoint(tmp_path / "c"))
    found = run(resumed, grid(), ROUNDS)

    same_models(found, expected)
    assert rounds == list(range(after + 1, ROUNDS + 1))
    assert resumed.reports == undisturbed.reports
    assert resumed.clusters.of_client == undisturbed.clusters.of_client
    assert resumed.clusters.neighbours == undisturbed.clusters.neighbours
    assert resumed.training.num_examples == undisturbed.training.num_examples
    assert resumed.model_of_client == undisturbed.model_of_client
    for kind in ("pre_round", "train", "evaluate", "server"):  # the registration counts once
        assert getattr(resumed.training, f"{kind}_traffic") == getattr(
            undisturbed.training, f"{kind}_traffic"
        )


def test_what_clients_said_before_the_interruption_is_remembered(tmp_path):
    """FLT: a flag of the last round asks all clients again in the first one after it, and once."""

    def make(**options):
        return make_strategy("flt", ENCODER, 3, max_changed=0, **options)

    flagged = {("train", 2): in_rounds(2, corrupt=with_metrics(data_shift=0.5))}
    undisturbed_grid = grid(flagged)
    expected = run(make(), undisturbed_grid, ROUNDS)

    cut_off(make, 2, tmp_path / "c", flagged)
    resumed, again = make(), grid(flagged)
    resumed.resume(load_checkpoint(tmp_path / "c"))
    same_models(run(resumed, again, ROUNDS), expected)
    asked = [m for m in again.sent if m.metadata.message_type == "query.signature"]
    assert len(asked) == len(TASKS)
    assert {m.metadata.group_id for m in asked} == {"3"}


@pytest.mark.parametrize("name", ["rcc-pfl", "flt-graph", "pca-km-hc"])
def test_a_client_that_had_failed_and_one_that_is_new_are_placed_after_the_resumption(
    name, tmp_path
):
    make = STRATEGIES[name]
    query = "spectrum" if name == "rcc-pfl" else "signature"
    strategy = make(on_round=lambda report: save_checkpoint(tmp_path / "c", strategy.checkpoint()))
    broken = toy_app(TASKS, {(f"query.{query}", 5): fail})
    run(strategy, Visits(broken, 7, {6: range(9)}), 2)
    assert list(strategy.failures) == [5]

    resumed = make()
    resumed.resume(load_checkpoint(tmp_path / "c"))
    run(resumed, grid(), 3)
    assert groups(resumed.reports[-1].clusters) == [[0, 2, 5], [1, 4], [3, 6]]
    assert not resumed.failures
    assert set(resumed.reports[-1].tested) == set(range(7))


def turned(client, task):
    """Let no two clients' updates be parallel."""
    angle = 0.5 * task + 0.02 * client
    return (np.cos(angle), np.sin(angle))


@pytest.mark.parametrize("name", [*PATHS, "fedclust"])
def test_a_client_that_is_away_when_a_run_goes_on_comes_back_to_it(name, tmp_path):
    make = STRATEGIES[name]

    def save(report):
        if report.round == 2:
            save_checkpoint(tmp_path / "c", strategy.checkpoint())

    strategy = make(on_round=save)
    run(strategy, LocalGrid(toy_app(TASKS, step=turned), 7), 2)
    resumed = make()
    resumed.resume(load_checkpoint(tmp_path / "c"))
    run(resumed, Visits(toy_app(TASKS, step=turned), 7, {3: {0, 1}}), ROUNDS)
    assert [3 in report.tested for report in resumed.reports[2:]] == [False, True, True]
    assert set(resumed.clusters.of_client) == set(range(7))
    assert not resumed.failures
    if isinstance(resumed.clustering, OnceByTraining):
        assert resumed.clusters.of_client == strategy.clusters.of_client


def test_a_resumed_run_that_no_client_can_join_says_what_to_do(tmp_path):
    strategy = STRATEGIES["rcc-pfl"](
        on_round=lambda report: save_checkpoint(tmp_path / "c", strategy.checkpoint())
    )
    run(strategy, Visits(toy_app(TASKS), 7, {6: range(9)}), 1)
    resumed = STRATEGIES["rcc-pfl"]()
    resumed.resume(load_checkpoint(tmp_path / "c"))
    only_a_stranger = Visits(
        toy_app(TASKS, {("query.spectrum", 6): fail}), 7, {client: range(9) for client in range(6)}
    )
    with pytest.raises(RuntimeError, match="no client is left to train: start those"):
        run(resumed, only_a_stranger, 2)
