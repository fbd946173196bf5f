"""CFL: a cluster is split when its mean update vanishes but its clients' do not."""

import numpy as np
import pytest

from fl_core.messages import protocol
from strategies import (
    Clusters,
    RecursiveBipartition,
    Round,
    StableBipartition,
    Update,
    make_strategy,
)
from tests.local_grid import LocalGrid
from tests.toy_app import groups, run, toy_app

# The mean is never twice the longest mean, and updates are not that short.
ALWAYS = {"mean_norm": 2, "max_norm": 0.1}


def split(clustering, steps, of_client=None):
    """Return the clusters after updates by `steps`, from client to its update's numbers."""
    of_client = of_client or dict.fromkeys(steps, 0)
    updates = [
        Update(
            client,
            of_client[client],
            {"w": np.array(step, np.float32)},
            1,
            {"w": np.zeros(len(step), np.float32)},
        )
        for client, step in steps.items()
    ]
    return clustering.after_training(Round(1, Clusters(of_client), (), updates)).of_client


@pytest.mark.parametrize(
    ("mean_norm", "max_norm", "parts"),
    [
        (0.5, 0.7, [[0], [1]]),  # 1 < 0.5·4, and √10 = 3.16 > 0.7·4 = 2.8
        (0.25, 0.7, [[0, 1]]),  # 1 is not below 0.25·4
        (0.5, 0.8, [[0, 1]]),  # √10 is not above 0.8·4 = 3.2
        (0.25, 0.8, [[0, 1]]),
    ],
)
def test_by_hand_a_cluster_is_split_exactly_when_both_norms_say_so(mean_norm, max_norm, parts):
    clustering = RecursiveBipartition(mean_norm, max_norm)
    # The longest mean update so far is (4, 0), which is no reason to split.
    assert split(clustering, {0: (4, 0), 1: (4, 0)}) == {0: 0, 1: 0}
    # Now updates (1, 3) and (1, −3), each √10 long, with mean (1, 0).
    assert groups(split(clustering, {0: (1, 3), 1: (1, -3)})) == parts


def test_by_hand_parts_must_be_large_enough():
    # 0°, 10° and 130°: single linkage leaves client 2 alone.
    steps = {c: (np.cos(np.radians(a)), np.sin(np.radians(a))) for c, a in enumerate((0, 10, 130))}
    for options, parts in (({}, [[0, 1], [2]]), ({"min_size": 2}, [[0, 1, 2]])):
        assert groups(split(RecursiveBipartition(**{**ALWAYS, **options}), steps)) == parts


def test_by_hand_the_linkage_decides_where_a_chain_is_cut():
    # 0°, 40°, 50°, 80° and 119°, with gaps of 40°, 10°, 30° and 39°. Single linkage cuts the
    # widest. The others join 40° and 50°. Complete: 80° is 40° from their farther one, but 39° from
    # 119°. Average, of 1 − cos: 80° is (0.234 + 0.134)/2 = 0.184 from them and 0.223 from 119°; the
    # three are then (0.234 + 0.357 + 0.826)/3 = 0.472 from 0° and 0.558 from 119°.
    angles = np.radians([0, 40, 50, 80, 119])
    steps = {client: (np.cos(a), np.sin(a)) for client, a in enumerate(angles)}
    for linkage, parts in (
        ("single", [[0], [1, 2, 3, 4]]),
        ("complete", [[0, 1, 2], [3, 4]]),
        ("average", [[0, 1, 2, 3], [4]]),
    ):
        clustering = RecursiveBipartition(**{**ALWAYS, "split_linkage": linkage})
        assert groups(split(clustering, steps)) == parts


def test_two_successive_splits_of_interleaved_clients():
    # The fault: places in the second split's smaller matrix taken for client indices. There,
    # clients 1, 3, 4, 6 are rows 0 to 3.
    clustering = RecursiveBipartition(**ALWAYS)
    angle = np.radians([0, 60, 0, 100, 60, 0, 100])
    steps = {client: (np.cos(a), np.sin(a)) for client, a in enumerate(angle)}
    once = split(clustering, steps)
    assert once == {0: 0, 1: 1, 2: 0, 3: 1, 4: 1, 5: 0, 6: 1}
    others = {client: step for client, step in steps.items() if once[client] == 1}
    twice = split(clustering, others, once)
    assert twice == {0: 0, 1: 1, 2: 0, 3: 2, 4: 1, 5: 0, 6: 2}


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_by_hand_all_clusters_of_a_round_are_judged_by_the_same_longest_mean(numbers):
    clustering = RecursiveBipartition(0.5, 1)
    assert split(clustering, {0: (1, 0), 1: (1, 0)}) == {0: 0, 1: 0}
    # One's mean is 0.6 long, the other's 2: whichever is first, the first's is below half of that.
    steps = {0: (0.6, 3), 1: (0.6, -3), 2: (2, 0), 3: (2, 0)}
    first, second = numbers
    of_client = {0: first, 1: first, 2: second, 3: second}
    assert groups(split(clustering, steps, of_client)) == [[0], [1], [2, 3]]


# Six clients, all of which send (4, ±3) first: 5 long each, with mean (4, 0), no reason to split.
SIX = {client: (4, 3 if client % 2 else -3) for client in range(6)}
TOGETHER = dict.fromkeys(SIX, 0)


# Of their last updates, the mean is then (8, 0)/6 = 1.33 < 0.4·4, and 4 > 0.7·4. Clients 4 and 5
# sit this out. The cosine is 0.6 between 4 and those that go down, and between 5 and those that go
# up, −0.6 otherwise, and 7/25 = 0.28 between the two. Client 1 has changed its mind.
FOUR = {0: (0, -4), 1: (0, -4), 2: (0, 4), 3: (0, 4)}


def test_by_hand_clients_that_sit_a_split_out_go_by_their_last_update():
    clustering = StableBipartition(min_size=1)
    assert split(clustering, SIX) == TOGETHER
    assert split(clustering, FOUR, TOGETHER) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 1}


def test_by_hand_a_cluster_stands_still_when_all_its_clients_last_updates_say_so():
    # Of the two that train, the mean is 0, but of all it is (16, 0)/6 = 2.67.
    clustering = StableBipartition(min_size=1)
    split(clustering, SIX)
    assert split(clustering, {0: (0, -4), 1: (0, 4)}, TOGETHER) == TOGETHER


def test_the_smallest_part_counts_those_that_sat_out():
    for min_size, parts in ((3, [[0, 1, 4], [2, 3, 5]]), (4, [[0, 1, 2, 3, 4, 5]])):
        clustering = StableBipartition(min_size=min_size)
        split(clustering, SIX)
        assert groups(split(clustering, FOUR, TOGETHER)) == parts


def test_by_hand_each_part_goes_on_with_its_mean():
    # Steps (1, 4), (3, 4) and (2, −4): {0, 1} and {2} part at once, with means (2, 4), (2, −4).
    steps = {0: (1, 4), 1: (3, 4), 2: (2, -4)}
    strategy = make_strategy("cfl", **ALWAYS)
    result = run(strategy, LocalGrid(toy_app(step=lambda client, task: steps[client]), 3))
    models = [
        protocol.to_arrays(model)["w"].tolist() for model in protocol.unpack_models(result.arrays)
    ]
    assert models == [[2, 4], [2, -4]]
    assert strategy.reports[0].clusters == {0: 0, 1: 0, 2: 1}


def test_clients_that_never_sent_an_update_follow_the_larger_part():
    of_client = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0}
    steps = {1: (1, 0), 2: (-1, 0.1), 4: (1, 0.1)}
    assert split(RecursiveBipartition(**ALWAYS), steps, of_client) == {0: 0, 1: 0, 2: 1, 3: 0, 4: 0}
