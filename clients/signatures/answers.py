"""A client's answers before training: its spectrum, its relevances, its signature."""

import hashlib

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from clients.client import Client, seed_of
from clients.privacy import bounded_features, private_gram
from clients.signatures.autoencoder import encode, fit, load_autoencoder
from clients.signatures.shift import image_sketch
from clients.signatures.signature import linear_signature, signature
from clients.signatures.spectrum import Spectrum, leading_spectrum, relevance, spectrum_of_gram
from clients.training.train import as_pixels
from fl_core.messages import protocol
from fl_core.relevance import FORMULAS, Spectra

# What waits at a client between messages.
STATE = "spectrum"
_PRIVATE = "private"


def eigenvectors_answer(client: Client) -> RecordDict:
    """Return the client's leading eigenvectors (RCC-PFL, Procedure 1), as the message asks."""
    count = protocol.setting(client.message, protocol.NUM_EIGENVECTORS)
    at_server = bool(protocol.setting(client.message, protocol.WITH_EIGENVALUES, 0))
    alone = at_server or bool(protocol.setting(client.message, protocol.COMPARED_THERE, 0))
    spectrum = _spectrum(client, count, at_server=at_server, only_leading=alone)
    shared = {protocol.EIGENVECTORS: Array(spectrum.eigenvectors)}
    if at_server:
        shared[protocol.EIGENVALUES] = Array(np.asarray(spectrum.eigenvalues, np.float32))
    if alone:
        return RecordDict({protocol.ARRAYS: ArrayRecord(shared)})
    # What the second query needs waits on the client, since that may reach another process, so that
    # features are computed once.
    whole = {
        "eigenvalues": Array(spectrum.whole.values[0]),
        "eigenvectors": Array(spectrum.whole.vectors[0]),
    }
    client.context.state[STATE] = ArrayRecord(whole)
    return RecordDict({protocol.ARRAYS: ArrayRecord(shared)})


def _spectrum(client: Client, count: int, *, at_server: bool, only_leading: bool) -> Spectrum:
    """Return the client's spectrum; of a Gram matrix with noise, if that is promised."""
    raw = protocol.setting(client.message, protocol.RAW_SAMPLES, 0)
    features = _rows(client.training_data()[0]) if raw else client.features()
    if not client.promise().pre_round_epsilon:
        # For the server they stand for the Gram matrix: there are no more than dimensions.
        count = min(count, features.shape[1]) if at_server else count
        return leading_spectrum(features, count, only_leading=only_leading)
    gram = _private_gram(client, features)
    return spectrum_of_gram(gram, min(count, len(gram)) if at_server else count)


def _rows(samples: torch.Tensor) -> NDArray[np.float32]:
    pixels: NDArray[np.float32] = as_pixels(samples.cpu()).flatten(1).numpy()  # as features=raw
    return pixels


def _private_gram(client: Client, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the Gram matrix with noise: the same one, as long as the features are the same.

    So a server that asks again, or for other sizes of images, learns nothing more, and all
    strategies of a run cost ε once.
    """
    state, promise = client.context.state, client.promise()
    fingerprint = hashlib.sha256(features.tobytes()).digest()
    known = state.array_records.get(_PRIVATE)
    if known is not None:
        if known["fingerprint"].numpy().tobytes() == fingerprint:
            return known["gram"].numpy()
        if client.has_fixed_samples:
            raise ValueError(
                f"pre-round-epsilon is {promise.pre_round_epsilon:g}, for one set of features in a "
                "run, and this client's are now others, since its images or the size that was "
                "agreed for them have changed: start a new run, which costs as much again."
            )
    gram = private_gram(
        bounded_features(features),
        promise.pre_round_epsilon,
        promise.privacy_delta,
        client.randomness(),
    )
    known_by = Array(np.frombuffer(fingerprint, np.uint8))
    state[_PRIVATE] = ArrayRecord({"gram": Array(gram), "fingerprint": known_by})
    return gram


def refuse_without_noise(client: Client, what: str) -> None:
    """Refuse to share what has no noise, if anything is to be private."""
    promise = client.promise()
    for key, epsilon in (
        ("pre-round-epsilon", promise.pre_round_epsilon),
        ("training-epsilon", promise.training_epsilon),
    ):
        if epsilon:
            raise ValueError(
                f"{key} is {epsilon:g}, and this client was asked for {what}, which have no noise: "
                f"choose another strategy or relevance, or set {key} to 0."
            )


def relevances_answer(client: Client) -> RecordDict:
    """Return how relevant each client's eigenvectors are to the client, in the server's order."""
    state = client.context.state
    asked = client.message.content.config_records[protocol.CONFIG]
    formula = str(asked.get(protocol.RELEVANCE_FORMULA, ""))
    if STATE not in state:
        raise ValueError("this client was asked for relevance before its spectrum.")
    spectrum = state.array_records.pop(STATE)
    joined = client.message.content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS].numpy()
    if formula not in FORMULAS:
        raise ValueError(f'relevance is "{formula}", but this client knows {", ".join(FORMULAS)}.')
    whole = Spectra.of([spectrum["eigenvectors"].numpy().T], [spectrum["eigenvalues"].numpy()])
    scores = relevance(formula, whole, _split(client.message, joined))
    return RecordDict({protocol.METRICS: MetricRecord({protocol.RELEVANCES: scores})})


def _split(message: Message, joined: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return each client's columns of a joined array, in the server's order."""
    columns = message.content.config_records[protocol.CONFIG][protocol.NUM_COLUMNS]
    if not isinstance(columns, list) or sum(map(int, columns)) != joined.shape[-1]:
        raise ValueError("the numbers of eigenvectors do not add up to those that were sent.")
    return np.split(joined, np.cumsum(columns)[:-1], axis=-1)


def signature_answer(client: Client) -> RecordDict:
    """Return a few centroids that stand for the client's images.

    The message carries an encoder, or a whole autoencoder to be fine-tuned (FLT, Algorithm 2), and
    the answer a sketch of the images. Otherwise, centroids are of principal components (PCA +
    k-means + HC).
    """
    refuse_without_noise(client, "centroids")
    message = client.message
    images, _ = client.training_data()
    seed = seed_of(client, 0x516)
    count = protocol.setting(message, protocol.NUM_CENTROIDS)
    answer = RecordDict()
    if protocol.ARRAYS in message.content:
        weights = message.content.array_records[protocol.ARRAYS].to_torch_state_dict()
        autoencoder = load_autoencoder(weights, images.shape[1]).to(images.device)
        epochs = protocol.setting(message, protocol.ENCODER_EPOCHS, 0)
        if epochs:
            fit(autoencoder, images, epochs, torch.Generator().manual_seed(seed))
        centroids = signature(encode(autoencoder, images), count, seed)
        sketch = image_sketch(images).tolist()
        answer[protocol.METRICS] = MetricRecord({protocol.IMAGE_SKETCH: sketch})
    else:
        components = protocol.setting(message, protocol.NUM_COMPONENTS)
        mapped = bool(protocol.setting(message, protocol.MAPPED_CENTROIDS, 0))
        centroids = linear_signature(_rows(images), count, components, seed, mapped=mapped)
    answer[protocol.ARRAYS] = ArrayRecord({protocol.CENTROIDS: Array(centroids)})
    return answer
