import json

import pytest

from fl_core.data.datasets import load_dataset
from fl_core.partitions.federation import simulate_federation
from fl_core.partitions.settings import FederationSettings
from tests.published_files import write_leaf

TRAINING = {"f0_01": [0, 10, 36], "f1_02": [61] * 5, "f2_03": [1, 2, 3, 4]}
TEST = {"f0_01": [10], "f1_02": [61, 61], "f2_03": [4]}


def written(folder, name, labels_of):
    """Write a file of LEAF's format; a writer's images have a single gray, 0, 1/255 and so on."""
    data_of = {
        writer: ([[int(writer[1]) / 255] * 784] * len(labels), labels)
        for writer, labels in labels_of.items()
    }
    write_leaf(folder, name, data_of)


@pytest.fixture
def femnist(tmp_path):
    """Return a data folder with three writers, two of them in one of two training files."""
    folder = tmp_path / "femnist" / "data"
    first = {writer: TRAINING[writer] for writer in ("f2_03", "f0_01")}
    written(folder / "train", "0_niid_0_keep_0_train_9", first)
    written(folder / "train", "1_niid_0_keep_0_train_9", {"f1_02": TRAINING["f1_02"]})
    written(folder / "test", "0_niid_0_keep_0_test_9", TEST)
    return tmp_path


def test_by_hand_images_are_those_of_their_writers(femnist):
    data = load_dataset("femnist", str(femnist))
    assert data.sample_shape == (1, 28, 28)
    assert data.num_classes == 62
    assert [data.class_names[label] for label in TRAINING["f0_01"]] == ["0", "A", "a"]
    assert data.group_names == ("f0_01", "f1_02", "f2_03")
    assert data.train_labels.tolist() == [0, 10, 36, 61, 61, 61, 61, 61, 1, 2, 3, 4]
    assert data.train_groups.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert data.train_samples[:, 0, 5, 5].tolist() == data.train_groups.tolist()
    assert data.test_labels.tolist() == [10, 61, 61, 4]
    assert data.test_groups.tolist() == [0, 1, 1, 2]


def settings(folder, **options):
    options = {"num_clients": 2, "min_samples": 4, "partition": "writer", "seed": 0, **options}
    return FederationSettings(dataset="femnist", data_dir=str(folder), **options)


def test_a_client_is_a_writer_with_images_enough(femnist):
    made = simulate_federation(settings(femnist))
    assert [data.tolist() for data in made.partition.train] == [[3, 4, 5, 6, 7], [8, 9, 10, 11]]
    assert [made.test_data(c)[1].tolist() for c in (0, 1)] == [[61, 61], [4]]
    assert made.partition.tasks == ((1, 2),)
    assert made.tasks_at(0).tolist() == [0, 0]
    with pytest.raises(ValueError, match="num-clients is 3, but only 2 writers have 4 training"):
        simulate_federation(settings(femnist, num_clients=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"partition": "equal"},
            'partition is "equal", but partition=writer and the data',
        ),
        ({"tasks": "0|1"}, "leave tasks and clients-per-task empty"),
        ({"shift": "concept"}, "femnist has tasks that are no label"),
        ({"noise": "class-dependent"}, "set noise to none"),
    ],
)
def test_what_does_not_go_with_writers(femnist, options, message):
    with pytest.raises(ValueError, match=message):
        simulate_federation(settings(femnist, **options))


@pytest.mark.parametrize(
    "data",
    [
        {"x": [[0.0] * 783], "y": [1]},
        {"x": [[0.0] * 784], "y": [1, 2]},
        {"x": [[1.5] * 784], "y": [1]},
        {"x": [[float("nan")] * 784], "y": [1]},
        {"x": [["black"] * 784], "y": [1]},
        {"y": [1]},
        [],
    ],
)
def test_files_of_another_format_are_named(femnist, data):
    path = femnist / "femnist/data/test/all_data_1.json"
    path.write_text(json.dumps({"user_data": {"f3_04": data}}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"all_data_1.json is not in LEAF's format"):
        load_dataset("femnist", str(femnist))
