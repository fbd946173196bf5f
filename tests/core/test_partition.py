import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.partitions.partition import SPREADS, make_partition
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import (
    PAPER_TASKS,
    ROTATIONS,
    default_tasks,
    parse_tasks,
    random_tasks,
)

LABELS = np.repeat(np.arange(10), 300)
TEST_LABELS = np.repeat(np.arange(10), 20)
THREE = PAPER_TASKS["mnist"][3]
RING = ((0, 1, 2), (2, 3, 4), (4, 5, 6), (6, 7, 8), (8, 9, 0))


def partition(tasks=THREE, kind="label", labels=(LABELS, TEST_LABELS), **options):
    options = {"dataset": "mnist", "num_clients": 25, "seed": 0, "partition": kind, **options}
    return make_partition(*labels, tasks, FederationSettings(**options))


def task_samples(part, client):
    task = part.tasks[part.client_tasks[client]]
    return part.train[client][np.isin(LABELS[part.train[client]], task)]


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.sampled_from(tuple(SPREADS)),
    st.sampled_from([2, 3, 5]),
    st.integers(5, 30),
    st.floats(0.5, 10),
)
def test_every_image_of_a_task_belongs_to_exactly_one_of_its_clients(
    seed, kind, num_tasks, num_clients, alpha
):
    part = partition(
        tasks=PAPER_TASKS["mnist"][num_tasks],
        num_clients=num_clients,
        kind=kind,
        dirichlet_alpha=alpha,
        seed=seed,
        min_samples=1,
    )
    held = np.concatenate([task_samples(part, c) for c in range(num_clients)])
    assert np.array_equal(np.sort(held), np.arange(len(LABELS)))
    sizes = np.bincount(part.client_tasks)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == num_tasks


@pytest.mark.parametrize("kind", tuple(SPREADS))
@pytest.mark.parametrize("minority", [0.0, 0.05, 0.5])
def test_the_minority_is_the_given_share_of_other_tasks_labels(kind, minority):
    part = partition(kind=kind, minority=minority, seed=3)
    for client in range(25):
        samples = task_samples(part, client)
        strangers = len(part.train[client]) - len(samples)
        assert strangers == round(minority * len(samples))
        assert len(np.unique(part.train[client])) == len(part.train[client])


def test_quantity_changes_sizes_and_label_changes_the_class_mix_too():
    def spread_of_mix(part):
        mixes = []
        for client in np.flatnonzero(part.client_tasks == 0):
            counts = np.bincount(LABELS[task_samples(part, client)], minlength=10)[list(THREE[0])]
            mixes.append(counts / counts.sum())
        return np.std(mixes, axis=0).mean()

    by_quantity, by_label = partition(kind="quantity", seed=1), partition(kind="label", seed=1)
    assert np.std([len(t) for t in by_quantity.train]) > 20
    assert spread_of_mix(by_label) > 3 * spread_of_mix(by_quantity)


def test_equal_deals_a_task_out_to_within_one_image():
    part = partition(kind="equal", minority=0.0, num_clients=14)
    sizes = [
        sorted(len(part.train[c]) for c in np.flatnonzero(part.client_tasks == t))
        for t in (0, 1, 2)
    ]
    assert sizes == [[180] * 5, [180] * 5, [300] * 4]  # 900 / 5, 900 / 5 and 1,200 / 4
    part = partition(kind="equal", minority=0.0, tasks=((0,), (1,)), num_clients=14)
    sizes = [
        sorted(len(part.train[c]) for c in np.flatnonzero(part.client_tasks == t)) for t in (0, 1)
    ]
    assert sizes == [[42, 43, 43, 43, 43, 43, 43]] * 2  # 300 = 7 · 42 + 6


def test_an_equal_share_below_the_floor_is_refused():
    with pytest.raises(ValueError, match=r"min-samples is 101, .* by partition=equal so that"):
        partition(kind="equal", min_samples=101, num_clients=27)
    assert partition(kind="equal", min_samples=100, num_clients=27).num_clients == 27
    with pytest.raises(ValueError, match="min-samples is 1, but the 2 samples of task"):
        few = (np.arange(4), np.arange(4))
        partition(((0, 1), (2, 3)), "equal", few, num_clients=6, min_samples=1)


def test_by_hand_a_power_law():
    """300 images, 10 for each of 3 clients, and 270 by 6 : 3 : 2 of 11."""
    part = partition(
        tasks=((4,),), num_clients=3, kind="power-law", min_samples=10, minority=0.0, seed=2
    )
    assert sorted(map(len, part.train)) == [10 + 49, 10 + 74, 10 + 147]
    assert np.array_equal(np.sort(np.concatenate(part.train)), np.arange(1200, 1500))


def test_a_power_law_falls_upon_another_client_by_the_seed_and_leaves_the_floor():
    largest = set()
    for seed in range(20):
        part = partition(
            tasks=((4,),), num_clients=4, kind="power-law", min_samples=75, minority=0.0, seed=seed
        )
        assert {len(samples) for samples in part.train} == {75}  # nothing is left to be uneven
        part = partition(tasks=((4,),), num_clients=4, kind="power-law", minority=0.0, seed=seed)
        largest.add(int(np.argmax([len(samples) for samples in part.train])))
    assert largest == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="min-samples is 76, but the 300 samples"):
        partition(tasks=((4,),), num_clients=4, kind="power-law", min_samples=76)


def test_flts_scenario_4():
    """Ten clusters of five of EMNIST's 47 classes, the last of two; 2,400 clients."""
    labels = np.repeat(np.arange(47), 2400)
    tasks = random_tasks("random:5", 47, seed=3)
    assert [len(task) for task in tasks] == [5] * 9 + [2]
    assert sorted(label for task in tasks for label in task) == list(range(47))
    both = (labels, np.arange(47))
    part = partition(tasks, "power-law", both, num_clients=2400, minority=0.0)
    assert np.bincount(part.client_tasks).tolist() == [240] * 10
    sizes = np.array([len(samples) for samples in part.train])
    assert sizes.sum() == 112_800
    # The rest of a cluster is 12,000 - 240 · 20 = 7,200; 1 + 1/2 + … + 1/240 is 6.06.
    assert sizes.max() == 20 + round(7200 / np.sum(1 / np.arange(1, 241)))
    assert set(sizes[part.client_tasks == 9]) == {20}  # 4,800 / 240


@pytest.mark.parametrize("kind", tuple(SPREADS))
def test_a_shared_class_is_split_evenly_between_its_tasks(kind):
    part = partition(tasks=RING, num_clients=10, kind=kind, minority=0.1, seed=1, min_samples=5)
    samples = [task_samples(part, c) for c in range(10)]
    assert np.array_equal(np.sort(np.concatenate(samples)), np.arange(len(LABELS)))
    for t, task in enumerate(RING):
        held = np.concatenate([samples[c] for c in np.flatnonzero(part.client_tasks == t)])
        counts = np.bincount(LABELS[held], minlength=10)
        assert counts[list(task)].tolist() == [150, 300, 150]
        assert counts.sum() == 600
    for c, t in enumerate(part.client_tasks):
        assert set(part.unintended(c)) == set(range(10)) - set(RING[t])
        assert len(part.unintended(c)) == 7
        assert set(TEST_LABELS[part.test[c]].tolist()) == set(RING[t])
        assert len(part.test[c]) == 60
        assert len(part.train[c]) - len(samples[c]) == round(0.1 * len(samples[c]))


def test_images_of_labels_in_no_task_are_not_used():
    part = partition(tasks=((0, 1), (2, 3)), num_clients=4, minority=0.5)
    assert set(LABELS[np.concatenate(part.train)].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1|2,1,2", "label 2 stands twice in a task"),
        ("0,1|2|1,0", "two tasks have the same labels"),
        ("0,1||2", "cannot be read"),
        ("zero|one", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_tasks_that_cannot_be(text, message):
    with pytest.raises(ValueError, match=message):
        parse_tasks(text)


def test_tasks_are_read_as_written():
    assert parse_tasks("0,2,4|6, 8,1|3,5,7,9") == THREE
    assert parse_tasks("0,1,2|2,3,7") == ((0, 1, 2), (2, 3, 7))  # FLT, scenario 2


def test_tasks_that_name_absent_labels():
    with pytest.raises(ValueError, match="a task has label 12, but no training sample has it"):
        partition(tasks=((0, 1), (2, 12)))


def test_by_hand_each_task_has_the_clients_that_it_is_given():
    """MT-HFL's clothes, shoes and bag: 5, 3 and 2 clients."""
    tasks = ((0, 1, 2, 3, 4, 6), (5, 7, 9), (8,))
    part = partition(tasks=tasks, num_clients=10, clients_per_task="5,3,2", kind="equal")
    assert np.bincount(part.client_tasks).tolist() == [5, 3, 2]
    samples = [len(task_samples(part, c)) for c in range(10)]
    assert [samples[c] for c in np.argsort(part.client_tasks, kind="stable")] == (
        [360] * 5 + [300] * 3 + [150] * 2  # 1,800 / 5, 900 / 3 and 300 / 2
    )


@pytest.mark.parametrize("counts", [(13, 12), (9, 9, 8), (10, 5, 5, 5)])
def test_numbers_of_clients_that_do_not_fit_are_refused(counts):
    written = ",".join(map(str, counts))
    with pytest.raises(
        ValueError,
        match=f"clients-per-task is {written}, which is {sum(counts)} clients of {len(counts)} "
        "tasks, but num-clients is 25 and there are 3 tasks",
    ):
        partition(clients_per_task=written)


def test_default_tasks_are_the_papers_or_an_even_split():
    assert default_tasks("cifar10", 3, 10) == ((0, 1, 8), (9, 2, 3), (4, 5, 6, 7))
    assert default_tasks("folder", 2, 5) == ((0, 1, 2), (3, 4))
    with pytest.raises(ValueError, match="num-tasks is 11, but mnist has 10 classes"):
        default_tasks("mnist", 11, 10)


def test_the_tasks_of_rotated_mnist_are_its_first_rotations():
    assert default_tasks("rotated-mnist", 4, 10) == ROTATIONS
    assert default_tasks("rotated-mnist", 2, 10) == (tuple(range(10)), tuple(range(10, 20)))
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"num-tasks is {count}, but .* 4 rotations.* 1 to 4"):
            default_tasks("rotated-mnist", count, 10)
