"""docs/privacy.md and docs/scale.md say what was measured, and what they claim is so."""

import json
import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.common import GRPC_MAX_MESSAGE_LENGTH
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
from matplotlib import image

from benchmarks import many_devices, noise, scale, scale_tables
from benchmarks.noise import EIGENVECTORS
from clients.features import feature_dimension, feature_map
from clients.spectrum import leading_spectrum, relevance
from fl_core import protocol
from fl_core.datasets import load_dataset

ROOT = Path(__file__).parents[1]
PRIVACY, SCALE = (
    (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("privacy", "scale")
)
NOISE_RUN, SCALE_RUN = (
    json.loads((ROOT / f"docs/runs/measured/{name}.json").read_text(encoding="utf-8"))
    for name in ("noise", "scale")
)
EXAMPLE = json.loads((ROOT / "docs/example/summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", noise.tables(NOISE_RUN))
def test_the_privacy_page_shows_the_committed_measurement(name):
    assert noise.tables(NOISE_RUN)[name] in PRIVACY


def test_the_page_shows_every_second_sigma_and_the_committed_measurement_has_all():
    assert NOISE_RUN["sigmas"] == list(noise.SIGMAS)
    for column in product(NOISE_RUN["measured"], EIGENVECTORS):
        assert list(noise.numbers(NOISE_RUN, *column)) == list(noise.SIGMAS)
    shown = [line.split(" | ")[0] for line in noise.tables(NOISE_RUN)["ari"].splitlines()[2:]]
    assert shown == [
        "| 0",
        "| 0.025",
        "| 0.1",
        "| 0.2",
        "| 0.4",
        "| 0.8",
        "| 1.6",
        "| 3.2",
        "| 12.8",
    ]


def test_the_page_on_scale_shows_the_measured_devices():
    run = json.loads((ROOT / "docs/runs/measured/many-devices.json").read_text(encoding="utf-8"))
    assert many_devices.tables(run)["many"] in SCALE


@pytest.mark.parametrize("name", scale_tables.tables(SCALE_RUN))
def test_the_scale_page_shows_the_committed_measurement(name):
    assert scale_tables.tables(SCALE_RUN)[name] in SCALE


def row(message):
    """Return the cells of a message's row."""
    line = next(line for line in PRIVACY.splitlines() if line.startswith(f"| `{message}`"))
    return line.strip("| ").split(" | ")


def test_the_bytes_on_the_page_are_those_of_the_committed_run():
    run = next(run for run in EXAMPLE["runs"] if run["strategy"] == "rcc-pfl")
    clients, rounds = run["num-clients"], run["rounds"]
    tests = rounds // EXAMPLE["config"]["evaluate-every"]
    messages = ("spectrum", "relevance", "train", "evaluate", "keep_model")
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
        "everybody": numbers["relevance"][1],
    }
    fewer = scale.message_bytes(clients, 5, 324)
    assert f"{fewer['spectrum']:,} bytes and the 648,128 are {fewer['everybody']:,}" in PRIVACY
    # The model is the one that each round's training begins with; the answer is one number.
    kept = RecordDict({protocol.METRICS: MetricRecord({protocol.KEPT: 1})})
    assert numbers["keep_model"] == [protocol.payload_bytes(kept), numbers["train"][1]]


def test_what_the_page_concludes_is_in_the_numbers():
    for rows in NOISE_RUN["measured"].values():
        for one in rows:
            assert len(one["both"]) == NOISE_RUN["seeds"]
            if one["sigma"] <= 0.05:
                assert min(one["both"]) == 1
            if one["sigma"] >= 0.8:
                assert np.mean(one["both"]) < 0.25
    for column in product(NOISE_RUN["measured"], EIGENVECTORS):
        of_sigma = noise.numbers(NOISE_RUN, *column)
        assert np.mean(of_sigma[0]["auc"]) > 0.975
        assert np.mean(of_sigma[0.14]["auc"]) > np.mean(of_sigma[0]["auc"]) - 0.005
    for one in NOISE_RUN["measured"]["mnist"]:
        if one["sigma"] <= 1.1:
            assert min(one["eigenvectors"]) == 1


def test_the_committed_measurement_can_be_repeated(monkeypatch):
    monkeypatch.setattr(noise, "SIGMAS", noise.SIGMAS[:2])
    found = noise.measure("mnist-5k", "label", 0)
    committed = {
        (one["relevance"], one["sigma"]): one
        for one in NOISE_RUN["measured"]["mnist-5k"]
        if one["partition"] == "label"
    }
    assert len(found) == 2 * len(EIGENVECTORS)
    for one in found:
        expected = committed[one["relevance"], one["sigma"]]
        for name in ("both", "eigenvectors", "scores"):
            assert one[name] == expected[name][0]
        assert one["auc"] == pytest.approx(expected["auc"][0], abs=0.01)


def test_raw_pixels_eigenvectors_are_images():
    found = noise.raw_pixels_resemblance()
    assert found == pytest.approx(NOISE_RUN["raw-pixels-cosine"], abs=1e-3)
    assert f"cosine of {NOISE_RUN['raw-pixels-cosine']:.3f}" in PRIVACY


def test_the_picture_can_be_drawn_again(tmp_path):
    drawn = image.imread(noise.draw(NOISE_RUN, tmp_path / "noise.png"))
    assert drawn.shape == image.imread(ROOT / "docs/pictures/noise.png").shape


def test_the_worst_case_epsilon_by_hand():
    # k = d = 1, no scores, σ² = 2: ρ = 4/4 = 1, ε = 1 + 2·√(ln 10⁵) = 1 + 2·3.3931.
    assert noise.worst_case_epsilon(2**0.5, 1, 1, 0) == pytest.approx(7.7862, abs=1e-4)
    # Nine scores more: ρ = (4 + 9)/4.
    expected = 3.25 + 2 * math.sqrt(3.25 * math.log(1e5))
    assert noise.worst_case_epsilon(2**0.5, 1, 1, 9) == pytest.approx(expected)


def test_noise_on_the_gram_matrix_would_be_as_large_as_the_page_says():
    features = feature_map("hog")(load_dataset("mnist-5k").train_images[:2400]).numpy()
    assert np.linalg.norm(features, axis=1).max() <= 3.00001
    values = leading_spectrum(features, 3).eigenvalues
    assert [f"{value:.2g}" for value in values] == ["4.8", "0.72", "0.42"]
    for epsilon, images, spectral in ((1, 2400, "0.94"), (1, 24_000, "0.09"), (10, 2400, "0.11")):
        root = math.sqrt(math.log(1e5) + epsilon) - math.sqrt(math.log(1e5))
        entry = math.sqrt(2) * 9 / images / math.sqrt(2 * root**2)
        assert f"{2 * entry * math.sqrt(324):.2f}" == spectral
        assert spectral in PRIVACY


def test_the_server_guesses_by_comparing_clients():
    axes = np.eye(2, dtype=np.float32)
    grams = np.array([np.diag([2.0, 0.0]), np.diag([0.0, 5.0])])
    # Client 0 captures all of class 0 and nothing of class 1: mean 1/2, deviation 1/2.
    found = noise.guess_classes([axes[:, :1], axes[:, 1:]], grams)
    assert found.tolist() == [[1, -1], [-1, 1]]
    clients = [
        noise.Client(None, task, np.array(counts)) for task, counts in ((0, [5, 1]), (1, [3, 2]))
    ]
    assert noise.guessed(clients, found, [(0,), (1,)]) == (1, 0.5)
    assert noise.guessed(clients, -found, [(0,), (1,)]) == (0, 0.5)


def test_a_server_that_chooses_what_it_sends_learns_the_gram_matrix():
    """Scores of eᵢ and (eᵢ + eⱼ)/√2 are the entries of G²/λ₁²."""
    rng = np.random.default_rng(0)
    client = leading_spectrum(rng.normal(size=(40, 6)).astype(np.float32) * np.arange(1, 7), 3)
    axes = np.eye(6, dtype=np.float32)
    pairs = list(combinations(range(6), 2))
    asked = [*axes, *((axes[i] + axes[j]) / np.float32(2**0.5) for i, j in pairs)]
    answers = np.array(
        relevance(client.gram, client.eigenvalues, [vector[:, None] for vector in asked])
    )
    assert len(answers) == 6 * 7 // 2
    squared = np.diag(answers[:6] ** 2)
    for (i, j), answer in zip(pairs, answers[6:], strict=True):
        squared[i, j] = squared[j, i] = answer**2 - (squared[i, i] + squared[j, j]) / 2
    values, vectors = np.linalg.eigh(squared)
    stolen = vectors * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    np.testing.assert_allclose(stolen, client.gram / client.eigenvalues[0], atol=1e-3)


def test_the_pages_dimension_is_that_of_both_sizes_of_images():
    sizes = {feature_dimension("hog", shape) for shape in ((1, 28, 28), (3, 32, 32))}
    assert sizes == {SCALE_RUN["dimension"]} == {324}
    assert {one["devices"] for one in SCALE_RUN["rows"]} == set(scale.DEVICES)
    assert [one["relevance"] for one in SCALE_RUN["rows"][:2]] == list(EIGENVECTORS)


@pytest.mark.parametrize("relevance", EIGENVECTORS)
def test_how_many_devices_one_request_can_name(relevance):
    assert scale_tables.LARGEST_REQUEST == GRPC_MAX_MESSAGE_LENGTH
    rows = [one for one in SCALE_RUN["rows"] if one["relevance"] == relevance]
    # What one name takes, and what a message takes without the names of the chunks.
    name = (rows[2]["request-bytes"] / 10_000 - rows[0]["request-bytes"] / 100) / (
        rows[2]["objects"] - rows[0]["objects"]
    )
    rest = rows[0]["request-bytes"] / 100 - name
    assert name == pytest.approx(68, abs=0.1)  # 64 letters in two envelopes
    most = scale_tables.most_devices_named(SCALE_RUN, relevance)

    def request(devices):
        everybody = devices * rows[2]["bytes"]["everybody"] / 10_000
        return devices * (rest + name * everybody / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE)

    assert request(most) <= scale_tables.LARGEST_REQUEST < request(most + 1)
    assert f"{round(most, -3):,}" in SCALE
    # The measurement between the two is where the formula has it, but for a part of a chunk.
    assert request(1000) == pytest.approx(rows[1]["request-bytes"], abs=1000 * name)


@pytest.mark.parametrize("relevance", EIGENVECTORS)
def test_how_many_devices_an_hour_is_enough_for(relevance):
    most = scale_tables.most_devices_within(SCALE_RUN, relevance, 3600)
    one = scale.message_bytes(1, EIGENVECTORS[relevance], 324)["everybody"] - 128
    assert most**2 * one * 8 / 1e9 == pytest.approx(3600, rel=1e-3)
    assert f"{round(most, -2):,}" in SCALE


def test_what_one_message_is_made_of():
    sent = scale.ask_everybody(3, "missed-energy", 324)
    assert len(sent.messages) == 3
    for message in sent.messages:
        (joined,) = message.content.array_records[protocol.ARRAYS].values()
        assert joined.numpy().shape == (324, 15)
        config = message.content.config_records[protocol.CONFIG]
        assert config[protocol.NUM_COLUMNS] == [5, 5, 5]
    # A chunk, its array, the record of it, the settings, what holds both, and the message; all but
    # the last are the same for all.
    _, message = scale.measure_sending(3, "missed-energy", 324, 1)
    assert len(scale.get_all_nested_objects(message)) == 6
    assert sent.missing_objects == 5 + 3


@pytest.mark.parametrize("one", SCALE_RUN["rows"], ids=lambda one: f"{one['devices']}")
def test_the_committed_measurement_counts_as_many_objects_as_there_are_chunks(one):
    count = EIGENVECTORS[one["relevance"]]
    chunks = math.ceil((one["devices"] * count * 324 * 4 + 128) / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE)
    assert one["objects"] == 5 + chunks
    # The measurement has a hundred different sets of eigenvectors, but never two equal chunks.
    assert one["objects-of-all"] == 4 + chunks + one["devices"]
    assert one["bytes"] == scale.message_bytes(one["devices"], count, 324)


def test_a_device_answers_what_the_server_sends():
    own = scale.device(5)
    (message, *_) = scale.ask_everybody(4, "missed-energy", 324).messages
    objects = {name: part.deflate() for name, part in scale.get_all_nested_objects(message).items()}
    for _ in range(2):  # as often as one likes
        answer = own.answer(message.object_id, objects)
        scores = protocol.numbers(answer.content, protocol.RELEVANCES)
        assert len(scores) == 4
        assert all(0 <= score <= 1 for score in scores)


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
    assert scale_tables._duration(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(20, "20 B"), (1999, "2 kB"), (26_000_000, "26 MB"), (2.6e12, "2.6 TB")]
)
def test_bytes_are_shown_with_a_fitting_unit(number, shown):
    assert scale_tables._amount(number) == shown
