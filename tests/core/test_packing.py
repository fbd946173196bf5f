"""Packed arrays come out as they went in, and make a message of few objects."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_tree, iterate_object_tree
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fl_core.wire.message_salt import Salt, without_salt
from fl_core.wire.packing import PACKED, Packer, unpacked

ARRAYS = arrays.arrays(
    arrays.floating_dtypes(sizes=(32, 64)) | arrays.integer_dtypes() | arrays.boolean_dtypes(),
    arrays.array_shapes(min_dims=0, min_side=0),
)


def record(count, size=10):
    return ArrayRecord({f"layer {i}": Array(np.full(size, i, np.float32)) for i in range(count)})


def packed_by_hand(listed, data=b"", *, length=None):
    text = listed if isinstance(listed, bytes) else json.dumps(listed).encode()
    whole = (len(text) if length is None else length).to_bytes(8, "little") + text + data
    numbers = np.frombuffer(whole, np.uint8)
    return RecordDict({"arrays": ArrayRecord({PACKED: Array(numbers)})})


def part(**changes):
    said = {"name": "a", "dtype": "float32", "shape": [1], "stype": "numpy.ndarray", "size": 4}
    return said | changes


@given(st.lists(ARRAYS, max_size=4), st.booleans())
def test_what_was_packed_comes_out_to_the_byte(given_arrays, salted):
    before = ArrayRecord({str(i): Array(np.asarray(one)) for i, one in enumerate(given_arrays)})
    content = RecordDict({"arrays": before, "config": ConfigRecord({"name": "berlin"})})
    sent = Packer().packed(content)
    if salted:
        sent = without_salt(Salt().added_to(sent))
    after = unpacked(sent)
    assert dict(after.config_records["config"]) == {"name": "berlin"}
    found = after.array_records["arrays"]
    assert list(found) == list(before)
    for name, one in before.items():
        other = found[name]
        assert (other.dtype, tuple(other.shape), other.stype, other.data) == (
            *(one.dtype, tuple(one.shape), one.stype, one.data),
        )


def test_a_model_of_eight_arrays_is_five_objects_instead_of_nineteen(monkeypatch):
    """The message, its content, the record and two for each array; as many requests each way."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)

    def objects(content):
        tree = get_object_tree(Message(content, dst_node_id=5, message_type="train"))
        return len({one.object_id for one in iterate_object_tree(tree)})

    model = RecordDict({"arrays": record(8)})
    assert objects(model) - objects(Packer().packed(model)) == 2 * 8 - 2
    assert objects(Packer().packed(model)) == 5


def test_one_array_or_none_stays_as_it_is():
    content = RecordDict({"one": record(1), "none": record(0), "m": MetricRecord({"loss": 0.5})})
    sent = Packer().packed(content)
    assert [list(sent[name]) for name in ("one", "none", "m")] == [["layer 0"], [], ["loss"]]


def test_contents_that_share_arrays_still_share_them():
    packer, model = Packer(), record(3)
    one = packer.packed(RecordDict({"arrays": model}))
    other = packer.packed(RecordDict({"arrays": model, "m": MetricRecord({"a": 1})}))
    assert one["arrays"][PACKED] is other["arrays"][PACKED]
    third = packer.packed(RecordDict({"arrays": record(3, size=11)}))
    assert third["arrays"][PACKED].data != one["arrays"][PACKED].data


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (packed_by_hand([part()], length=10**9), "do not begin with a list"),
        (packed_by_hand(b"[" + b" " * 2**20 + b"]"), "do not begin with a list"),
        (packed_by_hand(b"nothing"), "the list of packed arrays is wrong"),
        (packed_by_hand([part(size=-4)]), "greater than or equal to 0"),
        (packed_by_hand([part(shape=[-1])], bytes(4)), "greater than or equal to 0"),
        (packed_by_hand([{"name": "a"}]), "the list of packed arrays is wrong"),
        (packed_by_hand([part()], bytes(5)), "not as long as their list says"),
        (packed_by_hand([part(size=10**12)], bytes(4)), "not as long as their list says"),
        (packed_by_hand([part(), part()], bytes(8)), "two packed arrays have one name"),
    ],
)
def test_what_a_device_calls_packed_is_read_with_care(content, why):
    with pytest.raises(ValueError, match=why):
        unpacked(content)
