"""What a client answers: thin handlers that turn messages into the pure functions' arguments.

`answer_queries` gives any ClientApp the queries of all clusterings, `answer_training` its train and
evaluate functions. Each message opens one `Client`, which knows the data; what it is asked is read
from the message here, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients import secure_aggregation
from clients.client import Client, OpenClient
from clients.pre_round.autoencoder import encode, fit, load_autoencoder
from clients.pre_round.labelled_spectrum import class_energy_relevance, labelled_spectrum
from clients.pre_round.shift import data_shift, image_sketch
from clients.pre_round.signature import linear_signature, signature
from clients.pre_round.spectrum import (
    RELEVANCES,
    Spectrum,
    leading_spectrum,
    principal_angle_relevance,
    spectrum_of_gram,
)
from clients.privacy.mechanisms import bounded_features, private_gram
from clients.privacy.private_training import train_privately
from clients.settings import CHOSEN_EIGENVECTORS
from clients.training.gradient_terms import OBJECTIVES, Fit, GradientTerm
from clients.training.local_training import (
    Instructions,
    model_to_test,
    train_by_objective,
    whole_model,
)
from clients.training.train import as_pixels, evaluate, train
from fl_core.relevance import PRINCIPAL_ANGLE
from fl_core.wire import protocol

Scalar = TypeVar("Scalar", bound=np.generic)

# What waits at a client between messages.
_STATE = "spectrum"
_MODELS = "models"
_PRIVATE = "private"
_TRAININGS = "trainings"


def answer_queries(app: ClientApp, open_client: OpenClient = Client) -> None:
    """Register the queries of the pre-round, and of rounds that group clients anew, with `app`.

    Parameters
    ----------
    app : ClientApp
        Any Flower ClientApp. It gets the queries `describe`, `spectrum` and `relevance` (RCC-PFL,
        Procedure 1), `signature` (FLT; PCA + k-means + HC), `losses` (IFCA), and those of secure
        aggregation, which needs `clients.secure_aggregation.mask_mod`, too.
    open_client : callable
        From message and context to the `Client` that answers: a subclass that has what the
        clustering asks for.
    """
    for action, answer in (
        (protocol.DESCRIBE, _description),
        (protocol.SPECTRUM, _eigenvectors),
        (protocol.RELEVANCE, _relevances),
        (protocol.SIGNATURE, _signature),
        (protocol.LOSSES, _losses),
        (protocol.PUBLIC_KEYS, secure_aggregation.public_keys),
        (protocol.SHARE_KEYS, secure_aggregation.shares_of_secrets),
        (protocol.UNMASK, secure_aggregation.revealed_shares),
    ):
        app.query(action)(_handler(answer, open_client))


def _handler(
    answer: Callable[[Client], RecordDict], open_client: OpenClient
) -> Callable[[Message, Context], Message]:
    def reply(message: Message, context: Context) -> Message:
        return Message(answer(open_client(message, context)), reply_to=message)

    return reply


def _description(client: Client) -> RecordDict:
    for waiting in (_STATE, _MODELS, secure_aggregation.STATE):  # of a strategy that ran before
        client.context.state.pop(waiting, None)
    client.personal().forget_others()
    index = MetricRecord({protocol.CLIENT_INDEX: client.index})
    said = ConfigRecord(dict(client.description()))
    return RecordDict({protocol.METRICS: index, protocol.CONFIG: said})


def _eigenvectors(client: Client) -> RecordDict:
    count = protocol.setting(client.message, protocol.NUM_EIGENVECTORS)
    if _formula(client.message) == protocol.CLASS_ENERGY:
        return _labelled_eigenvectors(client, count)
    at_server = bool(protocol.setting(client.message, protocol.WITH_EIGENVALUES, 0))
    own = _spectrum(client, count, at_server=at_server)
    shared = {protocol.EIGENVECTORS: Array(own.eigenvectors)}
    if at_server:
        shared[protocol.EIGENVALUES] = Array(np.asarray(own.eigenvalues, np.float32))
    if at_server or protocol.setting(client.message, protocol.COMPARED_THERE, 0):
        return RecordDict({protocol.ARRAYS: ArrayRecord(shared)})
    # The Gram matrix waits on the client for the second query, which may reach another process, so
    # that features are computed once.
    kept = {
        "gram": Array(own.gram),
        "eigenvalues": Array(own.eigenvalues),
        "eigenvectors": Array(own.eigenvectors),
    }
    client.context.state[_STATE] = ArrayRecord(kept)
    return RecordDict({protocol.ARRAYS: ArrayRecord(shared)})


def _spectrum(client: Client, count: int, *, at_server: bool) -> Spectrum:
    """Return the client's spectrum; of a Gram matrix with noise, if that is promised."""
    features = client.features()
    if not client.promise().pre_round_epsilon:
        # For the server they stand for the Gram matrix: there are no more than dimensions.
        return leading_spectrum(features, min(count, features.shape[1]) if at_server else count)
    gram = _private_gram(client, features)
    return spectrum_of_gram(gram, min(count, len(gram)) if at_server else count)


def _private_gram(client: Client, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the Gram matrix with noise: the same one, as long as the features are the same.

    So a server that asks again learns nothing more, and all strategies of a run cost ε once. It
    does not help to send another size of images either: noise is drawn for one set of features.
    """
    state, promise = client.context.state, client.promise()
    fingerprint = hashlib.sha256(features.tobytes()).digest()
    known = state.array_records.get(_PRIVATE)
    if known is not None:
        if known["fingerprint"].numpy().tobytes() == fingerprint:
            return known["gram"].numpy()
        if client.keeps_its_images:
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


def _refuse_without_noise(client: Client, what: str) -> None:
    """Refuse to share what no noise protects, whoever asks, if anything is to be private."""
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


def _labelled_eigenvectors(client: Client, count: int) -> RecordDict:
    _refuse_without_noise(client, "eigenvectors of each class")
    features, labels = client.features(), client.training_data()[1].cpu().numpy()
    own = labelled_spectrum(features, labels, count)
    energies = np.array([own.image_energy, own.class_energy])
    kept = {"features": features, "labels": labels, "energies": energies}
    client.context.state[_STATE] = ArrayRecord({n: Array(array) for n, array in kept.items()})
    return RecordDict(
        {
            protocol.ARRAYS: ArrayRecord({protocol.EIGENVECTORS: Array(own.eigenvectors)}),
            protocol.METRICS: MetricRecord({protocol.COLUMN_CLASSES: own.classes.tolist()}),
        }
    )


def _relevances(client: Client) -> RecordDict:
    state, formula = client.context.state, _formula(client.message)
    if _STATE not in state:
        raise ValueError("this client was asked for relevance before its spectrum.")
    own = state.array_records.pop(_STATE)
    joined = client.message.content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS].numpy()
    everybodys = _split(client.message, joined)
    if formula == protocol.CLASS_ENERGY:
        scores = _labelled_relevances(client.message, own, everybodys)
    elif formula == PRINCIPAL_ANGLE:
        scores = principal_angle_relevance(own["eigenvectors"].numpy(), everybodys)
    elif formula in RELEVANCES:
        scores = RELEVANCES[formula](own["gram"].numpy(), own["eigenvalues"].numpy(), everybodys)
    else:
        raise ValueError(
            f'relevance is "{formula}", but this client knows {", ".join(CHOSEN_EIGENVECTORS)}.'
        )
    return RecordDict({protocol.METRICS: MetricRecord({protocol.RELEVANCES: scores})})


def _labelled_relevances(
    message: Message, own: ArrayRecord, everybodys: list[NDArray[np.float32]]
) -> list[float]:
    asked = message.content.config_records[protocol.CONFIG]
    classes = np.array(asked[protocol.COLUMN_CLASSES], np.int64)
    image_energy, class_energy = own["energies"].numpy().tolist()
    return class_energy_relevance(
        own["features"].numpy(),
        own["labels"].numpy(),
        image_energy,
        class_energy,
        everybodys,
        _split(message, classes),
        float(str(asked[protocol.LABEL_WEIGHT])),
    )


def _formula(message: Message) -> str:
    asked = message.content.config_records[protocol.CONFIG]
    return str(asked.get(protocol.RELEVANCE_FORMULA, ""))


def _split(message: Message, joined: NDArray[Scalar]) -> list[NDArray[Scalar]]:
    """Return each client's part of what was joined along its last axis, in the server's order."""
    columns = message.content.config_records[protocol.CONFIG][protocol.NUM_COLUMNS]
    if not isinstance(columns, list) or sum(map(int, columns)) != joined.shape[-1]:
        raise ValueError("the numbers of eigenvectors do not add up to those that were sent.")
    return np.split(joined, np.cumsum(columns)[:-1], axis=-1)


def _signature(client: Client) -> RecordDict:
    """Return a few centroids that stand for the client's images.

    The message carries an encoder, or a whole autoencoder to be fine-tuned (FLT, Algorithm 2), and
    a sketch of the images goes with the answer, which comes back for `change_flag`. If it carries
    none, the centroids are those of the client's own principal components (PCA + k-means + HC).
    """
    _refuse_without_noise(client, "centroids")
    message = client.message
    images, _ = client.training_data()
    seed = _seed(client, 0x516)
    count = protocol.setting(message, protocol.NUM_CENTROIDS)
    answer = RecordDict()
    if protocol.ARRAYS in message.content:
        weights = message.content.array_records[protocol.ARRAYS].to_torch_state_dict()
        autoencoder = load_autoencoder(weights, images.shape[1]).to(images.device)
        epochs = protocol.setting(message, protocol.FINE_TUNE_EPOCHS, 0)
        if epochs:
            fit(autoencoder, images, epochs, torch.Generator().manual_seed(seed))
        centroids = signature(encode(autoencoder, images), count, seed)
        sketch = image_sketch(images).tolist()
        answer[protocol.METRICS] = MetricRecord({protocol.IMAGE_SKETCH: sketch})
    else:
        pixels = as_pixels(images).flatten(1).cpu().numpy()
        components = protocol.setting(message, protocol.NUM_COMPONENTS)
        mapped = bool(protocol.setting(message, protocol.MAPPED_CENTROIDS, 0))
        centroids = linear_signature(pixels, count, components, seed, mapped=mapped)
    answer[protocol.ARRAYS] = ArrayRecord({protocol.CENTROIDS: Array(centroids)})
    return answer


def _losses(client: Client) -> RecordDict:
    """Return the client's training loss on each model it is sent.

    The models stay in the client's state, and the training message then names one of them:
    `restore_model` puts it where it would have been.
    """
    _refuse_without_noise(client, "losses")
    packed = client.message.content.array_records[protocol.ARRAYS]
    own = client.personal()
    models = [whole_model(client.message, own, one) for one in protocol.unpack_models(packed)]
    found = client.losses(models)
    client.context.state[_MODELS] = packed
    return RecordDict({protocol.METRICS: MetricRecord({protocol.LOSSES: found})})


def restore_model(message: Message, context: Context) -> None:
    """Put the model that a training message only names into it; others are left as they are.

    For an app that answers IFCA's query: its train function begins with this.

    Raises
    ------
    ValueError
        If the models that the message refers to are not here.
    """
    if protocol.KEPT_MODEL not in message.content.config_records[protocol.CONFIG]:
        context.state.pop(_MODELS, None)
        return
    if _MODELS not in context.state:
        raise ValueError("this client was told to train a model that it was not sent.")
    models = protocol.unpack_models(context.state.array_records.pop(_MODELS))
    message.content[protocol.ARRAYS] = models[protocol.setting(message, protocol.KEPT_MODEL)]


def change_flag(message: Message, images: torch.Tensor) -> dict[str, float]:
    """Return FLT's δ as metrics: how far the images have moved since the last signature.

    Empty where the message does not bring that signature's sketch. Images are uint8, (n, C, H, W);
    labels are not looked at.
    """
    known = message.content.config_records[protocol.CONFIG].get(protocol.IMAGE_SKETCH)
    if known is None:
        return {}
    return {protocol.DATA_SHIFT: data_shift(np.array(known), image_sketch(images))}


def answer_training(app: ClientApp, open_client: OpenClient) -> None:
    """Register a train and an evaluate function with an `app` that has none of its own.

    The client needs `model`, `training_data`, `test_data` and `training_settings`. The order of the
    images depends on the message's `seed` and `server-round` and on the client's index alone.
    """
    app.train()(_handler(_trained, open_client))
    app.evaluate()(_handler(_evaluated, open_client))


def _trained(client: Client) -> RecordDict:
    """Train the model that the message carries, by its local objective; return what is shared."""
    message, model = client.message, client.model()
    restore_model(message, client.context)
    images, labels = client.training_data()
    metrics = MetricRecord({protocol.NUM_EXAMPLES: len(labels)})
    if client.promise().training_epsilon:
        _check_noise(client)
        fit = _private_fit(client, images, labels)
        shared, _ = train_by_objective(message, client.personal(), model, fit)
    else:
        fit = _fit(client, images, labels)
        shared, metrics[protocol.LOSS] = train_by_objective(message, client.personal(), model, fit)
        metrics.update(change_flag(message, images))
    return RecordDict({protocol.ARRAYS: shared, protocol.METRICS: metrics})


def _fit(client: Client, images: torch.Tensor, labels: torch.Tensor) -> Fit:
    """Return the usual training; each time, images come in the same order from the first on."""
    settings, seed = client.training_settings(), _seed(client, 0x7EA1)

    def fit(model: nn.Module, add_term: GradientTerm, epochs: int | None) -> float:
        generator = torch.Generator().manual_seed(seed)
        own = settings if epochs is None else replace(settings, local_epochs=epochs)
        with _drawn_from(seed, images.device):
            return train(model, images, labels, own, generator, add_term)

    return fit


def _private_fit(client: Client, images: torch.Tensor, labels: torch.Tensor) -> Fit:
    """Return a training with noise; its loss, which would have none, is not told."""
    settings, promise = client.training_settings(), client.promise()
    seed = _seed(client, 0xD409)

    def fit(model: nn.Module, add_term: GradientTerm, epochs: int | None) -> float:
        own = client.randomness()
        with _drawn_from(seed, images.device):
            train_privately(model, images, labels, settings, promise, own, add_term)
        return float("nan")

    return fit


@contextmanager
def _drawn_from(seed: int, device: torch.device) -> Iterator[None]:
    """Let what a model itself draws while it trains, such as dropout, depend on a seed alone."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _check_noise(client: Client) -> None:
    """Refuse what the promise does not cover, whatever the server sends."""
    objective = Instructions.of(client.message).objective
    if not OBJECTIVES[objective].may_be_noisy:
        raise ValueError(
            f"training-epsilon is {client.promise().training_epsilon:g}, which does not cover all "
            f"that {objective} trains: choose another local objective, or set training-epsilon "
            "to 0."
        )
    _count_training(client)


def _count_training(client: Client) -> None:
    """Refuse to train more often than the promise was made for, whatever the server sends."""
    state, most = client.context.state, client.promise().most_trainings
    done = int(str(state.config_records.get(_TRAININGS, ConfigRecord()).get("done", 0)))
    if done >= most:
        raise ValueError(
            f"this client has trained {most} times in this run, for which its training-epsilon "
            "holds, and was asked once more: start a new run with more num-server-rounds."
        )
    state[_TRAININGS] = ConfigRecord({"done": done + 1})


def _evaluated(client: Client) -> RecordDict:
    """Test the client's own model, for that which the message carries; return its scores."""
    model, (images, labels) = client.model(), client.test_data()
    arrays = model_to_test(client.message, client.personal())
    model.load_state_dict(arrays.to_torch_state_dict())
    found = evaluate(model, images, labels)
    metrics = MetricRecord(
        {
            protocol.NUM_EXAMPLES: len(labels),
            protocol.LOSS: found.loss,
            protocol.ACCURACY: found.accuracy,
            protocol.MACRO_F1: found.macro_f1,
            protocol.BALANCED_ACCURACY: found.balanced_accuracy,
        }
    )
    return RecordDict({protocol.METRICS: metrics})


def _seed(client: Client, purpose: int) -> int:
    """Return a seed that depends on run, round, client and purpose alone."""
    entropy = [*protocol.entropy(client.message), client.index, purpose]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
