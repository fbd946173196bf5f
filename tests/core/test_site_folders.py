"""A folder with a folder of images for each site."""

import numpy as np
import pytest
from PIL import Image

from fl_core.data.dataset_info import num_sites
from fl_core.data.datasets import load_dataset
from fl_core.data.image_files import list_images


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return what writes images of one value each, at a site and in a class."""
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "sites"

    def images(place, values, size=(32, 40), colour=False):
        for number, value in enumerate(values):
            path = root / place / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            shape = (*size, 3) if colour else size
            Image.fromarray(np.full(shape, value, np.uint8)).save(path)
        return root

    return images


def of_clients(images, sizes):
    """Return the values that each client's images were written with."""
    return [sorted(values[:, 0, 0, 0].tolist()) for values in images.split(sizes)]


def test_each_site_is_a_client_with_the_classes_of_all(write):
    write("oslo/nut", range(50, 60))
    write("berlin/bolt", range(10))
    write("berlin/nut", [100, 101])
    write("paris/train/screw", [200])
    write("paris/test/screw", [201, 202])
    root = write(".hidden/bolt", [1])
    assert num_sites("sites", str(root)) == 3
    data = load_dataset("sites", str(root))
    assert (data.name, data.class_names) == ("sites", ("bolt", "nut", "screw"))
    assert data.sample_shape == (1, 32, 40)
    held = data.given_partition
    assert held.names == ("berlin", "oslo", "paris")
    assert held.tasks is None
    # A fifth of each class is held out, one image at least, where there is no test folder.
    assert (held.train, held.test) == ((9, 8, 1), (3, 2, 2))
    trained = of_clients(data.train_samples, held.train)
    tested = of_clients(data.test_samples, held.test)
    assert [sorted(a + b) for a, b in zip(trained, tested, strict=True)] == [
        [*range(10), 100, 101],
        [*range(50, 60)],
        [200, 201, 202],
    ]
    assert tested[2] == [201, 202]
    labels = [set(values.tolist()) for values in data.train_labels.split(held.train)]
    assert labels == [{0, 1}, {1}, {2}]
    assert load_dataset("sites", str(root), seed=1).checksum() == data.checksum()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, "is not a folder: set data-dir to a folder with SITE/CLASS"),
        ({"a/bolt": [1, 2]}, "there are 1 sites, but dataset=sites needs SITE/CLASS"),
        ({"bolt": [1, 2], "nut": [3, 4]}, "or dataset=folder if its folders are classes"),
        ({"a/bolt": [1, 2], "b": [1]}, "b has no folders, but dataset=sites needs"),
        ({"a/bolt": [1, 2], "b/nut": [1]}, "b has no images to test on: add images"),
        (
            {"a/bolt": [1, 2], "b/bolt": [3, 4]},
            'all sites together have the one class "bolt", but at least 2 are needed',
        ),
        (
            {"Zoe\u0308/bolt": [1, 2], "Zoë /nut": [3, 4]},
            "has 'Zoe\u0308' and 'Zoë ', names of one site that differ in spaces",
        ),
    ],
)
def test_what_is_no_folder_of_sites_is_refused(write, tmp_path, written, said):
    for place, values in written.items():
        write(place, values)
    with pytest.raises(ValueError, match=said) as error:
        load_dataset("sites", str(tmp_path / "sites"))
    hint = "dataset=folder" in str(error.value)
    assert hint == (set(written) == {"bolt", "nut"})


@pytest.mark.parametrize(
    ("written", "name"), [(("train/cat", "test/cat"), "test"), (("a/cat", "Val/cat"), "Val")]
)
def test_parts_of_one_data_set_are_no_sites(write, written, name):
    for place in written:
        root = write(place, [1, 2])
    said = f"has the folder {name}, but dataset=sites takes each folder for a site, "
    with pytest.raises(ValueError, match=said):
        load_dataset("sites", str(root))


def test_names_are_as_others_write_them(write):
    write("Zoe\u0308/cafe\u0301 ", [1, 2])
    root = write("berlin /bolt", [3, 4])
    data = load_dataset("sites", str(root))
    assert data.given_partition.names == ("Zoë", "berlin")
    assert data.class_names == ("bolt", "café")


def test_files_beside_the_sites_are_noted(write):
    write("a/bolt", [1, 2])
    root = write("b/nut", [1, 2])
    (root / "c.tar").touch()
    (root / ".hidden").touch()
    assert load_dataset("sites", str(root)).notes == (
        f"in {root}, only folders are read, not c.tar",
    )


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (("train/cat", "Test/cat"), "Test"),
        (("cat", "dog", "TEST"), "TEST"),
        (("Train/cat", "Test/cat"), "Test"),
    ],
)
def test_train_and_test_are_written_in_small_letters(write, written, name):
    for place in written:
        root = write(place, [1, 2])
    said = f"sites has the folder {name}: rename it to {name.lower()}."
    with pytest.raises(ValueError, match=said):
        list_images(root)


def test_images_of_sites_are_pointed_to_their_data_set(write):
    write("berlin/cat", [1, 2])
    root = write("oslo/cat", [1, 2])
    with pytest.raises(ValueError, match="for SITE/CLASS/\\*, set dataset=sites"):
        list_images(root)
