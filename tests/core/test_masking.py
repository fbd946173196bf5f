"""The numbers of secure aggregation: fixed point, masks, thresholds."""

import numpy as np
import pytest

from fl_core import masking
from fl_core.masking import decode_sum, encode_update, mask, max_weight, num_words, threshold
from strategies import ClusterMean
from strategies.rounds.round_state import Clusters, Round, Update


def models(count, scale=0.1, seed=0):
    """Return a model that was sent, and what clients made of it."""
    rng = np.random.default_rng(seed)
    received = {
        "w": rng.normal(size=(40, 50)).astype(np.float32),
        "double": rng.normal(size=7),
        "empty": np.zeros((0, 3), np.float32),
        "steps": np.array(100, np.int64),
    }
    trained = [
        {
            name: (
                before + client + 3
                if before.dtype.kind == "i"
                else (before + rng.normal(scale=scale, size=before.shape)).astype(before.dtype)
            )
            for name, before in received.items()
        }
        for client in range(count)
    ]
    return received, trained


def summed(received, trained, weights, losses=None):
    losses = losses or [1.0] * len(trained)
    words = [
        encode_update(after, received, weight, loss, len(trained))
        for after, weight, loss in zip(trained, weights, losses, strict=True)
    ]
    return np.sum(words, axis=0, dtype=np.uint64)


@pytest.mark.parametrize("count", [3, 25])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sum_is_the_plain_mean_but_for_its_last_digits(count, weighted):
    received, trained = models(count)
    weights = [17 * (client + 1) if weighted else 1 for client in range(count)]
    updates = tuple(Update(c, 0, after, weights[c]) for c, after in enumerate(trained))
    (plain,) = ClusterMean(weighted)(
        Round(1, Clusters(dict.fromkeys(range(count), 0)), [received], updates)
    )
    words = summed(received, trained, weights)
    assert len(words) == num_words(received)
    total = decode_sum(words, received, count, max(weights))
    assert total.num_clients == count
    for name, expected in plain.items():
        found = total.model[name]
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        last_digit = np.abs(np.spacing(expected)) if expected.dtype == np.float32 else 1e-15
        assert np.all(np.abs(found - expected) <= masking.STEP / 2 + last_digit), name
    assert total.model["steps"] == plain["steps"]


def test_the_mean_loss_is_known_if_all_sent_one():
    received, trained = models(3)
    known = summed(received, trained, [1, 1, 1], [0.5, 1.0, 3.0])
    assert decode_sum(known, received, 3, 1).loss == 1.5
    for unknown in (None, float("nan"), 1e9, -1.0):
        words = summed(received, trained, [1, 1, 1], [0.5, unknown, 3.0])
        assert decode_sum(words, received, 3, 1).loss is None


@pytest.mark.parametrize("count", [3, 10, 1000, 100_000])
def test_the_largest_sum_fits(count):
    largest = max_weight(count) * int(masking.MOST_CHANGE / masking.STEP)
    assert count * largest < 2**63 <= count * (largest + 2 * 2**36)


def test_the_largest_updates_do_not_overflow():
    received = {"w": np.zeros(2), "steps": np.array(0)}
    most = {"w": np.array([256.0, -256.0]), "steps": np.array(2**36)}
    words = summed(received, [most] * 5, [max_weight(5)] * 5, [256.0] * 5)
    total = decode_sum(words, received, 5, max_weight(5))
    assert total.model["w"].tolist() == [256.0, -256.0]
    assert total.model["steps"] == 2**36
    assert total.loss == 256.0


def changed(name, value):
    received, (after, *_) = models(1)
    return {**after, name: np.full_like(received[name], value)}, received


@pytest.mark.parametrize("value", [np.nan, np.inf, 300.0, -300.0])
def test_an_update_without_room_is_refused(value):
    after, received = changed("w", value)
    with pytest.raises(ValueError, match="its w changed by more than 256"):
        encode_update(after, received, 1, None, 3)


@pytest.mark.parametrize("weight", [0, -1, max_weight(3) + 1])
def test_a_weight_without_room_is_refused(weight):
    received, (after,) = models(1)
    with pytest.raises(ValueError, match=rf"weight is {weight}, .* from 1 to {max_weight(3)}"):
        encode_update(after, received, weight, None, 3)


def test_another_model_is_refused():
    received, (after,) = models(1)
    with pytest.raises(ValueError, match="the parameters of its model are not those"):
        encode_update({"w": after["w"]}, received, 1, None, 3)
    for wrong in (after["w"].astype(np.float64), after["w"][:2]):
        with pytest.raises(ValueError, match="its w has another type or shape"):
            encode_update({**after, "w": wrong}, received, 1, None, 3)


@pytest.mark.parametrize("variance", [-5.0, -1e-9])
def test_variances_of_a_sum_are_not_negative(variance):
    """Three zeros in fixed point may come to a hair less; 0 + 0 - 5 is somebody's garbage."""
    received = {"norm1.running_var": np.float32([0.0])}
    trained = [{"norm1.running_var": np.float32([one])} for one in (0, 0, variance)]
    words = summed(received, trained, [1, 1, 1])
    if variance == -5:
        with pytest.raises(masking.CorruptedSumError, match="the mean of variances is negative"):
            decode_sum(words, received, 3, 1)
        return
    assert decode_sum(words, received, 3, 1).model["norm1.running_var"] == 0


def test_garbage_in_the_sum_is_found():
    received, trained = models(3)
    words = summed(received, trained, [1, 1, 1])
    decode_sum(words, received, 3, 1)
    for place, value in ((0, 4), (0, 2), (1, 4), (2, 2**40), (5, 2**38), (5, 2**63)):
        spoilt = words.copy()
        spoilt[place] = value
        with pytest.raises(ValueError, match="the sum is not one of updates"):
            decode_sum(spoilt, received, 3, 1)


def test_masks_are_chacha20():
    # RFC 8439, A.1, test vector 1.
    first = mask(bytes(32), 1000)[0]
    assert int(first).to_bytes(8, "little").hex() == "76b8e0ada0f13d90"
    assert mask(bytes(31) + b"\1", 1000)[0] != first


def test_masks_in_common_cancel_and_are_added_in_place():
    words = np.arange(4, dtype=np.uint64)
    key = bytes(range(32))
    masking.add_common_mask(words, key, 2, 5)
    assert (words - mask(key, 4)).tolist() == [0, 1, 2, 3]
    masking.add_common_mask(words, key, 5, 2)
    assert words.tolist() == [0, 1, 2, 3]


def test_the_threshold_is_three_and_more_than_half():
    assert [threshold(n) for n in (3, 4, 5, 6, 7, 25)] == [3, 3, 3, 4, 4, 13]
    # No two groups of so many clients without a common one: neither secret of anybody is lost.
    assert all(2 * threshold(n) > n for n in range(3, 300))


def test_a_sum_is_scaled_with_all_that_belongs_to_its_model():
    """From (0, 0) to (30, 40) is 50; a tenth of it, of the variance and of the count of batches."""
    sent = {
        "weight": np.zeros(2, np.float32),
        "running_var": np.array([1.0], np.float32),
        "batches": np.array(7, np.int64),
    }
    model = {
        "weight": np.array([30, 40], np.float32),
        "running_var": np.array([0.5], np.float32),
        "batches": np.array(27, np.int64),
    }
    total = masking.Total(model, num_clients=3, loss=2.0, norm=50.0)
    found = masking.scale_to_norm(total, sent, 5.0)
    assert found.model["weight"].tolist() == [3, 4]
    assert found.model["running_var"] == pytest.approx(0.95)
    assert found.model["batches"] == 9
    assert {name: array.dtype for name, array in found.model.items()} == {
        name: array.dtype for name, array in sent.items()
    }
    assert found._replace(model=model) == total._replace(norm=5.0)
