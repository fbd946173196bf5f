"""Packed arrays come out as they went in, in few objects with unforeseeable names."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.recorddict_pb2 import ConfigRecord as OnTheWire
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fl_core.messages import packing
from fl_core.messages.packing import PACKED, SALT, Packer, is_piece, unpack_content

ARRAYS = arrays.arrays(
    arrays.floating_dtypes(sizes=(32, 64)) | arrays.integer_dtypes() | arrays.boolean_dtypes(),
    arrays.array_shapes(min_dims=0, min_side=0),
)


def record(count, size=10):
    return ArrayRecord({f"layer {i}": Array(np.full(size, i, np.float32)) for i in range(count)})


def content():
    config, metrics = ConfigRecord({"name": "berlin"}), MetricRecord({"saved": 1})
    return RecordDict({"arrays": record(3), "config": config, "metrics": metrics})


def packed_by_hand(listed, data=b"", *, length=None):
    text = listed if isinstance(listed, bytes) else json.dumps(listed).encode()
    whole = (len(text) if length is None else length).to_bytes(8, "little") + text + data
    return RecordDict({"arrays/0": ConfigRecord({PACKED: bytes(16) + whole})})


def part(**changes):
    said = {"name": "a", "dtype": "float32", "shape": [1], "stype": "numpy.ndarray", "size": 4}
    return said | changes


@given(st.lists(ARRAYS, max_size=4), st.integers(1, 200))
def test_what_was_packed_comes_out_to_the_byte(given_arrays, piece):
    before = ArrayRecord({str(i): Array(np.asarray(one)) for i, one in enumerate(given_arrays)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_PIECE", piece)
        sent = Packer().pack(RecordDict({"a/b": before, "none": ArrayRecord()}))
    # In any order of the pieces.
    after = unpack_content(RecordDict(dict(reversed(sent.items()))))
    assert set(after) == {"a/b", "none"}
    assert not after.array_records["none"]
    found = after.array_records["a/b"]
    assert list(found) == list(before)
    for name, one in before.items():
        other = found[name]
        assert (other.dtype, tuple(other.shape), other.stype, other.data) == (
            *(one.dtype, tuple(one.shape), one.stype, one.data),
        )


def test_what_is_not_packed_is_only_salted():
    sent = Packer().pack(content())
    assert sent["config"]["name"] == "berlin"
    assert sent["metrics"]["saved"] == 1
    again = unpack_content(sent)
    assert dict(again["config"]) == {"name": "berlin"}
    assert dict(again["metrics"]) == {"saved": 1}
    assert dict(unpack_content(content())) == dict(content())


def test_a_model_of_eight_arrays_is_three_objects_instead_of_nineteen(monkeypatch):
    """The message, its content, and the record and two for each array; as many requests."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)

    def objects(sent):
        tree = get_object_tree(Message(sent, dst_node_id=5, message_type="train"))
        return len({one.object_id for one in iterate_object_tree(tree)})

    model = RecordDict({"arrays": record(8)})
    assert objects(model) == 3 + 2 * 8
    assert objects(Packer().pack(model)) == 3


def test_no_object_is_called_as_before(monkeypatch):
    monkeypatch.setattr(packing, "_PIECE", 64)
    named = [set(get_all_nested_objects(Packer().pack(content()))) for _ in range(20)]
    assert all(len(one) > 8 for one in named)
    assert len(set.union(*named)) == sum(map(len, named))
    before = content()
    Packer().pack(before)
    assert SALT not in before["config"]


def test_contents_that_share_arrays_still_share_them():
    """So that what goes to all clients is stored, and held in memory, once."""
    packer, model = Packer(), record(3)
    one = packer.pack(RecordDict({"arrays": model}))
    other = packer.pack(RecordDict({"arrays": model, "m": MetricRecord({"a": 1})}))
    assert one["arrays/0"][PACKED] is other["arrays/0"][PACKED]
    third = packer.pack(RecordDict({"arrays": record(3, size=11)}))
    assert third["arrays/0"][PACKED] != one["arrays/0"][PACKED]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (packed_by_hand([part()], length=10**9), "do not begin with their list"),
        (packed_by_hand(b"[" + b" " * 2**20 + b"]"), "do not begin with their list"),
        (packed_by_hand(b"nothing"), "packed arrays have a wrong list"),
        (packed_by_hand([part(size=-4)]), "greater than or equal to 0"),
        (packed_by_hand([part(shape=[-1])], bytes(4)), "greater than or equal to 0"),
        (packed_by_hand([{"name": "a"}]), "packed arrays have a wrong list"),
        (packed_by_hand([part()], bytes(5)), "another length than in their list"),
        (packed_by_hand([part(size=10**12)], bytes(4)), "another length than in their list"),
        (packed_by_hand([part(), part()], bytes(8)), "two packed arrays have the same name"),
        (RecordDict({"arrays": ConfigRecord({PACKED: b""})}), "has no number"),
        (RecordDict({"arrays/²": ConfigRecord({PACKED: b""})}), "has no number"),
        (RecordDict({"arrays/0": ConfigRecord({PACKED: "text"})}), "has no number or is not bytes"),
        (RecordDict({"arrays/1": ConfigRecord({PACKED: b""})}), "a piece .* is missing"),
        (RecordDict({"arrays/0": ConfigRecord({PACKED: b""})}), "do not begin with their list"),
    ],
)
def test_what_a_device_calls_packed_is_read_with_care(sent, why):
    with pytest.raises(ValueError, match=why):
        unpack_content(sent)


def body(sent):
    return get_object_body(sent.deflate(), ConfigRecord)


@pytest.mark.parametrize("size", [0, 1, 90, 127, 128, 2**14, 2**21, 5 * 2**20])
def test_a_piece_is_recognised_by_its_first_bytes(size):
    assert is_piece(body(ConfigRecord({PACKED: bytes(size)})))


@given(st.integers(0, 40), st.integers(0, 255), st.integers(0, 300))
def test_a_recognised_piece_is_read_as_one(at, byte, size):
    """Whatever a device writes there, Protobuf finds bytes and nothing else, or refuses it."""
    changed = bytearray(body(ConfigRecord({PACKED: b"\x0a" * size})))
    changed[at % len(changed)] = byte
    if not is_piece(bytes(changed)):
        return
    found = OnTheWire.FromString(bytes(changed))
    assert [(one.key, one.value.WhichOneof("value")) for one in found.items] == [(PACKED, "bytes")]
