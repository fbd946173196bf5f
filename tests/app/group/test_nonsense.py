"""Data by which clients cannot be distinguished: it is said, and no client is certain."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from fl_app.cli import main
from fl_app.results.grouping_report import grouping_report
from fl_app.simulation.simulated_clients import Simulation
from fl_core.json_records import to_json
from strategies.catalogue import system_of
from strategies.rounds.round_state import Clusters, Comparison, Resamples
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.own_modules import own_modules, run_alone

SITES = """
import numpy as np
from fl_core.data.user_data import Partitions


def sites(count, change, **more):
    rng = np.random.default_rng(1)
    clients = []
    for client in range(count):
        rows = rng.normal(size=(40, 6)) * np.roll([9, 9, 4, 4, 1, 1], 2 * (client % 2))
        labels = np.arange(40) % 2
        rows = change(rows, client, rng).astype(np.float32)
        clients.append((rows[:30], labels[:30], rows[30:], labels[30:]))
    return Partitions(clients, **more)


fine = lambda: sites(6, lambda rows, client, rng: rows)
noise = lambda: sites(6, lambda rows, client, rng: np.c_[rows, 1e5 * rng.normal(size=40)])
only = lambda rows, client, rng: rows * np.r_[1e4 if client == 4 else 1, [1] * 5]
noise_at_one = lambda: sites(6, only)


def two_samples_at_one():
    found = fine()
    rows, labels, *tested = found.clients[4]
    found.clients[4] = (rows[:2], labels[:2], *tested)
    return found


constant = lambda: sites(6, lambda rows, client, rng: np.ones((40, 6)))
constant_each = lambda: sites(6, lambda rows, client, rng: np.tile(rows[:1], (40, 1)))
two = lambda: sites(2, lambda rows, client, rng: rng.normal(size=(40, 6)))
three = lambda: sites(3, lambda rows, client, rng: rows)
"""


@pytest.fixture(autouse=True)
def noisy_sites(tmp_path):
    with own_modules(tmp_path, noisy_sites=SITES):
        yield


def group(tmp_path, name, count, *words, status):
    out = tmp_path / "out"
    words = (*words, "features=raw", "num-eigenvectors=5", f"num-clients={count}")
    words = ("group", f"dataset=noisy_sites:{name}", *words)
    with undrawn_pictures():
        assert main([*words, f"output-dir={out}"]) == status
    return json.loads((out / "grouping.json").read_text(encoding="utf-8"))


def test_sites_that_differ_are_distinguished(tmp_path, capsys):
    report = group(tmp_path, "fine", 6, status=0)
    assert report["clusters"] == [0, 1, 0, 1, 0, 1]
    assert report["certainty"] == [1.0] * 6
    assert (report["why_indistinguishable"], report["uninformative"]) == ("", {})
    assert report["resampled"] == "each client's samples, a fifth of them left out"
    said = capsys.readouterr().out
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "could not be distinguished" not in said
    assert "image" not in said.replace("nearest", "")
    assert "images" not in re.sub(r"<(style|script).*?</\1>", "", page, flags=re.S)


COLUMN = "column 6 of its features holds nearly all that there is: bring all columns to one scale"
SAME = "all its samples are the same, so leaving some out changes nothing"
NOTHING = "no client has enough to compare"


@pytest.mark.parametrize(
    ("name", "count", "reason", "why"),
    [
        ("noise", 6, NOTHING, COLUMN),
        ("constant", 6, NOTHING, SAME),
        ("constant_each", 6, NOTHING, SAME),
        ("two", 2, "two clients have one score, and no other to compare it with", None),
    ],
)
@pytest.mark.parametrize("relevance", ["paper", "missed-energy"])
def test_nonsense_is_said_everywhere(tmp_path, capsys, name, count, reason, why, relevance):
    report = group(tmp_path, name, count, f"relevance={relevance}", status=1)
    assert report["why_indistinguishable"] == reason
    assert report["uninformative"] == ({str(c): why for c in range(count)} if why else {})
    assert report["certainty"] == [None] * count
    assert report["in_doubt"] == []
    assert report["resamples"] == 0
    assert "together" not in report
    said = capsys.readouterr().out
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    for text in (said, page):
        assert f"The clients could not be distinguished: {reason}." in text
        assert why is None or why in text
    assert "100" not in said.partition("No group is certain")[2].partition("cost")[0]
    assert "No client is in doubt" not in page


def test_three_sites_have_too_few_scores_for_missed_energy(tmp_path):
    report = group(tmp_path / "auto", "three", 3, "relevance=missed-energy", status=1)
    assert "of three clients, this relevance has two scores" in report["why_indistinguishable"]
    assert report["certainty"] == [None] * 3
    words = ("relevance=missed-energy", "num-clusters=2")
    assert group(tmp_path / "given", "three", 3, *words, status=0)["why_indistinguishable"] == ""


@pytest.mark.parametrize(("name", "noted"), [("rcc-pfl", {0: SAME}), ("pacfl", None)])
def test_what_features_lack_is_noted_of_clients_that_share_features(name, noted):
    known = SimpleNamespace(_uninformative={(0, "hog"): {0: SAME}})
    strategy = SimpleNamespace(clusters=Clusters({0: 0}), clustering=system_of(name).clustering)
    strategy.training = SimpleNamespace(clusters=strategy.clusters)
    setting = SimpleNamespace(seed=0, config=SimpleNamespace(features="hog"))
    Simulation.note_uninformative(known, setting, strategy)
    assert strategy.training.clusters.uninformative == noted


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("noise_at_one", "column 0 of its features"),
        ("two_samples_at_one", "a fifth of its 2 samples is none, so none can be left out"),
    ],
)
def test_one_site_with_little_to_compare_leaves_the_others_certain(tmp_path, capsys, name, why):
    report = group(tmp_path, name, 6, "--resamples", "10", status=0)
    assert report["why_indistinguishable"] == ""
    assert list(report["uninformative"]) == ["4"]
    assert report["certainty"][4] is None
    assert None not in np.delete(report["certainty"], 4).tolist()
    assert f"\nlittle to compare: 4: {why}" in capsys.readouterr().out


def test_a_training_run_says_so_too(tmp_path, capsys):
    """Where the server has only the scores, and where it has the simulated clients' samples."""
    words = {"dataset": "noisy_sites:noise", "features": "raw", "num-eigenvectors": 5}
    words |= {"strategy": "rcc-pfl", "num-clients": 6, "num-server-rounds": 1}
    words["output-dir"] = str(tmp_path / "out")
    run_alone({**DEFAULTS, "model": "mlp", **words})
    report = json.loads((tmp_path / "out/grouping.json").read_text(encoding="utf-8"))
    assert report["why_indistinguishable"] == NOTHING
    printed = capsys.readouterr().out
    assert f"rcc-pfl, seed 0: The clients could not be distinguished: {NOTHING}.\n" in printed


def scored(similarity, labels, **more):
    clients = tuple(range(len(labels)))
    merges = np.zeros((len(labels) - 1, 4))
    clusters = Clusters(
        dict(enumerate(labels)),
        comparison=Comparison(clients, np.array(similarity), merges),
        resamples=Resamples(np.array([labels] * 4), "something", (2,) * 4),
        **more,
    )
    names = [f"site {client}" for client in clients]
    return json.loads(to_json(grouping_report(clusters, names, {}, "elbow", "again")))


def test_the_server_needs_no_more_than_scores():
    report = scored(np.full((3, 3), 0.7), [0, 0, 1])
    assert report["why_indistinguishable"] == "the scores of all clients are the same (0.700)"
    assert report["certainty"] == [None] * 3
    number = report["num_clusters"]
    assert (number["chosen"], number["candidates"]) == (2, [])
    assert number["why"].startswith("the clients could not be distinguished: the scores of all")


def test_who_has_little_to_compare_is_neither_certain_nor_in_doubt():
    similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.1], [0.1, 0.1, 1]])
    report = scored(similarity, [0, 0, 1], uninformative={2: "why"})
    assert report["certainty"] == [1.0, 1.0, None]
    assert report["uninformative"] == {"site 2": "why"}
