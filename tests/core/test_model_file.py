import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fl_core.data.settings import MODELS
from fl_core.models.build import build_model
from fl_core.models.model_file import ModelCard, load_model, save_model

CARD = ModelCard("mlp-32", (1, 4, 5), ("cat", "dog"), "rcc-pfl", 1, 20)
FORMAT = "fedkin model 1"


def arrays_of(card, seed=3):
    model = build_model(card.architecture, card.sample_shape, len(card.class_names), seed)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def write(path, fields=None, arrays=None, card_text=None):
    """Write a file as `save_model` does, with other fields in its card, arrays or card."""
    card = {
        "architecture": "mlp-32",
        "sample_shape": [1, 4, 5],
        "class_names": ["cat", "dog"],
        "strategy": "rcc-pfl",
        "cluster": 1,
        "num_rounds": 20,
    }
    text = json.dumps(card | (fields or {})) if card_text is None else card_text
    arrays = arrays_of(CARD) if arrays is None else arrays
    save_file(arrays, path, metadata={FORMAT: text})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "model.safetensors"


@pytest.fixture
def forged(tmp_path):
    return tmp_path / "forged.safetensors"


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 40)])
def test_what_is_saved_is_loaded_and_answers_the_same(path, architecture, shape):
    card = ModelCard(architecture, shape, ("a", "b\n", '"ü,"'), "fedhc", 2, 7)
    original = build_model(architecture, shape, 3, seed=5).eval()
    save_model(path, {name: t.numpy() for name, t in original.state_dict().items()}, card)
    model, read = load_model(path)
    assert read == card
    assert not model.training
    images = torch.rand(4, *shape)
    assert torch.equal(model(images), original(images))
    assert list(model.state_dict()) == list(original.state_dict())
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_equal_models_are_equal_files(path):
    """Whatever order safetensors writes entries of metadata in: it differs from call to call."""
    written = set()
    for _ in range(8):
        save_model(path, arrays_of(CARD), CARD)
        written.add(path.read_bytes())
    assert len(written) == 1


def test_arrays_of_another_model_are_not_written(path):
    with pytest.raises(
        ValueError,
        match=r"model.safetensors is not written: 2 of its arrays do not fit model mlp-32 for "
        r"1×4×5 images and 2 classes: 'output.weight' is float32 \(3, 32\) but should be "
        r"float32 \(2, 32\)\.$",
    ):
        save_model(path, arrays_of(replace(CARD, class_names=("a", "b", "c"))), CARD)
    assert not path.exists()


WRONG_FIELDS = [
    ("architecture", "resnet", "must be one of logistic-regression, mlp, mlp-32, cnn"),
    ("architecture", ["mlp"], "must be text"),
    ("architecture", "mlp", r"3 of its arrays do not fit model mlp for .*'hidden.weight' is"),
    ("architecture", "cnn", "of at least 16×16 pixels, but samples have"),
    ("sample_shape", [1, 4, 6], r"'hidden.weight' is float32 \(32, 20\) but .* \(32, 24\)"),
    ("sample_shape", [4], r"fit model mlp-32 for 4 images .* \(32, 20\) but .* \(32, 4\)"),
    ("sample_shape", [3, 1024, 1025], r"is \(3, 1024, 1025\), but it must be 1 to 8 .* 3,145,728"),
    ("sample_shape", [1, 4.5, 5], "sample_shape.1 is 4.5, but it must be a whole number"),
    ("sample_shape", "145", "sample_shape is '145', but it must be a list"),
    ("class_names", [], "1 to 10000 texts"),
    ("class_names", ["a"] * 10_001, r"\('a', .*1 to 10000 texts"),
    ("class_names", ["cat", 3], "class_names.1 is 3, but it must be text"),
    ("class_names", ["cat", "\ud800"], "Invalid JSON"),
    ("class_names", ["a", "b", "c"], r"'output.weight' is float32 \(2, 32\) but .* \(3, 32\)"),
    ("surname", "x", "has no key surname"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG_FIELDS)
def test_wrong_cards_are_refused(forged, name, value, message):
    write(forged, {name: value})
    with pytest.raises(
        ValueError, match=r"forged.safetensors is not a model of this app"
    ) as caught:
        load_model(forged)
    assert caught.match(message)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", r"it is \[\], but "),
        ("{}", "lacks the key architecture"),
        ("[" * 200_000, "Invalid JSON"),
    ],
)
def test_cards_that_are_no_cards(forged, card, message):
    write(forged, card_text=card)
    with pytest.raises(ValueError, match=message):
        load_model(forged)


def without(arrays, name):
    return {key: array for key, array in arrays.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: without(a, "output.bias"),
            r"'output.bias' is missing but should be float32 \(2",
        ),
        (lambda a: a | {"extra": a["output.bias"]}, r"'extra' is float32 \(2,\) but .* be missing"),
        (
            lambda a: a | {"output.bias": a["output.bias"].astype(np.float64)},
            "'output.bias' is another ",
        ),
        (lambda a: a | {"output.bias": a["output.bias"][None]}, r"float32 \(1, 2\) but"),
        (lambda a: {}, "4 of its arrays do not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(forged, change, message):
    write(forged, arrays=change(arrays_of(CARD)))
    with pytest.raises(ValueError, match=message):
        load_model(forged)


def test_a_forged_card_takes_no_memory_for_what_it_claims(forged):
    # 3·1024·1024 pixels to 10,000 classes are 31 billion weights, 126 GB: no test would survive.
    fields = {
        "architecture": "logistic-regression",
        "sample_shape": [3, 1024, 1024],
        "class_names": ["a"] * 10_000,
    }
    write(forged, fields)
    with pytest.raises(ValueError, match=r"but should be float32 \(10000, 3145728\)"):
        load_model(forged)


@pytest.mark.parametrize("content", [b"", b"no model", bytes(1000), b"\xff" * 1000, b"PK\x03\x04"])
def test_other_files_are_refused(forged, content):
    forged.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"forged.safetensors is not a model of this app \(.*\): give"
    ):
        load_model(forged)


def test_a_pickle_is_refused_and_not_run(forged):
    torch.save(build_model("mlp-32", (1, 4, 5), 2, 0), forged)
    with pytest.raises(ValueError, match="is not a model of this app"):
        load_model(forged)


@given(data=st.data())
def test_any_damaged_byte_is_refused_or_leaves_a_model_that_fits(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    write(path)
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    position = data.draw(st.integers(0, 8 + length - 1))
    content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        model, card = load_model(path)
    except ValueError as error:
        assert "damaged.safetensors is not a model of this app" in str(error)
    else:
        answers = model(torch.zeros(1, *card.sample_shape))
        assert answers.shape == (1, len(card.class_names))


def test_files_that_are_not_there_or_are_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        load_model(tmp_path / "nothing.safetensors")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        load_model(tmp_path)
