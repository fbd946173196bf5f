"""docs/privacy.md and docs/scale.md say what was measured, and what they claim is so."""

import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from PIL import Image

from benchmarks import federations, privacy, private_training, rebuilt, scale
from benchmarks.privacy import EIGENVECTORS
from benchmarks.writing import measured, run_of
from clients.features.dimensions import feature_dimension
from clients.privacy import PROJECTED, noise_multiplier
from clients.signatures.spectrum import gram_matrix, leading_spectrum, relevance
from fl_core.messages import protocol
from fl_core.relevance import MISSED_ENERGY, PAPER

ROOT = Path(__file__).parents[2]
PRIVACY, SCALE = (
    (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("privacy", "scale")
)
PRIVACY_RUN, REBUILT_RUN, TRAINING_RUN = (
    measured(name) for name in ("privacy", "rebuilt", "private-training")
)
TABLES = {
    "sizes": privacy.tables(PRIVACY_RUN)["sizes"],
    "membership": rebuilt.tables(REBUILT_RUN)["membership"],
    "training": private_training.tables(TRAINING_RUN)["training"],
}
EXAMPLE = run_of("make-run")


@pytest.mark.parametrize("name", TABLES)
def test_the_privacy_page_shows_the_committed_measurement(name):
    assert TABLES[name] in PRIVACY


def test_the_committed_measurement_is_that_of_the_benchmark():
    assert PRIVACY_RUN["epsilons"] == list(privacy.EPSILONS)
    assert list(PRIVACY_RUN["measured"]) == list(privacy.DATASETS)
    for column in product(PRIVACY_RUN["measured"], EIGENVECTORS):
        for scores in privacy.numbers(PRIVACY_RUN, *column).values():
            assert {len(found) for found in scores.values()} == {privacy.SEEDS * 2}
    assert {len(one["ari"]) for one in PRIVACY_RUN["sizes"]} == {privacy.SIZE_SEEDS}
    assert [row["epsilon"] for row in TRAINING_RUN["rows"]] == sorted(private_training.EPSILONS)
    assert TRAINING_RUN["options"] == private_training.OPTIONS


def test_the_page_on_scale_shows_the_measured_federations():
    assert federations.table(measured("federations")["rows"]) in SCALE


def row(message):
    """Return the cells of a message's row."""
    line = next(line for line in PRIVACY.splitlines() if line.startswith(f"| `{message}`"))
    return line.strip("| ").split(" | ")


def test_the_bytes_on_the_page_are_those_of_the_committed_run():
    run = next(run for run in EXAMPLE["runs"] if run["strategy"] == "rcc-pfl")
    clients, rounds = run["num-clients"], run["rounds"]
    tests = rounds // EXAMPLE["config"]["evaluate-every"]
    messages = ("spectrum", "relevance", "train", "evaluate", "save_model")
    said = {name: row(name)[3:] for name in messages}
    numbers = {name: [int(n.replace(",", "")) for n in cells] for name, cells in said.items()}
    describe = int(row("describe")[3].split(",")[0])
    up = describe + numbers["spectrum"][0] + numbers["relevance"][0]
    assert run["bytes"] == {
        "pre-round-up": clients * up,
        "pre-round-down": clients * numbers["relevance"][1],
        "train-up": clients * rounds * numbers["train"][0],
        "train-down": clients * rounds * numbers["train"][1],
        "evaluate-up": clients * tests * numbers["evaluate"][0],
        "evaluate-down": clients * tests * numbers["evaluate"][1],
        "between-servers-up": 0,
        "between-servers-down": 0,
    }
    assert scale.message_bytes(clients, 20, 324) == {
        "describe": describe,
        "spectrum": numbers["spectrum"][0],
        "relevance": numbers["relevance"][0],
        "relevance-query": numbers["relevance"][1],
    }
    fewer = scale.message_bytes(clients, 5, 324)
    assert (
        f"{fewer['spectrum']:,} bytes and the 648,128 are {fewer['relevance-query']:,}" in PRIVACY
    )
    # The model is the one that each round's training begins with; the answer is one number.
    stored = RecordDict({protocol.METRICS: MetricRecord({protocol.STORED: 1})})
    assert numbers["save_model"] == [protocol.payload_bytes(stored), numbers["train"][1]]


def test_what_the_page_concludes_is_in_the_numbers():
    ari = {
        (dataset, relevance, epsilon): scores["ari"]
        for dataset, relevance in product(PRIVACY_RUN["measured"], EIGENVECTORS)
        for epsilon, scores in privacy.numbers(PRIVACY_RUN, dataset, relevance).items()
    }
    for (dataset, _, epsilon), found in ari.items():
        if epsilon == 0 or (dataset != "cifar10" and epsilon >= 8):
            assert min(found) == 1
        if epsilon >= {"mnist": 0.5, "fashion-mnist": 4}.get(dataset, math.inf):
            assert min(found) == 1
        if dataset == "mnist-5k" and 0 < epsilon <= 0.5:
            assert np.mean(found) < 0.1
    at_two = (
        "at 2, with the partition `quantity`, only one task of three is distinguished from the "
        "others"
    )
    assert f"{at_two} (with `label`, three federations of five or more stay whole)" in PRIVACY
    for one in PRIVACY_RUN["measured"]["cifar10"]:
        if one["epsilon"] == 2:
            assert one["partition"] == "label" or max(one["ari"]) < 0.6
            assert one["partition"] == "quantity" or one["ari"].count(1) >= 3
    for formula in EIGENVECTORS:
        assert sum(one < 1 for one in ari["cifar10", formula, 16]) == 1
        guesses = privacy.numbers(PRIVACY_RUN, "mnist-5k", formula)[1]
        assert np.mean(guesses["auc"]) > 0.895
    for dataset, epsilon in product(PRIVACY_RUN["measured"], privacy.EPSILONS):
        few, many = (np.mean(ari[dataset, name, epsilon]) for name in (MISSED_ENERGY, PAPER))
        assert few >= many - 0.01
    enough = {
        (one["images"], one["epsilon"])
        for one in PRIVACY_RUN["sizes"]
        if one["features"] == "projected" and min(one["ari"]) == 1
    }
    for epsilon, images in ((8, 50), (2, 100), (1, 200), (0.5, 400)):
        assert min(size for size, of in enough if of == epsilon) == images
    lost = {
        row["epsilon"]: -np.mean([run["accuracy"] for run in row["runs"]])
        for row in TRAINING_RUN["rows"]
    }
    lost = {epsilon: score - lost[0] for epsilon, score in lost.items()}
    assert lost[8] == pytest.approx(0.01, abs=0.003)
    assert lost[0.5] - lost[8] < 0.003
    assert lost[0.1] == pytest.approx(0.05, abs=0.006)


def test_no_attack_is_better_than_the_bound():
    for one in REBUILT_RUN["membership"]:
        for epsilon in rebuilt.EPSILONS:
            assert one["auc"][f"{epsilon:g}"] <= rebuilt.highest_auc(epsilon) + 0.005
    without, most = (
        [one["auc"][name] for one in REBUILT_RUN["membership"]] for name in ("0", "0.5")
    )
    assert max(without) > 0.99
    assert max(most) < 0.55
    # Two normals that are 1/σ apart, by drawing.
    rng = np.random.default_rng(0)
    mu = 1 / noise_multiplier(2, rebuilt.DELTA)
    apart = np.mean(rng.normal(mu, size=10**6) > rng.normal(size=10**6))
    assert rebuilt.highest_auc(2) == pytest.approx(apart, abs=0.003)


def test_the_attacks_by_hand():
    rows = np.array([[3.0, 4.0], [1.0, 0.0]])
    assert rebuilt.captured(rows, np.eye(2)[:, :1]) == pytest.approx([9 / 25, 1])
    assert rebuilt.likelihood(rows, np.diag([2.0, 1.0]), np.eye(2)) == pytest.approx([9, 1])
    assert rebuilt.auc_of_membership(np.array([3, 1]), np.array([2, 0])) == 0.75
    grams = [np.diag([1.0, 0.0]), np.diag([0.0, 1.0])]
    assert rebuilt.class_shares(np.diag([3.0, 1.0]), grams) == pytest.approx([0.75, 0.25])


def test_the_committed_measurement_can_be_repeated(monkeypatch):
    monkeypatch.setattr(privacy, "EPSILONS", (0, 2))
    committed = {
        (one["relevance"], one["epsilon"]): one
        for one in PRIVACY_RUN["measured"]["mnist-5k"]
        if one["partition"] == "label"
    }
    found = privacy.measure("mnist-5k", "label", 0)
    assert len(found) == 2 * len(EIGENVECTORS)
    for one in found:
        expected = committed[one["relevance"], one["epsilon"]]
        assert one["ari"] == pytest.approx(expected["ari"][0], abs=1e-4)
        assert one["auc"] == pytest.approx(expected["auc"][0], abs=0.01)


def test_raw_pixels_eigenvectors_are_images():
    found = privacy.raw_pixels_resemblance()
    assert found == pytest.approx(PRIVACY_RUN["raw-pixels-cosine"], abs=1e-3)
    assert f"cosine of {PRIVACY_RUN['raw-pixels-cosine']:.3f}" in PRIVACY


def test_the_picture_of_rebuilt_images_is_small_and_can_be_drawn(tmp_path):
    committed = ROOT / "docs/pictures/rebuilt.png"
    assert committed.stat().st_size < 300_000
    noises = ("no noise", *(f"ε = {epsilon:g}" for epsilon in (8, 2, 0.5)))
    columns = ("mean image", *noises, "eigenvector 2", "eigenvector 3")
    images = {name: np.linspace(0, 1, 784) for name in columns}
    rebuilt.draw([images] * 6, tmp_path / "rebuilt.png")
    with Image.open(tmp_path / "rebuilt.png") as drawn, Image.open(committed) as stored:
        assert drawn.size == stored.size


def test_the_numbers_in_the_text_about_the_mechanism():
    assert f"{noise_multiplier(1, 1e-5):.2f} for ε = 1" in PRIVACY
    assert f"{noise_multiplier(8, 1e-5):.2f} for ε = 8" in PRIVACY
    assert PROJECTED == 32
    # The largest eigenvalue of noise with deviation 1 on the diagonal, 1/√2 off it.
    drawn = np.random.default_rng(0).standard_normal((324, 324))
    largest = np.linalg.eigvalsh((drawn + drawn.T) / 2)[-1]
    assert largest == pytest.approx(math.sqrt(2 * 324), rel=0.05)


def test_the_server_guesses_by_comparing_clients():
    axes = np.eye(2, dtype=np.float32)
    grams = np.array([np.diag([2.0, 0.0]), np.diag([0.0, 5.0])])
    # Client 0 captures all of class 0 and nothing of class 1: mean 1/2, deviation 1/2.
    found = privacy.guess_classes([axes[:, :1], axes[:, 1:]], grams)
    assert found.tolist() == [[1, -1], [-1, 1]]
    clients = [
        privacy.Client(None, task, np.array(counts)) for task, counts in ((0, [5, 1]), (1, [3, 2]))
    ]
    assert privacy.guessed(clients, found, [(0,), (1,)]) == (1, 0.5)
    assert privacy.guessed(clients, -found, [(0,), (1,)]) == (0, 0.5)


def test_a_server_that_chooses_what_it_sends_learns_the_gram_matrix():
    """Scores of eᵢ and (eᵢ + eⱼ)/√2 are the entries of G²/λ₁²."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(40, 6)) * np.arange(1, 7)).astype(np.float32)
    client = leading_spectrum(rows, 3)
    axes = np.eye(6, dtype=np.float32)
    pairs = list(combinations(range(6), 2))
    asked = [*axes, *((axes[i] + axes[j]) / np.float32(2**0.5) for i, j in pairs)]
    answers = np.array(relevance("paper", client.whole, [vector[:, None] for vector in asked]))
    assert len(answers) == 6 * 7 // 2
    squared = np.diag(answers[:6] ** 2)
    for (i, j), answer in zip(pairs, answers[6:], strict=True):
        squared[i, j] = squared[j, i] = answer**2 - (squared[i, i] + squared[j, j]) / 2
    values, vectors = np.linalg.eigh(squared)
    stolen = vectors * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    np.testing.assert_allclose(stolen, gram_matrix(rows) / client.eigenvalues[0], atol=1e-3)


def test_the_pages_dimension_is_that_of_both_sizes_of_images():
    sizes = {feature_dimension("hog", shape) for shape in ((1, 28, 28), (3, 32, 32))}
    assert sizes == {scale.DIMENSION}


@pytest.mark.parametrize("relevance", EIGENVECTORS)
def test_how_many_devices_an_hour_is_enough_for(relevance):
    most = scale.most_devices_within(relevance, 3600)
    one = scale.message_bytes(1, EIGENVECTORS[relevance], 324)["relevance-query"] - 128
    assert most**2 * one * 8 / 1e9 == pytest.approx(3600, rel=1e-3)
    assert f"{round(most, -2):,}" in SCALE


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0123, "12 ms"),
        (0.00023, "0.23 ms"),
        (1.04, "1 s"),
        (119, "119 s"),
        (7199, "120 min"),
        (20_800, "5.8 h"),
    ],
)
def test_seconds_are_shown_with_a_fitting_unit(number, shown):
    assert scale._duration(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(20, "20 B"), (1999, "2 kB"), (26_000_000, "26 MB"), (2.6e12, "2.6 TB")]
)
def test_bytes_are_shown_with_a_fitting_unit(number, shown):
    assert scale._amount(number) == shown
