"""A newcomer with a table: placed and classified as one with images is."""

import csv
from importlib import import_module

import pytest
import torch

from fl_app.cli import main
from fl_app.results.spectra import load_spectra
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS
from tests.own_modules import own_modules, run_alone

SITES = """
import numpy as np
from fl_core.data.user_data import Partitions


def part(kind, seed, width=6):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, width)).astype(np.float32)
    labels = np.arange(40) % 2
    rows[:, 2 * kind : 2 * kind + 2] += np.float32(9) * (labels[:, None] + 1)
    return rows[:30], labels[:30], rows[30:], labels[30:]


sites = lambda: Partitions([part(client % 2, client) for client in range(6)])
newcomer = lambda: part(1, 10)
stranger = lambda: part(2, 10)
wider = lambda: part(1, 10, 7)


def constant():
    rows, labels, *test = part(1, 10)
    return np.tile(rows[:1], (30, 1)), labels, *test


def phi(samples):
    return 2 * samples
"""
OPTIONS = {"strategy": "rcc-pfl", "num-clients": 6, "num-eigenvectors": 2, "model": "mlp"}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Results of runs with raw features and with user-defined features."""
    folder = tmp_path_factory.mktemp("places")
    with own_modules(folder, place_sites=SITES):
        for name, features in (("raw", "raw"), ("user", "place_sites:phi")):
            words = {"dataset": "place_sites:sites", "features": features, "num-server-rounds": 4}
            run_alone({**DEFAULTS, **OPTIONS, **words, "output-dir": str(folder / name)})
        yield folder


def placed(capsys, *words):
    capsys.readouterr()
    return main(["place", *map(str, words)]), capsys.readouterr()


def test_a_table_is_placed_and_classified(places, tmp_path, capsys):
    card = load_spectra(places / "raw/spectra-rcc-pfl-seed-0.safetensors").card
    assert (card.sample_shape, card.is_float) == ((6,), True)
    table = tmp_path / "found.csv"
    words = ("--data", "place_sites:newcomer")
    status, said = placed(capsys, places / "raw", *words)
    assert status == 0
    assert "30 samples, the clusters of rcc-pfl on seed 0\ncluster 1, with 1 3 5\n" in said.out
    assert "100 % of the resamples, each without a fifth of the samples" in said.out
    assert "image" not in said.out
    model = places / "raw/models/rcc-pfl/seed-0/cluster-1.safetensors"
    assert main(["classify", str(model), *words, "--output", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["sample"] for row in rows] == [str(number) for number in range(30)]
    samples = torch.from_numpy(import_module("place_sites").newcomer()[0])
    logits = load_model(model)[0](samples)
    assert [int(row["class"]) for row in rows] == logits.argmax(dim=1).tolist()


def test_user_defined_features_are_named_again(places, capsys):
    words = (places / "user", "--data", "place_sites:newcomer")
    status, said = placed(capsys, *words)
    assert status == 2
    assert "add --own-code place_sites:phi." in said.err
    status, said = placed(capsys, *words, "--own-code", "place_sites:phi")
    assert status == 0
    assert "cluster 1, with 1 3 5" in said.out


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("stranger", 1, "They fit no cluster"),
        ("wider", 2, "are float32 of shape 7, but float32 of shape 6 is needed"),
        ("constant", 0, "certainty unknown: all its samples are the same"),
        ("absent", 2, "absent"),
    ],
)
def test_samples_that_fit_no_cluster_or_cannot_be_placed(places, capsys, name, status, said):
    found, printed = placed(capsys, places / "raw", "--data", f"place_sites:{name}")
    assert found == status
    assert said in printed.out + printed.err
    assert "100 %" not in printed.out
