"""Groups without training: fedkin group, no rounds, and a place for a client that comes later."""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from clients.features.hog import hog
from fl_app.cli import main
from fl_app.client_app import app
from fl_app.config.run_config import parse_config
from fl_app.group.placement import fit, overlaps, place, read_images
from fl_app.group.resampling import part, regrouped
from fl_app.report.grouping_tables import print_grouping, supports_groups
from fl_app.results.grouping_report import grouping_report
from fl_app.results.schema import Grouping
from fl_app.results.spectra import SpectraCard, StoredSpectra, load_spectra
from fl_app.run.experiment import run_experiment
from fl_app.simulation.simulated_clients import Simulation
from fl_core.json_records import from_json, to_json
from fl_core.models.model_file import load_model
from strategies import SpectralClustering
from strategies.rounds.round_state import Clusters, Comparison, Resamples
from tests.app_runs import DEFAULTS, run, undrawn_pictures
from tests.device_images import SITES, TOGETHER, write_sites
from tests.device_runs import Devices, run_on_devices
from tests.device_runs import run as run_devices
from tests.local_grid import LocalGrid

SIMULATED = ("num-clients=6", "num-tasks=3")
SEVEN = {**SITES, "vienna": (4, 8), "paris": (0, 2, 4), "milan": (6, 8, 1)}
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))


def report_of(folder):
    return json.loads((folder / "grouping.json").read_text(encoding="utf-8"))


def named_groups(report):
    groups = {}
    for name, cluster in zip(report["clients"], report["clusters"], strict=True):
        groups.setdefault(cluster, []).append(name)
    return sorted(groups.values())


def group(folder, *words):
    with undrawn_pictures():
        assert main(["group", *words, f"output-dir={folder}"]) == 0
    return report_of(folder)


def test_folders_of_real_images_are_grouped_by_what_they_show(tmp_path, capsys):
    write_sites(tmp_path / "sites")
    report = group(tmp_path / "out", "dataset=sites", f"data-dir={tmp_path / 'sites'}")
    assert named_groups(report) == TOGETHER
    assert report["clients"] == sorted(SITES)
    assert report["certainty"] == [1.0] * 4
    assert report["in_doubt"] == []
    assert np.shape(report["together"]) == np.shape(report["relevance"]) == (4, 4)
    assert report["num_clusters"]["chosen"] == 2
    assert [one["resamples"] for one in report["num_clusters"]["candidates"]] == [0.0, 1.0, 0.0]
    assert report["resamples"] == 50
    assert report["resampled"] == "each client's images, a fifth of them left out"
    said = capsys.readouterr().out
    assert "berlin lyon" in said
    assert "kB per client for this pre-round" in said
    assert not (tmp_path / "out/models").exists()
    assert not (tmp_path / "out/summary.json").exists()

    words = report["command"].split()
    assert words[:2] == ["fedkin", "group"]
    assert group(tmp_path / "again", *words[2:]) == report


def test_a_client_with_images_of_both_tasks_is_the_one_in_doubt(tmp_path):
    """Who has a digit of either kind lands now here, now there."""
    write_sites(tmp_path / "sites", SEVEN, images=12)
    words = ("num-clusters=2", "dataset=sites", f"data-dir={tmp_path / 'sites'}")
    report = group(tmp_path / "out", *words)
    sure = dict(zip(report["clients"], report["certainty"], strict=True))
    assert min(sure, key=sure.get) == "vienna"
    assert [one["client"] for one in report["in_doubt"]] == ["vienna"]
    (doubt,) = report["in_doubt"]
    assert {doubt["cluster"], doubt["other_cluster"]} == {0, 1}
    assert doubt["share"] == pytest.approx(1 - sure["vienna"], abs=1e-4)


@pytest.mark.slow
def test_the_page_shows_what_is_printed_and_drawn_of_seven_sites(tmp_path, monkeypatch, capsys):
    write_sites(tmp_path / "sites", SEVEN, images=12)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "grouping.md").read_text(encoding="utf-8")
    command, printed = re.search(r"\n`fedkin (.*?)`, of seven.*?```\n(.*?)```", page, re.S).groups()
    assert main([*command.split(), "output-dir=out"]) == 0
    assert printed in capsys.readouterr().out
    drawn, stored = (
        np.asarray(Image.open(path).convert("RGB"), float)
        for path in (tmp_path / "out/grouping.png", DOCS / "pictures/grouping.png")
    )
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 1, f"{tmp_path}/out/grouping.png is today's"


def test_a_simulation_without_rounds_finds_what_fedkin_group_finds(tmp_path, capsys):
    options = {"strategy": "fedkin", "num-server-rounds": 0, "num-clients": 6, "num-tasks": 3}
    run_config = {**DEFAULTS, **options, "output-dir": str(tmp_path / "run")}
    with undrawn_pictures():
        run_experiment(
            parse_config(run_config), LocalGrid(app, 6, run_config=run_config), Simulation
        )
    one, other = report_of(tmp_path / "run"), group(tmp_path / "group", *SIMULATED)
    for key in ("clients", "clusters", "relevance", "bytes", "outliers"):
        assert one[key] == other[key], key
    assert (one["resamples"], one["certainty"]) == (0, [None] * 6)
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "Who should train with whom" in page
    assert "certainty" not in page
    assert other["command"] == "fedkin group num-clients=6 num-tasks=3"
    assert capsys.readouterr().out.count("against the true tasks: ARI 1.00\n") == 2
    words = one["command"].split()
    assert words[:2] == ["fedkin", "run"]
    expected = {"strategy=fedkin", "num-clients=6", "num-clusters=auto", "num-server-rounds=0"}
    assert expected < set(words)


@pytest.mark.parametrize("formula", ["paper", "missed-energy"])
@pytest.mark.parametrize("place", ["server", "clients"])
def test_every_relevance_is_drawn_again_as_clients_compute_it(tmp_path, formula, place):
    """With all images, what is computed here is what was found by messages."""
    words = (f"relevance={formula}", f"relevance-at={place}")
    report = group(tmp_path / "out", *SIMULATED, *words, "--resamples", "3")
    assert (report["resamples"], report["certainty"]) == (3, [1.0] * 6)
    assert (tmp_path / "out/spectra-fedkin-seed-0.safetensors").exists()


@pytest.mark.parametrize("words", [("pre-round-epsilon=50",), ("--resamples", "0")])
def test_no_resamples_are_none(tmp_path, words):
    """Nor are there with noise: fifty more answers would say more of the images than epsilon."""
    report = group(tmp_path / "out", *SIMULATED, *words)
    assert (report["resampled"], report["resamples"]) == ("nothing", 0)
    assert report["certainty"] == [None] * 6
    assert {one["resamples"] for one in report["num_clusters"]["candidates"]} <= {0}
    again = report["command"].split()[2:]
    assert all(word in again for word in words)
    assert "pre" in words[0] or group(tmp_path / "again", *again) == report


def test_features_are_computed_once(tmp_path, monkeypatch):
    computed = []

    def counted(images):
        computed.append(len(images))
        return hog(images)

    monkeypatch.setattr("fl_app.run.node._feature_map", lambda *_: counted)
    words = (*SIMULATED, "strategy=rcc-pfl,mt-hfl", "--resamples", "2")
    assert group(tmp_path / "out", *words)["resamples"] == 2
    assert len(computed) == 6  # clients, of which two strategies ask, and resamples are drawn


def test_a_training_run_has_a_grouping_for_each_strategy_that_compares(tmp_path):
    summary = run(tmp_path / "out", strategy="single,rcc-pfl,mt-hfl")
    report = report_of(tmp_path / "out")
    assert report["clusters"] == summary["runs"][1]["clusters"]
    assert report["certainty"] == [None] * 6
    words = report["command"].split()
    assert words[:2] == ["fedkin", "run"]
    assert "strategy=single,rcc-pfl,mt-hfl" in words
    assert (tmp_path / "out/grouping-mt-hfl-seed-0.json").exists()
    sent = summary["runs"][1]["bytes"]
    assert report["bytes"]["pre_round_up_per_client"] == round(sent["pre-round-up"] / 6)
    trained = (sent["train-up"] + sent["train-down"]) / 6 / 2
    assert report["bytes"]["round_per_client"] == pytest.approx(trained, rel=0.01)


def test_devices_without_rounds_are_grouped_and_sent_no_model(tmp_path):
    folders = write_sites(tmp_path / "sites")
    models = {name: tmp_path / f"{name}.safetensors" for name in folders}
    words = {"dataset": "devices", "strategy": "rcc-pfl,local,single", "validation-share": 0.2}
    run_config = {**DEFAULTS, **words, "num-server-rounds": 0, "output-dir": str(tmp_path / "out")}
    grid = Devices(folders, run_config, model_paths=models)
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    report = report_of(tmp_path / "out")
    assert named_groups(report) == TOGETHER
    assert report["resamples"] == 0
    assert grid.asked("berlin") == ["query.describe", "query.spectrum", "query.relevance"]
    assert not any(path.exists() for path in models.values())
    assert "num-server-rounds=0" in report["command"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "rcc-pfl,ifca"}, "ifca groups clients while they train"),
        ({"strategy": "single"}, "single groups no clients"),
        ({"strategy": "rcc-pfl", "repeats": 2}, "repeats is 2"),
        ({"strategy": "rcc-pfl", "track": "tensorboard"}, "track is tensorboard, but"),
    ],
)
def test_what_cannot_be_without_training_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        parse_config({**DEFAULTS, "num-server-rounds": 0, **options})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on devices, its results, and the folders of sites that were not in it."""
    folder = tmp_path_factory.mktemp("trained")
    sites = {**SITES, "paris": (0, 2, 4), "milan": (6, 8, 1), "sofia": (3, 5, 7)}
    folders = write_sites(folder / "sites", sites)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FL_CACHE_DIR", str(folder / "cache"))
        known = {name: folders[name] for name in SITES}
        summary, _ = run_devices(folder / "out", known, num_server_rounds=5)
    return folder / "out", folders, summary["runs"][0]


def placed(capsys, *words):
    capsys.readouterr()
    status = main(["place", *map(str, words)])
    return status, capsys.readouterr()


@pytest.mark.parametrize(("name", "friend"), [("paris", "berlin"), ("milan", "oslo")])
def test_a_new_client_finds_those_with_its_task(trained, capsys, name, friend):
    out, folders, one = trained
    status, said = placed(capsys, out, "--data-path", folders[name])
    cluster = one["clusters"][one["names"].index(friend)]
    assert status == 0
    assert f"cluster {cluster}, with {friend} " in said.out
    assert "certain in 100 % of the resamples" in said.out


def test_a_client_of_an_unknown_task_fits_no_cluster(trained, capsys):
    out, folders, _ = trained
    status, said = placed(capsys, out, "--data-path", folders["sofia"])
    assert status == 1
    assert "They fit no cluster" in said.out


def test_a_new_client_is_classified_by_its_cluster_s_model(trained, capsys, tmp_path):
    out, folders, one = trained
    csv = tmp_path / "answers.csv"
    status, said = placed(capsys, out, "--data-path", folders["paris"])
    assert status == 0
    cluster = one["clusters"][one["names"].index("berlin")]
    model = out / f"models/rcc-pfl/seed-0/cluster-{cluster}.safetensors"
    assert said.out.endswith(f"its cluster's model, for fedkin classify: {model}\n")
    assert main(["classify", str(model), str(folders["paris"]), "--output", str(csv)]) == 0
    rows = csv.read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == 60
    right = [Path(path).parent.name == found for path, found, _ in (r.split(",") for r in rows)]
    assert np.mean(right) > 0.6
    assert load_model(model)[1].cluster == cluster


def test_saved_eigenvectors_are_those_sent_and_private(trained):
    out, _, one = trained
    path = out / "spectra-rcc-pfl-seed-0.safetensors"
    stored = load_spectra(path)
    assert path.stat().st_mode & 0o077 == 0
    assert stored.card.names == tuple(one["names"])
    assert stored.clusters.tolist() == one["clusters"]
    for vectors in stored.eigenvectors:
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=1e-5)


def test_without_keep_spectra_no_eigenvectors_are_saved(tmp_path, capsys):
    group(tmp_path / "out", *SIMULATED, "keep-spectra=false", "--resamples", "0")
    assert not list((tmp_path / "out").glob("spectra-*"))
    status, said = placed(capsys, tmp_path / "out", "--data-path", tmp_path)
    assert status == 2
    assert "has no eigenvectors of a run" in said.err


def test_what_cannot_be_placed_is_named(trained, tmp_path, capsys):
    out, folders, _ = trained
    few, damaged, broken = (tmp_path / name for name in ("few", "damaged", "broken"))
    shutil.copytree(folders["paris"] / "digit 0", few)
    for path in sorted(few.iterdir())[4:]:
        path.unlink()
    shutil.copytree(few, damaged)
    (damaged / "broken.png").write_bytes(b"no image")
    broken.mkdir()
    (broken / "spectra-rcc-pfl-seed-0.safetensors").write_bytes(b"nothing")
    for words, said in (
        ((tmp_path / "nowhere", "--data-path", few), "nowhere cannot be used: No such file"),
        ((out, "--data-path", tmp_path / "nowhere"), "nowhere does not exist"),
        ((out, "--data-path", few), "there are 4 images, but at least 5"),
        ((out, "--data-path", damaged), "broken.png cannot be decoded"),
        ((out, "--data-path", tmp_path / "t.csv"), "give a folder of images, or a function that"),
        ((out, "--strategy", "flt", "--data-path", few), "the clusters of rcc-pfl on seed 0: cho"),
        ((out, "--seed", "4", "--data-path", few), "the clusters of rcc-pfl on seed 0: choose"),
        ((broken, "--data-path", few), "has no eigenvectors of a run"),
    ):
        status, printed = placed(capsys, *words)
        assert status == 2, words
        assert said in printed.err, printed.err


@pytest.mark.parametrize("file", ["28.png", "100.jpg"])  # made smaller, a JPEG is decoded as grey
def test_colours_are_seen_in_images_of_every_kind(tmp_path, file):
    side = int(file[:-4])
    Image.new("RGB", (side, side), (9, 200, 10)).save(tmp_path / file)
    with pytest.raises(ValueError, match="is colour, but the run's images were grey: convert it"):
        read_images(tmp_path, (1, 28, 28))


def stored(vectors, clusters, **changes):
    card = {
        **{"strategy": "rcc-pfl", "seed": 0, "features": "hog"},
        **{"relevance": "paper", "num_eigenvectors": 1, "sample_shape": (1, 28, 28)},
        **{"is_private": False, "names": tuple(map(str, range(len(clusters))))},
        **changes,
    }
    return StoredSpectra(SpectraCard(**card), np.array(clusters), vectors)


def axis(*numbers):
    vector = np.array(numbers, np.float32)[:, None]
    return vector / np.linalg.norm(vector)


def test_overlaps_by_hand():
    """Cluster 0's two overlap by 0.64, and with cluster 1 by 0 and 0.36: half-way is 0.41."""
    vectors = [axis(1, 0, 0), axis(0.8, 0.6, 0), axis(0, 1, 0)]
    found, needed = fit(axis(1, 0, 0), vectors, np.array([0, 0, 1]), 0)
    assert found == pytest.approx((1 + 0.64) / 2)
    assert needed == pytest.approx((0.64 + (0 + 0.36) / 2) / 2)
    found, needed = fit(axis(0, 0, 1), vectors, np.array([0, 0, 1]), 1)
    assert found == 0
    assert needed == pytest.approx((0.64 + 0.18) / 2)  # alone in its cluster: as in the other
    assert fit(axis(1, 0, 0), vectors[:1], np.array([0]), 0) == (1.0, 0.0)


def test_overlaps_of_clients_with_different_numbers_of_eigenvectors():
    with pytest.raises(ValueError, match=r"features of 4 dimensions, but the run's had 3"):
        place(np.ones((5, 4), np.float32), stored([axis(1, 0, 0)], [0]))
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(9, k)))[0].astype(np.float32) for k in (3, 1, 2, 4)]
    found = overlaps(bases[:2], bases)
    expected = [
        [np.sum((a.T @ b) ** 2) / min(a.shape[1], b.shape[1]) for b in bases] for a in bases
    ]
    np.testing.assert_allclose(found, expected[:2], rtol=1e-5)


def test_a_card_that_no_run_wrote_is_refused():
    wrong = {"strategy": "\x1b[2J", "seed": -1, "features": "colours", "sample_shape": (0, 3)}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"its {name} is not valid"):
            stored([axis(1, 0)], [0], **{name: value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_private": 1}, "is_private is 1, but it must be true or false"),
        ({"feature_weights": ""}, "has no key feature_weights"),
    ],
)
def test_a_file_with_another_card_is_refused(tmp_path, fields, message):
    path = tmp_path / "spectra-a-seed-0.safetensors"
    one = stored([axis(1, 0, 0)], [0])
    arrays = {"clusters": one.clusters, "eigenvectors-0": one.eigenvectors[0]}
    card = json.dumps({**asdict(one.card), **fields})
    save_file(arrays, path, metadata={"fedkin spectra 1": card})
    with pytest.raises(ValueError, match=message):
        load_spectra(path)


def resampled(labels, numbers=()):
    return Resamples(np.array(labels), "something", numbers)


def some_clusters(**changes):
    known = {
        "of_client": {0: 0, 1: 0, 2: 1, 3: 1},
        "resamples": resampled([[0, 0, 1, 1], [0, 1, 1, 1]], (2, 2)),
    }
    return Clusters(**{**known, **changes})


def reported(clusters, count=4, rule="elbow"):
    names = [f"site {client}" for client in range(count)]
    report = grouping_report(clusters, names, {"round_per_client": 30}, rule, "fedkin group")
    return json.loads(to_json(report))


def read(report):
    return from_json(Grouping, json.dumps(report))


def test_a_report_says_who_is_in_doubt():
    report = reported(some_clusters())
    assert report["certainty"] == [0.5, 0.5, 1.0, 1.0]
    assert report["in_doubt"] == [
        {"client": "site 0", "cluster": 0, "other_cluster": -1, "share": 0.5},
        {"client": "site 1", "cluster": 0, "other_cluster": 1, "share": 0.5},
    ]
    assert report["together"][1] == [0.5, 1.0, 0.5, 0.5]
    assert report["bytes"] == {"round_per_client": 30}
    assert supports_groups(read(report))


def test_silhouettes_are_those_of_relevance_alone():
    """Of another similarity 1 - R is no distance, and the number was not chosen by it."""
    similarity = np.eye(4) + squareform([0.5, 0, 0, 0, 0, 0.4])
    merges = linkage(squareform(1 - similarity, checks=False))
    for measure, count in (("relevance", 2), ("similarity", 0)):
        compared = Comparison((0, 1, 2, 3), similarity, merges, measure)
        clusters = some_clusters(comparison=compared)
        number = reported(clusters, rule="silhouette")["num_clusters"]
        assert len(number["candidates"]) == count
        assert ("silhouette" in number["why"]) == bool(count)


def test_those_left_out_have_no_certainty():
    report = reported(some_clusters(of_client={0: 0, 1: 0, 3: 1, 4: 1}), count=5)
    assert report["clusters"] == [0, 0, -1, 1, 1]
    assert report["certainty"] == [0.5, 0.5, None, 1.0, 1.0]
    assert [one["client"] for one in report["in_doubt"]] == ["site 0", "site 1"]
    assert report["together"][2] == [None] * 5
    assert report["together"][1] == [0.5, 1.0, None, 0.5, 0.5]


def test_a_fifth_of_the_images_is_left_out():
    features = np.arange(10, dtype=np.float32)[:, None]
    drawn = part(features, np.random.default_rng(0))[:, 0].tolist()
    assert len({*drawn}) == 8
    assert drawn == sorted(drawn)
    assert len(part(np.ones((1, 1), np.float32), np.random.default_rng(0))) == 1


def test_a_resample_that_leaves_a_client_nothing_but_zeros_does_not_count():
    """Of three images one is left out: here, in some resamples, the only one that is not black."""
    rng = np.random.default_rng(0)
    usual = [rng.random((20, 4), np.float32) for _ in range(3)]
    dark = np.zeros((3, 4), np.float32)
    dark[0] = 1
    clustering = SpectralClustering(num_clusters=2, num_eigenvectors=1)
    assert 0 < len(regrouped([*usual, dark], clustering, 20, 0, "rows").labels) < 20


@pytest.mark.parametrize("outliers", ["keep", "separate"])
@pytest.mark.parametrize("rule", ["auto", "elbow", "silhouette", 3])
def test_each_resample_says_which_number_the_rule_chooses(rule, outliers, monkeypatch):
    """Two kinds of clients; of a requested number, what `auto` would choose, for a few clients."""
    rng = np.random.default_rng(0)
    scales = np.repeat([[5, 5, 1, 1], [1, 1, 5, 5]], 4, axis=0)
    clients = [(rng.normal(size=(400, 4)) * scale).astype(np.float32) for scale in scales]
    clustering = SpectralClustering(rule, 2, outliers=outliers)
    found = regrouped(clients, clustering, 3, 0, "rows")
    assert (found.labels.shape, found.numbers, found.drawn) == ((3, 8), (2,) * 3, "rows")
    monkeypatch.setattr("fl_app.group.resampling.MOST_WEIGHED", 7)
    expected = () if isinstance(rule, int) else (2,) * 3
    assert regrouped(clients, clustering, 3, 0, "rows").numbers == expected
    assert regrouped(clients, clustering, 0, 0, "rows") is None


def weighed(similarity, of_client, rule="auto", **changes):
    merges = linkage(squareform(1 - similarity, checks=False), "average")
    compared = Comparison(tuple(of_client), similarity, merges, formula="paper")
    clusters = some_clusters(of_client=of_client, comparison=compared, **changes)
    return reported(clusters, count=len(of_client), rule=rule)


def test_one_group_that_was_found_is_an_answer():
    """Nearly equal scores, 0.5 and 0.52: one cluster is found, but says nothing if it was given."""
    similarity = np.eye(4) + squareform([0.5, 0.52, 0.5, 0.5, 0.52, 0.5])
    of_client = dict.fromkeys(range(4), 0)
    drawn = resampled([[0, 0, 0, 0], [0, 1, 0, 1]], (1, 2))
    report = weighed(similarity, of_client, resamples=drawn)
    assert report["why_indistinguishable"] == ""
    number = report["num_clusters"]
    shares = {one["num_clusters"]: one["resamples"] for one in number["candidates"]}
    assert (number["chosen"], shares) == (1, {1: 0.5, 2: 0.5, 3: 0.0})
    assert number["candidates"][0]["score"] is None
    assert number["why"].endswith("is not above what one group has at most (0.045)")
    asked = weighed(similarity, of_client, rule=1, resamples=drawn)
    assert asked["why_indistinguishable"] == "all clients are in one cluster"


def test_the_chosen_number_is_in_the_table_though_no_resample_has_it(capsys):
    """Of twenty clients in pairs, the resamples choose six other numbers."""
    similarity = np.where(np.equal.outer(np.arange(20) // 2, np.arange(20) // 2), 0.9, 0.2)
    np.fill_diagonal(similarity, 1)
    drawn = resampled([[0, 1] * 10] * 6, (2, 3, 4, 5, 6, 7))
    of_client = {client: client // 2 for client in range(20)}
    report = weighed(similarity, of_client, resamples=drawn)
    print_grouping(read(report))
    assert re.search(r"│ +10 │ 0\.875 │ +0 │", capsys.readouterr().out)
    assert "speaks for 10," in report["num_clusters"]["why"]


UNSURE = [[0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 2, 3]]


@pytest.mark.parametrize(("drawn", "is_said"), [(UNSURE, True), ([[0, 0, 1, 1]] * 4, False)])
def test_that_the_data_hardly_have_groups_is_said_where_most_are_unsure(drawn, is_said, capsys):
    report = reported(some_clusters(resamples=resampled(drawn, (2, 2, 2, 4))))
    print_grouping(read(report))
    assert ("Fewer than half of the clients are certain" in capsys.readouterr().out) == is_said
