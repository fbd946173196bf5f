"""docs/privacy.md and docs/scale.md say what was measured, and what they claim is so."""

import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from benchmarks import federations, privacy, private_training, rebuilt, scale
from benchmarks.privacy import EIGENVECTORS
from benchmarks.writing import measured, run_of
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
EXAMPLE = run_of("make-run")


def test_the_pages_show_the_committed_measurements():
    assert rebuilt.tables(REBUILT_RUN)["membership"] in PRIVACY
    assert private_training.tables(TRAINING_RUN)["training"] in PRIVACY
    assert federations.table(measured("federations")["rows"]) in SCALE


def test_the_bytes_on_the_page_are_those_of_the_committed_run():
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \| ([\d,]+) \|$", PRIVACY, re.M)
    shown = {name: [int(size.replace(",", "")) for size in sizes] for name, *sizes in rows}
    run = next(run for run in EXAMPLE["runs"] if run["strategy"] == "rcc-pfl")
    clients, rounds = run["num-clients"], run["rounds"]
    tests = rounds // EXAMPLE["config"]["evaluate-every"]
    sizes = scale.message_bytes(clients, 20, 324)
    assert f"| {sizes['describe']}, and the text | 0, and" in PRIVACY
    assert [sizes["spectrum"], 0] == shown["spectrum"]
    assert [sizes["relevance"], sizes["relevance-query"]] == shown["relevance"]
    up = sizes["describe"] + sizes["spectrum"] + sizes["relevance"]
    assert run["bytes"] == {
        "pre-round-up": clients * up,
        "pre-round-down": clients * sizes["relevance-query"],
        "train-up": clients * rounds * shown["train"][0],
        "train-down": clients * rounds * shown["train"][1],
        "evaluate-up": clients * tests * shown["evaluate"][0],
        "evaluate-down": clients * tests * shown["evaluate"][1],
        "between-servers-up": 0,
        "between-servers-down": 0,
    }
    fewer = scale.message_bytes(clients, 5, 324)
    sizes_of_five = f"{fewer['spectrum']:,} bytes and the 648,128 are {fewer['relevance-query']:,}"
    assert sizes_of_five in PRIVACY
    # The model is the one that each round's training begins with; the answer is one number.
    stored = RecordDict({protocol.METRICS: MetricRecord({protocol.STORED: 1})})
    assert shown["save_model"] == [protocol.payload_bytes(stored), shown["train"][1]]


def test_what_the_page_concludes_is_in_the_numbers():
    ari = {
        (dataset, relevance, epsilon): scores["ari"]
        for dataset, relevance in product(PRIVACY_RUN["measured"], EIGENVECTORS)
        for epsilon, scores in privacy.numbers(PRIVACY_RUN, dataset, relevance).items()
    }
    for formula in EIGENVECTORS:
        assert sum(one < 1 for one in ari["cifar10", formula, 16]) == 1
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


def test_no_attack_is_better_than_the_bound():
    for one in REBUILT_RUN["membership"]:
        for epsilon in rebuilt.EPSILONS:
            assert one["auc"][f"{epsilon:g}"] <= rebuilt.highest_auc(epsilon) + 0.005
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


def test_raw_pixels_eigenvectors_are_images():
    found = privacy.raw_pixels_resemblance()
    assert found == pytest.approx(PRIVACY_RUN["raw-pixels-cosine"], abs=1e-3)
    assert f"cosine of {PRIVACY_RUN['raw-pixels-cosine']:.3f}" in PRIVACY


def test_the_numbers_in_the_text_about_the_mechanism():
    assert f"{noise_multiplier(1, 1e-5):.2f} for ε = 1" in PRIVACY
    assert f"{noise_multiplier(8, 1e-5):.2f} for ε = 8" in PRIVACY
    assert PROJECTED == 32


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


@pytest.mark.parametrize("relevance", EIGENVECTORS)
def test_how_many_devices_an_hour_is_enough_for(relevance):
    assert f"{round(scale.most_devices_within(relevance, 3600), -2):,}" in SCALE
