"""The Flower mod that makes simulated malicious clients attack (`attack`, `malicious`)."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from clients.attacks import corrupt_update, random_basis, random_centroids
from fl_app.config.run_config import Config
from fl_app.run.node import config_of
from fl_app.simulation.node import SimulatedNode
from fl_core.messages import protocol

_STREAM = 0xBAD


def attack_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the app does, and replace the answer at a malicious client.

    An attacker by `label-flip` trains on other labels; its answers stay as they are.
    """
    config = config_of(context)
    if config.attack in ("none", "label-flip"):
        return call_next(message, context)
    node = SimulatedNode(message, context)
    answer = call_next(message, context)
    if node.is_malicious:
        corrupt_answer(config, message, answer, node.index)
    return answer


def corrupt_answer(config: Config, message: Message, answer: Message, client: int) -> None:
    """Replace the part of an answer that an attack, one of `clients.attacks.ATTACKS`, replaces.

    The model that `message` only names must be in it (`clients.handlers.restore_model`). Random
    numbers depend on the message's seed and round and on the client.
    """
    kind, content = answer.metadata.message_type, answer.content
    rng = np.random.default_rng([*protocol.entropy(message), client, _STREAM])
    if config.attack == "random-signature":
        if kind == protocol.query(protocol.SPECTRUM):
            shape = _array_in(content, protocol.EIGENVECTORS).shape
            _replace(content, protocol.EIGENVECTORS, random_basis((shape[0], shape[1]), rng))
        elif kind == protocol.query(protocol.SIGNATURE):
            true = _array_in(content, protocol.CENTROIDS).astype(np.float32)
            _replace(content, protocol.CENTROIDS, random_centroids(true.shape, true, rng))
        elif kind == protocol.query(protocol.RELEVANCE):
            count = len(protocol.numbers(content, protocol.RELEVANCES))
            scores = rng.random(count).tolist()
            content.metric_records[protocol.METRICS][protocol.RELEVANCES] = scores
    elif kind == protocol.TRAIN:
        received = protocol.to_arrays(message.content.array_records[protocol.ARRAYS])
        trained = protocol.to_arrays(content.array_records[protocol.ARRAYS])
        content[protocol.ARRAYS] = protocol.to_record(
            corrupt_update(config.attack, received, trained, config.attack_scale)
        )


def _array_in(content: RecordDict, name: str) -> np.ndarray:
    return content.array_records[protocol.ARRAYS][name].numpy()


def _replace(content: RecordDict, name: str, array: np.ndarray) -> None:
    others = content.array_records[protocol.ARRAYS]
    content[protocol.ARRAYS] = ArrayRecord({**others, name: Array(array)})
