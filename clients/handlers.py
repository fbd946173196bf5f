"""What a client answers: thin handlers that turn messages into the pure functions' arguments.

`answer_pre_round` gives any ClientApp the two queries of one-shot spectral clustering;
`train_reply` and `evaluate_reply` are the bodies of its train and evaluate functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.spectrum import leading_spectrum, relevance
from clients.training import TrainingSettings, evaluate, train
from fl_core import protocol

FeaturesFn = Callable[[Message, Context], NDArray[np.float32]]
IndexFn = Callable[[Message, Context], int]

_STATE = "spectrum"


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


def answer_pre_round(
    app: ClientApp, features: FeaturesFn, client_index: IndexFn = partition_id
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
    """

    @app.query(protocol.DESCRIBE)
    def describe(message: Message, context: Context) -> Message:
        index = MetricRecord({protocol.CLIENT_INDEX: client_index(message, context)})
        return Message(RecordDict({protocol.METRICS: index}), reply_to=message)

    @app.query(protocol.SPECTRUM)
    def spectrum(message: Message, context: Context) -> Message:
        count = message.content.config_records[protocol.CONFIG][protocol.NUM_EIGENVECTORS]
        own = leading_spectrum(features(message, context), int(str(count)))
        # The Gram matrix waits on the client for the second query, which may reach another
        # process, so that features are computed once.
        context.state[_STATE] = ArrayRecord(
            {"gram": Array(own.gram), "eigenvalues": Array(own.eigenvalues)}
        )
        vectors = ArrayRecord({protocol.EIGENVECTORS: Array(own.eigenvectors)})
        return Message(RecordDict({protocol.ARRAYS: vectors}), reply_to=message)

    @app.query(protocol.RELEVANCE)
    def relevances(message: Message, context: Context) -> Message:
        if _STATE not in context.state:
            raise ValueError("this client was asked for relevance before its spectrum.")
        own = context.state.array_records.pop(_STATE)
        scores = relevance(
            own["gram"].numpy(),
            own["eigenvalues"].numpy(),
            [array.numpy() for array in message.content.array_records[protocol.ARRAYS].values()],
        )
        answer = MetricRecord({protocol.RELEVANCES: scores})
        return Message(RecordDict({protocol.METRICS: answer}), reply_to=message)


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
    config = message.content.config_records[protocol.CONFIG]
    entropy = [int(str(config.get(key, 0))) for key in (protocol.SEED, protocol.SERVER_ROUND)]
    seed = np.random.SeedSequence([*entropy, client_index, 0x7EA1]).generate_state(1)[0]
    model.load_state_dict(message.content.array_records[protocol.ARRAYS].to_torch_state_dict())
    loss = train(model, images, labels, settings, torch.Generator().manual_seed(int(seed)))
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
