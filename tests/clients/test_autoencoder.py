import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from clients.signatures import pretraining as module
from clients.signatures.autoencoder import build_autoencoder, encode, fit, load_autoencoder
from clients.signatures.pretraining import (
    choose_source,
    pretrained_autoencoder,
    read_autoencoder,
    save_autoencoder,
)


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decoder.up1.bias": None}, "decoder.up1.bias"),
        ({"decoder.more": torch.zeros(1)}, "decoder.more"),
        ({"encoder.conv1.weight": torch.zeros(16, 1, 5, 5)}, "encoder.conv1.weight"),
        ({"encoder.conv1.bias": torch.full((16,), torch.nan)}, "not all finite"),
    ],
)
def test_weights_that_are_not_such_an_autoencoders(tmp_path, changed, message):
    weights = {**build_autoencoder(1, 0).state_dict(), **changed}
    save_file({n: t.contiguous() for n, t in weights.items() if t is not None}, tmp_path / "bad")
    with pytest.raises(ValueError, match=f"bad cannot be used .*{message}"):
        read_autoencoder(tmp_path / "bad", 1)


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_autoencoder(path, 1)
    path.write_bytes(b"not one of these")
    with pytest.raises(ValueError, match=r"bad\.safetensors cannot be used"):
        pretrained_autoencoder(str(path), 1)
