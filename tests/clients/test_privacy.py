import math
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from clients import privacy
from clients.attacks import random_basis
from clients.features.compute import feature_map
from clients.handlers import _count_training, answer_queries
from clients.privacy import (
    PROJECTED,
    Promise,
    SystemRandomness,
    bounded_features,
    noise_multiplier,
    private_gram,
)
from clients.signatures.spectrum import relevance, spectrum_of_gram
from fl_app.client_app import app
from fl_app.config.run_config import parse_config
from fl_app.devices.site.device_node import DeviceNode
from fl_app.simulation.node import SimulatedNode
from fl_core.agreement.agreement import Agreement
from fl_core.messages import protocol
from fl_core.partitions.federation import simulate_federation
from tests.app_runs import DEFAULTS
from tests.device_images import write_sites
from tests.local_grid import LocalGrid

DELTA = 1e-5


class Fixed:
    """In place of a generator: noise that can be worked by hand."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers, np.float64)

    def standard_normal(self, shape):
        return self.numbers.reshape(shape)


def rng(seed=0):
    return np.random.default_rng(seed)


# --------------------------------------------------------------------------------- how much noise


def test_sigma_is_that_of_the_literature():
    # What Balle and Wang's code gives (analytic-gaussian-mechanism on GitHub), the classical
    # mechanism's being 4.84; with ε = 0 and δ = 0.1, σ would be 1/(2·Φ⁻¹(0.55)).
    assert noise_multiplier(1.0, DELTA) == pytest.approx(3.730631634, rel=1e-6)
    assert noise_multiplier(1e-12, 0.1) == pytest.approx(1 / (2 * norm.ppf(0.55)), rel=1e-6)


def spent(sigma, epsilon):
    """Return the δ of two normals at a distance of 1, integrated numerically."""
    x = np.linspace(-60 * sigma, 60 * sigma, 2_000_001)
    over = norm.pdf(x, 1, sigma) - math.exp(epsilon) * norm.pdf(x, 0, sigma)
    return np.trapezoid(np.maximum(over, 0), x)


@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_sigma_is_the_least_that_satisfies_the_definition(epsilon, delta):
    sigma = noise_multiplier(epsilon, delta)
    assert spent(sigma, epsilon) == pytest.approx(delta, rel=1e-3)
    assert spent(0.99 * sigma, epsilon) > 1.01 * delta


# ----------------------------------------------------------------------------- clipping, and noise


@given(st.integers(1, 9), st.sampled_from([1, 7, 32, 50]), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_no_row_is_longer_than_one(count, dimension, scale, seed):
    rows = (scale * rng(seed).normal(size=(count, dimension))).astype(np.float32)
    found = bounded_features(rows)
    assert found.shape == (count, min(dimension, PROJECTED))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)
    # The length of a row is lost.
    np.testing.assert_allclose(found, bounded_features(np.float32(3) * rows), atol=1e-6)


@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 99), st.floats(0, 1e3))
def test_one_image_changes_the_matrix_by_no_more_than_one_nth(count, dimension, seed, scale):
    """Neighbours: the last image counts, or a blank in its place does."""
    rows = (scale * rng(seed).normal(size=(count, dimension))).astype(np.float32)
    without = rows.copy()
    without[-1] = 0
    no_noise = Fixed(*np.zeros(min(dimension, PROJECTED) ** 2))
    grams = [private_gram(bounded_features(one), 1, DELTA, no_noise) for one in (rows, without)]
    assert np.linalg.norm(grams[0].astype(float) - grams[1]) <= (1 + 1e-5) / count


def test_the_noise_on_a_gram_matrix_by_hand(monkeypatch):
    monkeypatch.setattr(privacy, "noise_multiplier", lambda epsilon, delta: 6.0)
    # n = 3, so 2 on each number that is drawn, and the mean of the two off the diagonal.
    found = private_gram(np.eye(3)[:, :2], 1, DELTA, Fixed(1, 2, 0, -1))
    np.testing.assert_allclose(found, [[1 / 3 + 2, 2], [2, 1 / 3 - 2]], rtol=1e-6)


def test_a_spectrum_with_noise_has_what_is_above_zero():
    gram = np.diag([3, -2, 1, 0.5]).astype(np.float32)
    found = spectrum_of_gram(gram, 4)
    assert found.eigenvalues.tolist() == [3, 1, 0.5]
    assert found.eigenvectors.tolist() == np.eye(4)[:, [0, 2, 3]].tolist()
    with pytest.raises(ValueError, match="num-eigenvectors is 5, but the features have 4"):
        spectrum_of_gram(gram, 5)
    with pytest.raises(ValueError, match="all zero"):
        spectrum_of_gram(-gram @ gram, 2)


# ----------------------------------------------------------------------- where noise is drawn from


def test_noise_of_the_system_is_normal_and_never_the_same():
    source = SystemRandomness()
    drawn = source.standard_normal((40, 500))
    assert drawn.shape == (40, 500)
    assert kstest(drawn.ravel(), "norm").pvalue > 1e-6
    assert (drawn != source.standard_normal((40, 500))).all()
    assert kstest(source.random(20_000), "uniform").pvalue > 1e-6


def noise_of(kind, client=0, server_round=0, seed=0):
    """Return the noise with which a simulated node answers a query."""
    settings = ConfigRecord({protocol.SEED: seed, protocol.SERVER_ROUND: server_round})
    content = RecordDict({protocol.CONFIG: settings})
    message = Message(content, dst_node_id=1, message_type=protocol.query(kind))
    return SimulatedNode.randomness(SimpleNamespace(message=message, index=client))


# ------------------------------------------------------------------------------------- in the app


PRIVATE = {"pre-round-epsilon": 1.0}


class Asked:
    """Two real clients, which are asked what a server asks."""

    def __init__(self, **options):
        self.grid = LocalGrid(app, 2, run_config={**DEFAULTS, **options})

    def ask(self, message_type, arrays=None, **options):
        """Return both answers; what a client refuses, as the sentence."""
        config = {protocol.SEED: 0, protocol.SERVER_ROUND: 0, protocol.NUM_CLIENTS: 2}
        content = {protocol.CONFIG: ConfigRecord({**config, **options})}
        if arrays is not None:
            content[protocol.ARRAYS] = ArrayRecord({protocol.EIGENVECTORS: Array(arrays)})
        messages = [
            Message(RecordDict(content), dst_node_id=node, message_type=message_type)
            for node in self.grid.contexts
        ]
        replies = self.grid.send_and_receive(messages)
        return [one.error.reason if one.has_error() else one.content for one in replies]

    def spectra(self, **options):
        """Return both clients' five eigenvectors, one array, and what waits at the clients."""
        options = {protocol.NUM_EIGENVECTORS: 5, **options}
        answers = self.ask(protocol.query(protocol.SPECTRUM), **options)
        vectors = [one.array_records[protocol.ARRAYS]["eigenvectors"].numpy() for one in answers]
        return np.concatenate(vectors, axis=1), [
            context.state.array_records["spectrum"] for context in self.grid.contexts.values()
        ]

    def relevances(self, vectors):
        """Return what both say of five and of all other columns."""
        columns = [5, vectors.shape[1] - 5]
        answers = self.ask(
            protocol.query(protocol.RELEVANCE),
            vectors,
            **{protocol.RELEVANCE_FORMULA: "paper", protocol.NUM_COLUMNS: columns},
        )
        return [protocol.numbers(one, protocol.RELEVANCES) for one in answers]


def features_of(client):
    """Return the features of one of the two clients, as the app computes them."""
    settings = parse_config({**DEFAULTS, "num-clients": 2}).federation_settings(2, 0)
    images, _ = simulate_federation(settings).training_data(client, 0)
    return feature_map("hog")(images).numpy()


def test_all_that_leaves_comes_from_one_matrix_with_noise():
    asked = Asked(**PRIVATE)
    vectors, waiting = asked.spectra()
    assert vectors.shape == (PROJECTED, 10)
    copies = [dict(one) for one in waiting]
    scores = asked.relevances(vectors)
    for client, stored in enumerate(copies):
        noise = noise_of(protocol.SPECTRUM, client)
        gram = private_gram(bounded_features(features_of(client)), 1.0, DELTA, noise)
        found = spectrum_of_gram(gram, 5)
        assert (stored["eigenvectors"].numpy() == found.whole.vectors[0]).all()
        assert (vectors[:, 5 * client : 5 * client + 5] == found.eigenvectors).all()
        halves = [vectors[:, :5], vectors[:, 5:]]
        assert scores[client] == relevance("paper", found.whole, halves)
    again, _ = Asked(**PRIVATE).spectra()
    assert (again == vectors).all()  # another run of the same seed


def test_a_server_that_asks_again_gets_no_other_noise():
    asked = Asked(**PRIVATE)
    first, _ = asked.spectra()
    later, _ = asked.spectra(**{protocol.SERVER_ROUND: 3})
    asked.ask(protocol.query(protocol.DESCRIBE))  # another strategy begins
    more, _ = asked.spectra(**{protocol.SERVER_ROUND: 4})
    assert (first == later).all()
    assert (first == more).all()
    # Other images, other noise.
    other, _ = asked.spectra(**{protocol.SEED: 1})
    assert (other != first).any()


def test_a_device_draws_noise_for_one_size_of_its_images_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    folders = write_sites(tmp_path, {"berlin": (0, 1), "lyon": (2, 3)}, images=3)
    asked = Asked(**PRIVATE, dataset="devices")
    asked.grid.app = ClientApp()
    answer_queries(asked.grid.app, DeviceNode)
    for context, (name, folder) in zip(asked.grid.contexts.values(), folders.items(), strict=True):
        context.node_config = {"name": name, "data-path": str(folder)}

    def agreed(side):
        names = tuple(f"digit {digit}" for digit in range(4))
        return Agreement(names, (1, side, side)).as_config()

    first, _ = asked.spectra(**agreed(28))
    query = protocol.query(protocol.SPECTRUM)
    for reason in asked.ask(query, **{protocol.NUM_EIGENVECTORS: 5}, **agreed(24)):
        assert "pre-round-epsilon is 1, for one set of features in a run" in reason
    again, _ = asked.spectra(**agreed(28))
    assert (first == again).all()


@pytest.mark.parametrize("key", ["pre-round-epsilon", "training-epsilon"])
@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("signature", {"num-centroids": 5, "num-components": 5}, "centroids"),
        ("losses", {}, "losses"),
    ],
)
def test_a_client_refuses_what_has_no_noise(key, kind, options, what):
    for reason in Asked(**{key: 2.0}).ask(protocol.query(kind), **options):
        assert f"{key} is 2, and this client was asked for {what}" in reason


def test_a_client_trains_with_noise_by_the_values_of_its_promise_alone():
    for reason in Asked(**{"training-epsilon": 8.0}).ask("train", tuned='{"batch-size": 1000}'):
        assert "training-epsilon is 8, which holds for the values of the run alone, and" in reason


def test_a_client_trains_no_more_often_than_promised_and_on_as_many_samples():
    """Each round's noise is that of its number of samples, as if all rounds had it."""
    client = SimpleNamespace(context=SimpleNamespace(state=RecordDict()))
    client.promise = lambda: Promise(most_trainings=3)
    for _ in range(3):
        _count_training(client, 64_000)
    with pytest.raises(ValueError, match="has trained 3 times in this run"):
        _count_training(client, 64_000)
    with pytest.raises(ValueError, match=r"has 64 training samples, and had 64000 when it trained"):
        _count_training(client, 64)


def test_every_client_projects_equally_and_angles_stay():
    rows = random_basis((324, 20), rng()).T
    assert np.linalg.norm(bounded_features(np.eye(100, dtype=np.float32))[-1]) == pytest.approx(1)
    found = bounded_features(rows)
    np.testing.assert_allclose(bounded_features(rows[:1])[0], found[0], atol=1e-12)
    cosines = np.abs(found @ found.T - np.eye(20))
    # In 32 dimensions, the mean of a random cosine's size is √(2/(32π)).
    assert cosines.sum() / (20 * 19) == pytest.approx(math.sqrt(2 / (32 * math.pi)), rel=0.2)
