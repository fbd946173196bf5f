"""What a salt changes and what it leaves."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis.extra import numpy as arrays

from fl_core.wire.message_salt import KEY, Salt, array_with_comment, without_salt


def content():
    weights = ArrayRecord({"weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3))})
    config, metrics = ConfigRecord({"name": "berlin"}), MetricRecord({"kept": 1})
    return RecordDict({"arrays": weights, "config": config, "metrics": metrics})


@given(
    arrays.arrays(
        arrays.floating_dtypes(sizes=(32, 64)) | arrays.integer_dtypes() | arrays.boolean_dtypes(),
        arrays.array_shapes(min_dims=0, min_side=0),
    )
)
def test_an_array_keeps_its_numbers(array):
    plain = Array(np.asarray(array))
    salted = array_with_comment(plain, Salt().text)
    assert salted.data != plain.data
    read = salted.numpy()
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(read, array)


def test_columns_stay_columns():
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    read = array_with_comment(Array(array), "ab").numpy()
    np.testing.assert_array_equal(read, array)


def test_what_is_no_numpy_array_stays_as_it_is():
    strange = Array(dtype="x", shape=(1,), stype="other", data=b"abc")
    assert array_with_comment(strange, "ab") is strange


def test_no_part_of_a_message_is_called_as_before():
    before = content()
    after = Salt().added_to(before)
    assert not set(get_all_nested_objects(before)) & set(get_all_nested_objects(after))
    assert KEY not in before.config_records["config"]


def test_two_salts_are_unlike_and_long():
    salts = {Salt().text for _ in range(100)}
    assert len(salts) == 100
    assert min(map(len, salts)) >= 32
    assert len({len(salt) for salt in salts}) > 10


def test_messages_that_share_a_salt_share_their_arrays():
    """So that what goes to all clients is stored, and held in memory, once."""
    salt, model = Salt(), content()
    one, other = salt.added_to(model), salt.added_to(model)
    assert (
        one.array_records["arrays"]["weight"].data is other.array_records["arrays"]["weight"].data
    )


def test_it_can_be_taken_out():
    again = without_salt(Salt().added_to(content()))
    assert dict(again.config_records["config"]) == {"name": "berlin"}
    assert dict(again.metric_records["metrics"]) == {"kept": 1}
    # To the byte: the bytes of answers are counted.
    before, after = (one.array_records["arrays"]["weight"] for one in (content(), again))
    assert after.data == before.data
