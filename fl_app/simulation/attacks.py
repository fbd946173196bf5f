"""The Flower mod that makes simulated malicious clients attack (`attack`, `malicious`)."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from clients.attacks import random_basis, random_centroids, spoil_update
from fl_app.run.node import config_of
from fl_app.simulation.node import SimulatedNode
from fl_core.messages import protocol

_STREAM = 0xBAD


def attack_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the app does, and then, at a malicious client, send something else.

    `label-flip` is no matter of answers: the client trains on other labels.
    """
    config = config_of(context)
    if config.attack in ("none", "label-flip"):
        return call_next(message, context)
    node = SimulatedNode(message, context)
    answer = call_next(message, context)
    if node.is_malicious:
        spoil_answer(config.attack, config.attack_scale, message, answer, node.index)
    return answer


def spoil_answer(attack: str, scale: float, message: Message, answer: Message, client: int) -> None:
    """Replace what `attack`, one of `clients.attacks.ATTACKS`, replaces in an answer.

    The model that `message` only named must be back in it (`clients.handlers.restore_model`). What
    is drawn depends on the message's seed and round and on the client.
    """
    kind, content = answer.metadata.message_type, answer.content
    rng = np.random.default_rng([*protocol.entropy(message), client, _STREAM])
    if attack == "random-signature":
        if kind == protocol.query(protocol.SPECTRUM):
            shape = _answered(content, protocol.EIGENVECTORS).shape
            _replace(content, protocol.EIGENVECTORS, random_basis((shape[0], shape[1]), rng))
        elif kind == protocol.query(protocol.SIGNATURE):
            true = _answered(content, protocol.CENTROIDS).astype(np.float32)
            _replace(content, protocol.CENTROIDS, random_centroids(true.shape, true, rng))
        elif kind == protocol.query(protocol.RELEVANCE):
            count = len(protocol.numbers(content, protocol.RELEVANCES))
            scores = rng.random(count).tolist()
            content.metric_records[protocol.METRICS][protocol.RELEVANCES] = scores
    elif kind == protocol.TRAIN:
        received = protocol.to_arrays(message.content.array_records[protocol.ARRAYS])
        trained = protocol.to_arrays(content.array_records[protocol.ARRAYS])
        content[protocol.ARRAYS] = protocol.to_record(
            spoil_update(attack, received, trained, scale)
        )


def _answered(content: RecordDict, name: str) -> np.ndarray:
    return content.array_records[protocol.ARRAYS][name].numpy()


def _replace(content: RecordDict, name: str, array: np.ndarray) -> None:
    others = content.array_records[protocol.ARRAYS]
    content[protocol.ARRAYS] = ArrayRecord({**others, name: Array(array)})
