"""What a client answers: thin handlers that turn messages into the pure functions' arguments.

`answer_pre_round` gives any ClientApp the two queries of one-shot spectral clustering,
`answer_signature` that of FLT, `answer_losses` that of IFCA; `train_reply` and `evaluate_reply` are
the bodies of its train and evaluate functions.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.autoencoder import encode, fit, load_autoencoder
from clients.privacy import noisy_eigenvectors, noisy_relevances
from clients.signature import linear_signature, signature
from clients.spectrum import RELEVANCES, leading_spectrum
from clients.training import TrainingSettings, as_pixels, evaluate, train
from fl_core import protocol

FeaturesFn = Callable[[Message, Context], NDArray[np.float32]]
ImagesFn = Callable[[Message, Context], torch.Tensor]
LossesFn = Callable[[Message, Context, Sequence[ArrayRecord]], list[float]]
IndexFn = Callable[[Message, Context], int]
DescriptionFn = Callable[[Message, Context], Mapping[str, ConfigRecordValues]]
NoiseFn = Callable[[Message, Context], tuple[float, np.random.Generator]]

# What waits at a client between messages.
_STATE = "spectrum"
_MODELS = "models"


def partition_id(message: Message, context: Context) -> int:
    """Return the client index that Flower's simulation, or `--node-config`, gives this node.

    Raises
    ------
    ValueError
        If the node has no `partition-id`.
    """
    if "partition-id" not in context.node_config:
        raise ValueError(
            "this node has no partition-id: start its SuperNode with "
            '--node-config "partition-id=0 num-partitions=3", a number of its own for each node.'
        )
    return int(context.node_config["partition-id"])


def no_description(message: Message, context: Context) -> dict[str, ConfigRecordValues]:
    """Return nothing beyond the client's index."""
    return {}


def answer_roll_call(
    app: ClientApp,
    client_index: IndexFn = partition_id,
    description: DescriptionFn = no_description,
) -> None:
    """Register the query by which the server learns a client's index.

    Parameters
    ----------
    app : ClientApp
        Any Flower ClientApp. It gets the query `describe`.
    client_index : callable
        From message and context to the client's stable index; the partition id by default.
    description : callable
        From message and context to what else the client says of itself. Where the server goes by
        names (`Conversation.by_name`), a `name` in it stands instead of the index.
    """

    @app.query(protocol.DESCRIBE)
    def describe(message: Message, context: Context) -> Message:
        for waiting in (_STATE, _MODELS):  # of a strategy that ran before
            context.state.pop(waiting, None)
        index = MetricRecord({protocol.CLIENT_INDEX: client_index(message, context)})
        said = ConfigRecord(dict(description(message, context)))
        return Message(
            RecordDict({protocol.METRICS: index, protocol.CONFIG: said}), reply_to=message
        )


def no_noise(message: Message, context: Context) -> tuple[float, np.random.Generator]:
    """Return σ = 0 for what a client shares, and a generator that is not drawn from."""
    return 0.0, np.random.default_rng(0)


def answer_pre_round(
    app: ClientApp,
    features: FeaturesFn,
    client_index: IndexFn = partition_id,
    sharing_noise: NoiseFn = no_noise,
    description: DescriptionFn = no_description,
) -> None:
    """Register the queries of the pre-round with `app` (RCC-PFL, Procedure 1).

    Parameters
    ----------
    app : ClientApp
        Any Flower ClientApp. It gets the queries `describe`, `spectrum` and `relevance`.
    features : callable
        From message and context to the client's features Φ(X), float32, shape (n, d).
    client_index : callable
        From message and context to the client's stable index; the partition id by default.
    sharing_noise : callable
        From message and context to σ of the noise on what is shared, and what it is drawn from
        (`clients.privacy`); no noise by default.
    description : callable
        As in `answer_roll_call`.
    """
    answer_roll_call(app, client_index, description)

    @app.query(protocol.SPECTRUM)
    def spectrum(message: Message, context: Context) -> Message:
        count = protocol.setting(message, protocol.NUM_EIGENVECTORS)
        own = leading_spectrum(features(message, context), count)
        # The Gram matrix waits on the client for the second query, which may reach another
        # process, so that features are computed once.
        context.state[_STATE] = ArrayRecord(
            {"gram": Array(own.gram), "eigenvalues": Array(own.eigenvalues)}
        )
        shared = noisy_eigenvectors(own.eigenvectors, *sharing_noise(message, context))
        vectors = ArrayRecord({protocol.EIGENVECTORS: Array(shared)})
        return Message(RecordDict({protocol.ARRAYS: vectors}), reply_to=message)

    @app.query(protocol.RELEVANCE)
    def relevances(message: Message, context: Context) -> Message:
        if _STATE not in context.state:
            raise ValueError("this client was asked for relevance before its spectrum.")
        own = context.state.array_records.pop(_STATE)
        formula = str(message.content.config_records[protocol.CONFIG][protocol.RELEVANCE_FORMULA])
        if formula not in RELEVANCES:
            raise ValueError(
                f'relevance is "{formula}", but this client knows {", ".join(RELEVANCES)}.'
            )
        scores = RELEVANCES[formula](
            own["gram"].numpy(), own["eigenvalues"].numpy(), _everybodys_eigenvectors(message)
        )
        shared = noisy_relevances(scores, *sharing_noise(message, context))
        answer = MetricRecord({protocol.RELEVANCES: shared})
        return Message(RecordDict({protocol.METRICS: answer}), reply_to=message)


def _everybodys_eigenvectors(message: Message) -> list[NDArray[np.float32]]:
    """Return each client's eigenvectors, shapes (d, k_j), in the server's order."""
    joined = message.content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS].numpy()
    columns = message.content.config_records[protocol.CONFIG][protocol.NUM_COLUMNS]
    if not isinstance(columns, list) or sum(map(int, columns)) != joined.shape[1]:
        raise ValueError("the numbers of eigenvectors do not add up to those that were sent.")
    starts = np.cumsum(columns)[:-1]
    return np.split(joined, starts, axis=1)


def answer_signature(
    app: ClientApp, images: ImagesFn, client_index: IndexFn = partition_id
) -> None:
    """Register FLT's query with `app`: a few centroids stand for the client's images.

    The message carries an encoder, or a whole autoencoder to be fine-tuned (FLT, Algorithm 2); if
    it carries none, the centroids are those of the client's own principal components (PCA + k-means
    + HC). The answer holds a fingerprint of the images, which comes back for `change_flag`.

    Parameters
    ----------
    app : ClientApp
        Any Flower ClientApp. It gets the query `signature`.
    images : callable
        From message and context to the client's images, uint8, shape (n, C, H, W).
    client_index : callable
        From message and context to the client's stable index; the partition id by default.
    """

    @app.query(protocol.SIGNATURE)
    def answer(message: Message, context: Context) -> Message:
        own = images(message, context)
        seed = _seed(message, client_index(message, context), 0x516)
        count = protocol.setting(message, protocol.NUM_CENTROIDS)
        if protocol.ARRAYS in message.content:
            weights = message.content.array_records[protocol.ARRAYS].to_torch_state_dict()
            autoencoder = load_autoencoder(weights, own.shape[1])
            epochs = protocol.setting(message, protocol.FINE_TUNE_EPOCHS, 0)
            if epochs:
                fit(autoencoder, own, epochs, torch.Generator().manual_seed(seed))
            centroids = signature(encode(autoencoder, own), count, seed)
        else:
            pixels = as_pixels(own).flatten(1).numpy()
            components = protocol.setting(message, protocol.NUM_COMPONENTS)
            centroids = linear_signature(pixels, count, components, seed)
        content = RecordDict(
            {
                protocol.ARRAYS: ArrayRecord({protocol.CENTROIDS: Array(centroids)}),
                protocol.METRICS: MetricRecord({protocol.FINGERPRINT: _fingerprint(own)}),
            }
        )
        return Message(content, reply_to=message)


def _fingerprint(images: torch.Tensor) -> int:
    return zlib.crc32(images.contiguous().numpy().data)


def change_flag(message: Message, images: torch.Tensor) -> dict[str, int]:
    """Return FLT's change flag δ as metrics: 1 if the images are not those of the last signature.

    Empty where the message does not say what those were. Labels are not looked at.

    Parameters
    ----------
    message : Message
    images : torch.Tensor, uint8, shape (n, C, H, W)
    """
    if protocol.FINGERPRINT not in message.content.config_records[protocol.CONFIG]:
        return {}
    known = protocol.setting(message, protocol.FINGERPRINT)
    return {protocol.CHANGED: int(_fingerprint(images) != known)}


def answer_losses(app: ClientApp, losses: LossesFn) -> None:
    """Register IFCA's query with `app`: the client's training loss on each model it is sent.

    The models stay in the client's state, and the training message then names one of them:
    `restore_model` puts it where it would have been.

    Parameters
    ----------
    app : ClientApp
        Any Flower ClientApp. It gets the query `losses`.
    losses : callable
        From message, context and the models' arrays to the client's training loss on each.
    """

    @app.query(protocol.LOSSES)
    def answer(message: Message, context: Context) -> Message:
        packed = message.content.array_records[protocol.ARRAYS]
        found = losses(message, context, protocol.unpack_models(packed))
        context.state[_MODELS] = packed
        metrics = MetricRecord({protocol.LOSSES: found})
        return Message(RecordDict({protocol.METRICS: metrics}), reply_to=message)


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


def _seed(message: Message, client_index: int, purpose: int) -> int:
    """Return a seed that depends on run, round, client and purpose alone."""
    entropy = [*protocol.entropy(message), client_index, purpose]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def train_reply(
    message: Message,
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    client_index: int,
) -> Message:
    """Train the model that `message` carries and return it with its loss and sample count.

    The order of the images depends on the message's `seed` and `server-round` and on the client's
    index alone.

    Parameters
    ----------
    message : Message
        Carries the model's arrays and a config record.
    model : nn.Module
        Of the right architecture; its weights are overwritten.
    images : torch.Tensor, uint8, shape (n, C, H, W)
    labels : torch.Tensor, int64, shape (n,)
    settings : TrainingSettings
    client_index : int
    """
    seed = _seed(message, client_index, 0x7EA1)
    model.load_state_dict(message.content.array_records[protocol.ARRAYS].to_torch_state_dict())
    loss = train(model, images, labels, settings, torch.Generator().manual_seed(seed))
    metrics = MetricRecord({protocol.NUM_EXAMPLES: len(labels), protocol.LOSS: loss})
    content = RecordDict(
        {
            protocol.ARRAYS: ArrayRecord(model.state_dict()),
            protocol.METRICS: metrics,
        }
    )
    return Message(content, reply_to=message)


def evaluate_reply(
    message: Message, model: nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> Message:
    """Test the model that `message` carries and return its loss, accuracy and sample count.

    Parameters
    ----------
    message : Message
        Carries the model's arrays.
    model : nn.Module
        Of the right architecture; its weights are overwritten.
    images : torch.Tensor, uint8, shape (m, C, H, W)
    labels : torch.Tensor, int64, shape (m,)
    """
    model.load_state_dict(message.content.array_records[protocol.ARRAYS].to_torch_state_dict())
    loss, accuracy = evaluate(model, images, labels)
    metrics = MetricRecord(
        {
            protocol.NUM_EXAMPLES: len(labels),
            protocol.LOSS: loss,
            protocol.ACCURACY: accuracy,
        }
    )
    return Message(RecordDict({protocol.METRICS: metrics}), reply_to=message)
