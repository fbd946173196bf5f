"""The picture of the clusters: which images stand for them."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from clients.features.hog import hog
from fl_app.report.pictures import save
from fl_app.report.pictures.clusters import (
    MOST_CLUSTERS,
    Typical,
    clusters_figure,
    nearest_to_mean,
    typical_of_clusters,
)
from fl_app.report.pictures.style import cluster_colour
from fl_core.data.dataset import Dataset
from fl_core.partitions.federation import Federation
from fl_core.partitions.partition import Partition
from tests.app_runs import run
from tests.picture_data import marked, rows_of
from tests.samples import sampled

CLASSES = ("$level$", "upright", "falling", "rising")


def stripes(turn, shift=0, contrast=200, channels=1, shape=(16, 16)):
    """Return an image of stripes: level, upright, falling or rising."""
    down, across = np.mgrid[: shape[0], : shape[1]]
    place = (down, across, down - across, down + across)[turn]
    image = ((place + shift) // 2 % 2 * contrast).astype(np.uint8)
    return np.stack([image // (1 + channel) for channel in range(channels)])


def federation(train, turns, **options):
    """Return clients that hold these images; the test images are black."""
    images = torch.from_numpy(np.stack([stripes(t, n, **options) for n, t in enumerate(turns)]))
    labels = torch.tensor(turns)
    data = Dataset("stripes", images, labels, images[:4] * 0, torch.arange(4), CLASSES)
    train = tuple(np.array(one) for one in train)
    tasks = ((0, 1), (2, 3))
    stored = Partition(tasks, np.arange(len(train)) % 2, train, (np.arange(4),) * len(train))
    return Federation(data, stored, tuple(labels.numpy()[one] for one in train))


TURNS = [0, 1, 2, 3] * 4
FOUR_CLIENTS = ([0, 4, 1], [2, 3, 6], [8, 12, 5], [7, 10, 14, 4])
"""Clients 0 and 2 hold level and upright stripes, 1 and 3 the others; 3 also has image 4."""


def typical(of_client, made=None):
    made = made or federation(FOUR_CLIENTS, TURNS)
    return typical_of_clusters(made, of_client, made.tasks_at(0).tolist(), 0)


def figure(shown, total=None):
    return clusters_figure(shown, total or len(shown), "rcc-pfl, seed 0", ("a, b", "c, d"))


def texts(drawn):
    """Return what is written: the title and the note, then the clusters, then all else."""
    title, *words = drawn["title"]["text"], *(rows_of(one) for one in marked(drawn, "text"))
    note = " ".join(drawn["title"]["subtitle"])
    return [" ".join(title), note, *(row["text"] for rows in words for row in rows)]


def images_of(drawn):
    """Return the images, as they were before their pixels were made large, and where they are."""
    (layer,) = marked(drawn, "image")
    found = []
    for row in rows_of(layer):
        data = base64.b64decode(row["url"].partition(",")[2])
        with Image.open(io.BytesIO(data)) as image:
            found.append(np.asarray(image)[::8, ::8])
    return found, [(row["x"], row["y"]) for row in rows_of(layer)], layer["mark"]


def test_the_image_nearest_to_the_mean_by_hand():
    # HoG does not see contrast: a weaker copy is the same to it. Two of three are level, so the
    # mean is nearer to these, and the first of them is taken.
    images = torch.from_numpy(np.stack([stripes(1), stripes(0), stripes(0, contrast=100)]))
    features = hog(images)
    assert torch.allclose(features[1], features[2], atol=1e-4)
    images[2] = images[1]
    assert nearest_to_mean(images, np.array([0, 1, 2])) == 1
    assert nearest_to_mean(images, np.array([0, 2])) == 0
    assert nearest_to_mean(images, np.array([2])) == 2


def test_of_a_large_class_a_hundred_images_are_compared(monkeypatch):
    seen = []

    def count(images):
        seen.append(len(images))
        return hog(images)

    monkeypatch.setattr("fl_app.report.pictures.clusters.hog", count)
    images = torch.zeros((1000, 1, 8, 8), dtype=torch.uint8)
    images[999] = torch.from_numpy(stripes(0, shape=(8, 8)))
    assert nearest_to_mean(images, np.arange(1000)) == 0
    assert seen == [100]


def test_each_cluster_shows_its_classes_by_images_of_its_clients():
    first, second = typical({0: 0, 1: 1, 2: 0, 3: 1})
    assert (first.cluster, first.tasks, first.captions) == (0, {0: 2}, CLASSES[:2])
    # Image 4, level, is one of five of the second: a stranger's, but a quarter of the largest class
    # with its four falling ones.
    assert (second.tasks, second.num_classes) == ({1: 2}, 3)
    assert second.captions == (CLASSES[0], *CLASSES[2:])
    data = federation(FOUR_CLIENTS, TURNS).dataset.train_samples.numpy()
    np.testing.assert_array_equal(second.images[0], data[4])
    held = {0: [0, 4, 8, 12], 1: [1, 5]}
    for label, image in enumerate(first.images):
        assert any(np.array_equal(image, data[index]) for index in held[label])


def test_an_image_that_two_clients_hold_counts_once():
    once = typical({0: 0}, made=federation(([0, 1, 2],), TURNS))
    twice = typical({0: 0, 1: 0}, made=federation(([0, 1, 2], [0, 2]), TURNS))
    np.testing.assert_array_equal(once[0].images, twice[0].images)


def test_after_a_drift_the_images_are_those_held_then():
    before = federation(FOUR_CLIENTS, TURNS)
    drifted = Federation(
        before.dataset,
        before.partition,
        before.train_labels,
        drift_round=5,
        after_drift=(1, 0, 2, 3),
    )
    assert drifted.training_indices(0, 4).tolist() == FOUR_CLIENTS[0]
    assert drifted.training_indices(0, 5).tolist() == FOUR_CLIENTS[1]
    (late,) = typical_of_clusters(drifted, {0: 0}, drifted.tasks_at(5).tolist(), 5)
    assert late.captions == CLASSES[2:]
    assert late.tasks == {1: 1}


def test_of_many_clusters_the_largest_are_shown_by_number():
    made = federation([[n] for n in range(8)], TURNS)
    shown = typical({0: 3, 1: 1, 2: 2, 3: 1, 4: 0, 5: 6, 6: 7, 7: 8}, made=made)
    assert [one.cluster for one in shown] == [0, 1, 2, 3, 6, 7]
    assert len(shown) == MOST_CLUSTERS
    assert "largest" not in texts(figure(shown))[1]
    assert texts(figure(shown, 7))[1].endswith("; the 6 largest of 7 clusters")


def test_classes_of_less_than_a_quarter_of_the_largest_are_left_out():
    turns = [0] * 9 + [1] * 2 + [2] * 3
    (one,) = typical({0: 0}, made=federation([np.arange(14)], turns))
    assert one.captions == (CLASSES[0], CLASSES[2])
    (one,) = typical({0: 0}, made=federation([np.arange(13)], turns[1:]))
    assert one.captions == CLASSES[:3]


def test_the_figure_shows_the_images_their_classes_and_their_clusters():
    shown = typical({0: 0, 1: 1, 2: 0, 3: 0})
    drawn = figure(shown)
    said = texts(drawn)
    assert said[0] == "Typical images in the clusters of rcc-pfl, seed 0"
    assert said[2:4] == [
        "Cluster 0: 3 clients, true tasks a, b (2); c, d (1)",
        "Cluster 1: 1 client, true task c, d",
    ]
    assert said[4:] == [*CLASSES, *CLASSES[2:]]
    images, places, _ = images_of(drawn)
    for image, expected in zip(images, np.concatenate([s.images for s in shown]), strict=True):
        np.testing.assert_array_equal(image, expected[0])
    assert len(set(places)) == len(places) == 6
    strips = rows_of(marked(drawn, "rect")[0])
    assert [strip["colour"] for strip in strips] == [cluster_colour(0), cluster_colour(1)]


def test_more_classes_than_fit_are_counted():
    many = Federation(
        Dataset(
            "many",
            torch.zeros((8, 1, 8, 8), dtype=torch.uint8),
            torch.arange(8),
            torch.zeros((1, 1, 8, 8), dtype=torch.uint8),
            torch.zeros(1, dtype=torch.int64),
            tuple("abcdefgh"),
        ),
        Partition((tuple(range(8)),), np.array([0]), (np.arange(8),), (np.arange(1),)),
        (np.arange(8),),
    )
    (one,) = typical({0: 0}, made=many)
    assert (one.captions, one.num_classes) == (tuple("abcdef"), 8)
    drawn = clusters_figure([one], 1, "x", ["all"])
    assert "Cluster 0: 1 client, 2 more classes, true task all" in texts(drawn)


CASES = {
    "one cluster": ({0: 0, 1: 0, 2: 0, 3: 0}, {}),
    "two, one left out": ({0: 0, 1: 1, 3: 0}, {}),
    "colour": ({0: 0, 1: 1, 2: 0, 3: 1}, {"channels": 3}),
    "level images": ({0: 0, 1: 1, 2: 0, 3: 1}, {"shape": (8, 40)}),
    "upright images": ({0: 0, 1: 1, 2: 0, 3: 1}, {"channels": 3, "shape": (90, 21)}),
}


@pytest.mark.parametrize(("of_client", "options"), sampled(CASES.values(), 2, CASES))
def test_png_is_whole_alone_the_same_and_fits_a_page(of_client, options, tmp_path):
    made = federation(FOUR_CLIENTS, TURNS, **options)
    path = tmp_path / "clusters.png"
    shown = typical(of_client, made=made)
    sizes = []
    for _ in range(2):
        assert save(clusters_figure(shown, 9, "rcc-pfl, seed 0", ("a", "b")), path) == path
        sizes.append(path.read_bytes())
    assert sizes[0] == sizes[1]
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as image:
        width, height = image.size
        pixels = np.asarray(image.convert("L"))
    assert width == 900
    assert 200 <= height <= 1350
    assert pixels[0].min() == pixels[-1].min() == pixels[:, 0].min() == pixels[:, -1].min() == 255


def test_the_highest_picture_fits_a_page_and_long_names_into_it(tmp_path):
    one = Typical(
        12, {0: 10, 1: 9, 2: 8}, np.zeros((6, 3, 64, 64), np.uint8), ("a rather long name",) * 6, 30
    )
    names = ["a rather long name, another one, and one more"] * 3
    path = tmp_path / "clusters.png"
    found_by = "spectral+lps-gps, seed 12"
    save(clusters_figure([one] * 6, 100, found_by, names), path)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert pixels.shape[0] <= 1350
    assert pixels[:, -8:].min() == 255
    drawn = clusters_figure([one], 1, found_by, names)
    assert texts(drawn)[2].startswith("Cluster 12: 27 clients, 24 more classes,")
    assert "…" in texts(drawn)[2]


@pytest.mark.faults
def test_a_run_draws_the_first_clusters_that_hog_found(tmp_path, capsys, monkeypatch):
    drawn = []

    def note(shown, total, found_by, names):
        drawn.append((found_by, [one.tasks for one in shown], total, names))
        return clusters_figure(shown, total, found_by, names)

    monkeypatch.setattr("fl_app.report.pictures.clusters_figure", note)
    options = {"strategy": "single,mt-hfl,rcc-pfl", "repeats": 2, "num_server_rounds": 1}
    summary = run(tmp_path, **options)
    assert summary["runs"][1]["ari"] == 1
    ((found_by, tasks, total, names),) = drawn
    assert (found_by, total, names) == ("mt-hfl, seed 0", 3, ["0, 2, 4", "6, 8, 1", "3, 5, 7, 9"])
    assert sorted(task for one in tasks for task in one) == [0, 1, 2]
    assert f"picture   {tmp_path / 'clusters.png'}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", sampled([{"features": "raw"}, {"strategy": "single,random"}], 2)
)
def test_runs_that_do_not_cluster_by_hog_have_no_such_picture(options, tmp_path):
    run(tmp_path, **{"strategy": "rcc-pfl", "num_server_rounds": 1, **options})
    assert not (tmp_path / "clusters.png").exists()
