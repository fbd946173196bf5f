"""Checkpoints: everything comes back as it was, and nothing else is taken for one."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fl_core.models.checkpoint import load_checkpoint, save_checkpoint

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS | st.frozensets(st.integers()) | st.sets(st.text()),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=VALUES)
def test_plain_values_come_back_with_their_types(value, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "checkpoint.safetensors"
    save_checkpoint(path, {"value": value})
    loaded = load_checkpoint(path)["value"]
    assert repr(loaded) == repr(value) or loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "int64", "int32", "uint8", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_come_back_to_the_bit(kind, shape, tmp_path):
    array = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    save_checkpoint(tmp_path / "c", {"of": {3: array, "turned": array.T}})
    loaded = load_checkpoint(tmp_path / "c")["of"]
    assert list(loaded) == [3, "turned"]
    for found, expected in ((loaded[3], array), (loaded["turned"], array.T)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


def test_an_array_that_several_share_is_stored_once(tmp_path):
    array = np.ones(50_000)
    save_checkpoint(tmp_path / "c", {"models": [{"weight": array}] * 3, "again": array})
    assert (tmp_path / "c").stat().st_size < 2 * array.nbytes
    loaded = load_checkpoint(tmp_path / "c")
    assert all((model["weight"] == 1).all() for model in loaded["models"])


def test_numpys_numbers_are_pythons_as_names_and_in_sets(tmp_path):
    groups = {np.int64(1): frozenset([np.int64(2), np.int64(1)])}
    save_checkpoint(tmp_path / "c", {"groups": groups})
    assert load_checkpoint(tmp_path / "c")["groups"] == {1: frozenset([1, 2])}


def test_nan_and_infinity_come_back(tmp_path):
    save_checkpoint(tmp_path / "c", {"loss": [math.nan, math.inf, -math.inf]})
    loss = load_checkpoint(tmp_path / "c")["loss"]
    assert math.isnan(loss[0]) and loss[1:] == [math.inf, -math.inf]


def test_what_it_cannot_hold_is_refused_and_the_last_checkpoint_stays(tmp_path):
    save_checkpoint(tmp_path / "c", {"round": 1})
    with pytest.raises(TypeError, match="cannot hold an object"):
        save_checkpoint(tmp_path / "c", {"round": 2, "wrong": object()})
    with pytest.raises(TypeError, match="cannot hold a PosixPath"):
        save_checkpoint(tmp_path / "c", {"round": 2, "folder": [Path()]})
    assert load_checkpoint(tmp_path / "c") == {"round": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


def test_other_files_are_no_checkpoints(tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, {"round": 1, "model": np.ones(9)})
    whole = path.read_bytes()
    for damaged in (b"", whole[:-4], whole[:30], b"\x80\x04." + whole):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a checkpoint of this app"):
            load_checkpoint(path)
    for metadata in (
        None,
        {"format": "fedkin checkpoint 2"},
        {"format": "fedkin checkpoint 2", "state": "{"},
        {"format": "fedkin checkpoint 2", "state": "[1]"},
        {"format": "fedkin checkpoint 2", "state": '{"array": "9"}'},
        {"format": "fedkin checkpoint 2", "state": '{"eval": ["1"]}'},
        {"format": "fedkin checkpoint 2", "state": '{"dict": [[[1], 2]]}'},
        {"format": "fedkin checkpoint 1", "state": '{"dict": []}'},
    ):
        save_file({"0": np.ones(2)}, path, metadata=metadata)
        with pytest.raises(ValueError, match="is not a checkpoint of this app"):
            load_checkpoint(path)
    with pytest.raises(ValueError, match="its format is fedkin checkpoint 1, not fedkin"):
        load_checkpoint(path)
    with pytest.raises(OSError, match="missing"):
        load_checkpoint(tmp_path / "missing")
