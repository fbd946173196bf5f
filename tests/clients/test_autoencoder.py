from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from clients.signatures import pretraining as module
from clients.signatures.autoencoder import build_autoencoder, encode, fit, load_autoencoder
from clients.signatures.pretraining import (
    choose_source,
    pretrained_autoencoder,
    read_autoencoder,
    save_autoencoder,
)
from fl_core.data.datasets import load_dataset


def pictures(count=8, channels=1, height=28, width=28, seed=0):
    shape = (count, channels, height, width)
    return torch.randint(
        0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Such small batches gain nothing from more, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_by_hand_the_gray_encoder_is_flts():
    # 1→16 and 16→4 channels of 3×3, with biases; 4·7·7 → 128; the way back 128 → 196, then
    # 4→16 and 16→1 of 2×2.
    autoencoder = build_autoencoder(1, seed=0)
    encoder = (9 * 16 + 16) + (16 * 9 * 4 + 4) + (196 * 128 + 128)
    decoder = (128 * 196 + 196) + (4 * 16 * 4 + 16) + (16 * 4 + 1)
    assert sum(p.numel() for p in autoencoder.encoder.parameters()) == encoder
    assert sum(p.numel() for p in autoencoder.parameters()) == encoder + decoder
    assert {name.split(".")[0] for name in autoencoder.state_dict()} == {"encoder", "decoder"}


@pytest.mark.parametrize("channels", [1, 3])
def test_the_seed_decides_the_weights_and_leaves_torchs_generator(channels):
    before = torch.random.get_rng_state()
    same = [build_autoencoder(channels, seed=3).state_dict() for _ in range(2)]
    other = build_autoencoder(channels, seed=4).state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(same[0][name], same[1][name]) for name in other)
    assert not torch.equal(same[0]["encoder.latent.weight"], other["encoder.latent.weight"])


@pytest.mark.parametrize("channels", [1, 3])
def test_fitting_lowers_the_error_and_repeats(channels):
    images = pictures(40, channels, 32, 32) // 8  # darker than what an untrained decoder gives
    found = []
    for _ in range(2):
        autoencoder = build_autoencoder(channels, seed=0)
        history = fit(autoencoder, images, 3, draws())
        assert history[2] < history[0]
        assert not autoencoder.training
        found.append((history, encode(autoencoder, images)))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


@settings(max_examples=15)
@given(st.integers(1, 300), st.data())
def test_an_embedding_is_a_function_of_its_image_alone(count, data):
    autoencoder = build_autoencoder(1, seed=0)
    images = pictures(count)
    found = encode(autoencoder, images)
    assert found.shape == (count, 128)
    assert found.dtype == np.float32
    one = data.draw(st.integers(0, count - 1))
    assert np.allclose(encode(autoencoder, images[one : one + 1]), found[one], atol=1e-5)


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32)])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (20, 36), (8, 8)])
def test_images_of_any_size_are_resized(channels, side, height, width):
    autoencoder = build_autoencoder(channels, seed=0)
    level = torch.full((2, channels, height, width), 77, dtype=torch.uint8)
    same = torch.full((2, channels, side, side), 77, dtype=torch.uint8)
    assert np.array_equal(encode(autoencoder, level), encode(autoencoder, same))
    assert len(fit(autoencoder, level, 1, draws())) == 1


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (pictures(2, 3), "have 3 channels, but the autoencoder takes 1"),
        (pictures(0), "no images"),
        (pictures(2).float(), "torch.uint8"),
        (pictures(2)[0], "torch.uint8"),
    ],
)
def test_images_that_do_not_fit(images, message):
    autoencoder = build_autoencoder(1, seed=0)
    with pytest.raises(ValueError, match=message):
        encode(autoencoder, images)
    with pytest.raises(ValueError, match=message):
        fit(autoencoder, images, 1, draws())


def test_no_autoencoder_for_two_channels():
    with pytest.raises(ValueError, match="have 2 channels"):
        build_autoencoder(2, seed=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_gives_the_autoencoder_back(tmp_path, channels):
    first, path = build_autoencoder(channels, seed=5), tmp_path / "folder" / "own.safetensors"
    save_autoencoder(first, path)
    for found in (
        read_autoencoder(path, channels),
        pretrained_autoencoder(str(path), channels),
        load_autoencoder(first.state_dict(), channels),
    ):
        assert all(
            torch.equal(t, first.state_dict()[name]) for name, t in found.state_dict().items()
        )
        assert not found.training


def test_the_encoder_alone_can_encode():
    first, images = build_autoencoder(1, seed=5), pictures(3)
    alone = {n: t for n, t in first.state_dict().items() if n.startswith("encoder.")}
    assert np.array_equal(encode(load_autoencoder(alone, 1), images), encode(first, images))


def change(weights, what):
    match what:
        case "missing":
            del weights["decoder.up1.bias"]
        case "unknown":
            weights["decoder.more"] = torch.zeros(1)
        case "shape":
            weights["encoder.conv1.weight"] = torch.zeros(16, 1, 5, 5)
        case "type":
            weights["encoder.conv1.bias"] = torch.zeros(16, dtype=torch.float64)
        case "value":
            weights["encoder.conv1.bias"][3] = float("nan")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "missing",
            'missing, unknown, or of another type or shape, for example "decoder.up1.bias"',
        ),
        ("unknown", '"decoder.more"'),
        ("shape", '"encoder.conv1.weight"'),
        ("type", '"encoder.conv1.bias"'),
        ("value", "not finite"),
    ],
)
def test_weights_that_are_not_such_an_autoencoders(tmp_path, what, message):
    weights = {n: t.contiguous().clone() for n, t in build_autoencoder(1, 0).state_dict().items()}
    change(weights, what)
    with pytest.raises(ValueError, match=message):
        load_autoencoder(weights, 1)
    path = tmp_path / "bad.safetensors"
    save_file(weights, path)
    with pytest.raises(ValueError, match=message) as caught:
        pretrained_autoencoder(str(path), 1)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_autoencoder(path, 1)
    path.write_bytes(b"not one of these")
    with pytest.raises(ValueError, match="not in safetensors format"):
        read_autoencoder(path, 1)
    save_autoencoder(build_autoencoder(3, 0), path)
    with pytest.raises(ValueError, match="autoencoder for 1 channels"):
        read_autoencoder(path, 1)


@pytest.mark.parametrize("source", ["", "folder", "imagenet", "encoder.pth"])
def test_no_such_source(cache, source):
    with pytest.raises(ValueError, match=f'encoder is "{source}", but it must be a .safet'):
        pretrained_autoencoder(source, 1)


def no_network(*_):
    raise FileNotFoundError("no network")


@pytest.mark.parametrize(
    ("dataset", "channels", "chosen"),
    [
        ("mnist-5k", 1, "fashion-mnist"),
        ("rotated-mnist", 1, "fashion-mnist"),
        ("my_data:load", 1, "fashion-mnist"),
        ("fashion-mnist", 1, "mnist"),
        ("cifar10", 3, "cifar100"),
        ("cifar100", 3, "cifar10"),
    ],
)
def test_an_encoder_is_pretrained_on_images_that_clients_do_not_have(
    dataset, channels, chosen, monkeypatch
):
    monkeypatch.setattr(module, "load_dataset", lambda *_: None)
    assert choose_source("auto", channels, dataset) == (chosen, "")


@pytest.mark.parametrize(
    ("source", "dataset", "chosen", "note"),
    [
        (
            *("auto", "mnist", "mnist-5k"),
            "mnist-5k, which has images of the clients' data set, since fashion-mnist could not be "
            "read",
        ),
        ("auto", "folder", "mnist-5k", "mnist-5k, since fashion-mnist could not be read"),
        ("mnist", "emnist-balanced", "mnist", "mnist, which has images of the clients' data set"),
        ("mnist", "mnist-5k", "mnist", "mnist, which has images of the clients' data set"),
        ("cifar10", "cifar20", "cifar10", "cifar10, which has images of the clients' data set"),
        ("a.safetensors", "mnist", "a.safetensors", ""),
    ],
)
def test_a_warning_names_an_encoder_of_the_clients_images(
    source, dataset, chosen, note, monkeypatch
):
    monkeypatch.setattr(module, "load_dataset", no_network)
    expected = f"its encoder was pre-trained on {note}" if note else ""
    assert choose_source(source, 1, dataset) == (chosen, expected)


def test_colour_images_have_no_encoder_without_files(monkeypatch):
    monkeypatch.setattr(module, "load_dataset", no_network)
    with pytest.raises(FileNotFoundError, match="no network"):
        choose_source("auto", 3, "cifar10")


@pytest.mark.faults
def test_pretraining_is_remembered_and_a_broken_file_is_made_again(cache, monkeypatch):
    first = pretrained_autoencoder("mnist-5k", 1, epochs=1)
    (path,) = cache.glob("*.safetensors")
    assert path.name.startswith("autoencoder-mnist-5k-1-channels-1-epochs-seed-0-v1-")
    assert set(load_file(path)) == set(first.state_dict())

    def no_training(*arguments, **options):
        raise AssertionError("it is remembered")

    with monkeypatch.context() as patch:
        patch.setattr(module, "fit", no_training)
        again = pretrained_autoencoder("mnist-5k", 1, epochs=1)
    assert all(torch.equal(t, first.state_dict()[name]) for name, t in again.state_dict().items())
    path.write_bytes(path.read_bytes()[:1000])
    mended = pretrained_autoencoder("mnist-5k", 1, epochs=1)
    assert all(torch.equal(t, first.state_dict()[name]) for name, t in mended.state_dict().items())
    assert set(load_file(path)) == set(first.state_dict())


def test_other_images_under_the_same_name_make_another_encoder(cache, monkeypatch):
    found = []
    for seed in (0, 1, 0):
        data = SimpleNamespace(train_samples=pictures(seed=seed))
        monkeypatch.setattr(module, "load_dataset", lambda *_, data=data: data)
        weights = pretrained_autoencoder("mnist", 1, epochs=1).state_dict()
        found.append(weights["encoder.latent.weight"])
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert len([*cache.glob("*.safetensors")]) == 2


@pytest.mark.slow
@pytest.mark.faults
def test_pretraining_on_real_images_learns_digits(cache):
    dataset = load_dataset("mnist-5k")
    trained = pretrained_autoencoder("mnist-5k", 1, epochs=3)
    pixels = dataset.test_samples.float() / 255
    with torch.no_grad():
        error = float(((trained(pixels) - pixels) ** 2).mean())
    assert error < 0.5 * float(pixels.var())  # a gray mean image has all of the variance
    found = encode(trained, dataset.test_samples)
    labels = dataset.test_labels.numpy()
    nearest = ((found[:, None] - found[None]) ** 2).sum(-1)
    np.fill_diagonal(nearest, np.inf)
    assert (labels[nearest.argmin(axis=1)] == labels).mean() > 0.75  # by chance 0.1
