import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.data.user_data import Partitions, dataset_of_partitions
from fl_core.partitions.federation import simulate_federation, spread
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.validation import split_clients, split_validation


def test_the_last_of_each_class_validate_where_samples_are_in_time_and_one_between_is_left_out():
    labels = np.array([0, 1, 0, 1, 0, 0, 0, 1, 1, 1])
    parts = split_validation(labels, 0.4)
    assert np.flatnonzero(parts.validation).tolist() == [5, 6, 8, 9]
    assert np.flatnonzero(parts.train).tolist() == [0, 1, 2, 3]  # 4 and 7 are next to both


@pytest.mark.parametrize(
    ("count", "share", "train", "validation"),
    [
        (2, 0.5, [0], [1]),  # none is left out, so that one trains
        (3, 0.34, [0], [2]),
        (3, 0.6, [0], [1, 2]),
        (2, 0.9, [0], [1]),
        (4, 0.1, [0, 1], [3]),
    ],
)
def test_by_hand_few_samples_in_time(count, share, train, validation):
    parts = split_validation(np.zeros(count, np.int64), share)
    assert np.flatnonzero(parts.train).tolist() == train
    assert np.flatnonzero(parts.validation).tolist() == validation


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=60),
    st.floats(0.01, 0.5),
    st.integers(0, 3),
)
def test_drawn_samples_are_their_share_whatever_their_class_and_one_trains(labels, share, seed):
    labels = np.array(labels)
    parts = split_validation(labels, share, np.random.default_rng(seed))
    assert not (parts.train & parts.validation).any()
    assert (parts.train | parts.validation).all()  # drawn, none is between
    assert parts.train.any()
    assert parts.validation.any()
    expected = share * len(labels)
    assert abs(parts.validation.sum() - max(1, min(expected, len(labels) - 1))) <= 0.5 + 1e-9
    others = split_validation(labels[::-1] % 2, share, np.random.default_rng(seed))
    assert (others.validation == parts.validation).all()
    for label in set(labels.tolist()):  # in time
        indices = labels == label
        held_out = split_validation(labels, share).validation[indices].sum()
        assert abs(held_out - share * indices.sum()) <= 1 + 1e-9


@given(st.integers(2, 60), st.sampled_from([(0.2, 5), (0.34, 2), (0.1, 10)]), st.integers(0, 3))
def test_each_fold_holds_out_other_samples_and_five_fifths_are_all(count, split, seed):
    share, folds = split
    parts = [
        split_validation(np.arange(count), share, np.random.default_rng(seed), fold)
        for fold in range(folds)
    ]
    often = np.sum([part.validation for part in parts], axis=0)
    assert often.max() == 1
    assert abs(often.sum() - max(1, share * folds * count)) <= 0.5 + 1e-9
    assert all((part.train ^ part.validation).all() for part in parts)
    # In time, only the last block validates, and no fold trains on it.
    first, later = (split_validation(np.zeros(count), share, None, fold) for fold in (0, 1))
    assert (later.train == first.train).all()
    assert not later.validation.any()


@pytest.mark.parametrize("labels", [[3], [0.5, 0.25, 1.0]])
def test_a_single_sample_trains_and_numbers_are_of_one_class(labels):
    parts = [
        split_validation(np.array(labels), 0.34, np.random.default_rng(0), fold) for fold in (0, 1)
    ]
    assert parts[0].validation.sum() == (len(labels) > 1)
    assert all(part.train.any() for part in parts)


@given(
    st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=6),
    st.floats(0.01, 0.5),
    st.integers(0, 3),
)
def test_validation_samples_train_no_client(clients, share, seed):
    held = [np.array(sorted(indices)) for indices in clients]
    draws = [np.random.default_rng([seed, client]) for client in range(len(held))]
    parts = split_clients(held, [indices % 3 for indices in held], share, draws)
    pairs = list(zip(held, parts, strict=True))
    trained = {i for indices, part in pairs for i in indices[part.train]}
    validated = {i for indices, part in pairs for i in indices[part.validation]}
    assert not trained & validated
    assert trained | validated == set().union(*clients)
    assert all(part.train.any() for part in parts)


def test_a_simulated_client_trains_on_the_rest_and_tests_on_the_same():
    usual = {
        **{"dataset": "mnist-5k", "num_clients": 6, "seed": 3, "noise": "class-independent"},
        "minority": 0.0,
    }
    whole = simulate_federation(FederationSettings(**usual))
    cut = simulate_federation(FederationSettings(**usual, validation_share=0.2))
    for client in range(6):
        validated, trained = cut.validation[client], cut.partition.train[client]
        every = whole.partition.train[client]
        assert sorted([*validated, *trained]) == sorted(every)
        assert abs(len(validated) - 0.2 * len(every)) <= 0.5
        assert np.array_equal(cut.partition.test[client], whole.partition.test[client])
        noisy = dict(zip(every.tolist(), whole.train_labels[client].tolist(), strict=True))
        images, labels = cut.validation_data(client)
        assert labels.tolist() == [noisy[i] for i in validated.tolist()]
        assert (images == cut.dataset.train_samples[validated]).all()
        assert cut.train_labels[client].tolist() == [noisy[i] for i in trained.tolist()]
    assert whole.validation_data(0) is None


def test_validation_rows_are_scaled_by_what_training_rows_say():
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    y = np.zeros(10, np.int64)
    given = Partitions([(x, y, x[:2], y[:2])] * 2, class_names=["a", "b"], is_in_time=True)
    for scope in ("site", "all"):
        settings = FederationSettings(
            dataset="own", num_clients=2, seed=0, validation_share=0.2, standardise=scope
        )
        found = spread(settings, dataset_of_partitions("own", given))
        rows, _ = found.training_data(0)
        validated, _ = found.validation_data(0)
        assert len(rows) == 7
        assert rows.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
        assert rows.std(0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-6)
        step = rows[1] - rows[0]
        assert (validated[0] - rows[-1]).tolist() == pytest.approx((2 * step).tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("share", "train", "validation"),
    [
        (0.1, [0, 1], [3]),  # 2 is next to both
        (0.9, [1], [0, 2, 3]),
    ],
)
def test_by_hand_the_largest_class_gives_where_rounding_leaves_one_side_nothing(
    share, train, validation
):
    parts = split_validation(np.array([0, 1, 1, 1]), share)
    assert np.flatnonzero(parts.train).tolist() == train
    assert np.flatnonzero(parts.validation).tolist() == validation
