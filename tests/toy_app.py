"""A ClientApp whose numbers can be checked by hand.

Training adds client index + 1 to every weight; a client holds 10 × (index + 1) images; its accuracy
is the first weight divided by 1000. Features of clients with `task_of[client]` alike are alike; so
are their centroids, 10 × task away from zero, and their loss on a model is how far its first weight
is from 10 × task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.handlers import answer_losses, answer_pre_round, partition_id, restore_model
from fl_core import protocol

Spoil = Callable[[Message, Context, Message], Message]
MODEL = protocol.to_record({"w": np.zeros(2, np.float32), "steps": np.array(0, np.int64)})


def toy_features(task: int, client: int) -> np.ndarray:
    """Images of one task vary along axes of their own."""
    rng = np.random.default_rng([client, 7])
    scale = np.full(8, 0.1)
    scale[2 * task : 2 * task + 2] = (3, 2)
    return (rng.normal(size=(60, 8)) * scale).astype(np.float32)


def toy_app(
    task_of: Sequence[int] = (0,) * 100, spoil: Mapping[tuple[str, int], Spoil] | None = None
) -> ClientApp:
    """`spoil` maps (message type, client) to what becomes of that client's answer."""
    app = ClientApp(mods=[])
    spoil = spoil or {}

    def features(message: Message, context: Context) -> np.ndarray:
        client = partition_id(message, context)
        return toy_features(task_of[client], client)

    answer_pre_round(app, features)

    @app.query(protocol.SIGNATURE)
    def signature(message: Message, context: Context) -> Message:
        task = task_of[partition_id(message, context)]
        spread = np.random.default_rng([partition_id(message, context), 5]).normal(size=(2, 3))
        centroids = (10 * task + 0.01 * spread).astype(np.float32)
        return reply(message, arrays=ArrayRecord({protocol.CENTROIDS: Array(centroids)}))

    def loss(message: Message, context: Context, arrays: ArrayRecord) -> float:
        return abs(float(arrays["w"].numpy()[0]) - 10 * task_of[partition_id(message, context)])

    answer_losses(app, loss)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        restore_model(message, context)
        client = partition_id(message, context)
        arrays = protocol.to_arrays(message.content[protocol.ARRAYS])
        changed = {"w": arrays["w"] + np.float32(client + 1), "steps": arrays["steps"] + 1}
        metrics = {protocol.NUM_EXAMPLES: 10 * (client + 1), protocol.LOSS: float(client)}
        return reply(message, arrays=protocol.to_record(changed), metrics=MetricRecord(metrics))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        arrays = protocol.to_arrays(message.content[protocol.ARRAYS])
        accuracy = float(arrays["w"][0]) / 1000
        return reply(message, metrics=MetricRecord({"accuracy": accuracy, "loss": 1.0}))

    return SpoiledApp(app, spoil)


class SpoiledApp(ClientApp):
    """Passes messages on to `app` and spoils some of the answers."""

    def __init__(self, app: ClientApp, spoil: Mapping[tuple[str, int], Spoil]) -> None:
        super().__init__()
        self.inner = app
        self.spoil = spoil

    def __call__(self, message: Message, context: Context) -> Message:
        answer = self.inner(message, context)
        key = (message.metadata.message_type, int(context.node_config["partition-id"]))
        return self.spoil[key](message, context, answer) if key in self.spoil else answer


def reply(message: Message, **records: ArrayRecord | MetricRecord) -> Message:
    return Message(RecordDict(records), reply_to=message)


def fail(message: Message, context: Context, answer: Message) -> Message:
    raise RuntimeError("the disk is full")


def with_arrays(change: Callable[[dict[str, np.ndarray]], None]) -> Spoil:
    """Change the arrays of an answer."""

    def spoil(message: Message, context: Context, answer: Message) -> Message:
        arrays = {k: v.copy() for k, v in protocol.to_arrays(answer.content["arrays"]).items()}
        change(arrays)
        answer.content["arrays"] = protocol.to_record(arrays)
        return answer

    return spoil


def with_metrics(**values: float | list[float] | None) -> Spoil:
    """Change the metrics of an answer; None removes one. `_` stands for `-`."""

    def spoil(message: Message, context: Context, answer: Message) -> Message:
        for key, value in values.items():
            name = key.replace("_", "-")
            if value is None:
                del answer.content["metrics"][name]
            else:
                answer.content["metrics"][name] = value
        return answer

    return spoil
