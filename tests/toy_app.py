"""A ClientApp whose numbers can be checked by hand, and every strategy made to fit it.

Training adds (client index + 1) × (1, task) to the weights, two to a layer, and 1 to integers; a
client holds 10 × (index + 1) images; its accuracy is the first weight divided by 1000. Features of
clients with `task_of[client]` alike are alike; so are their centroids, 10 × task away from zero,
and their loss on a model is how far its first weight is from 10 × task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from clients.client import Client, Images
from clients.handlers import answer_queries, restore_model
from clients.secure_aggregation import mask_mod
from fl_core.messages import protocol
from strategies import ClusteredStrategy, make_strategy

TASKS = [0, 1, 0, 2, 1, 0, 2]

Corrupt = Callable[[Message, Context, Message], Message]
Step = Callable[[int, int], Sequence[float]]
MODEL = protocol.to_record({"w": np.zeros(2, np.float32), "steps": np.array(0, np.int64)})
ENCODER = {"encoder.w": np.zeros(3, np.float32), "decoder.w": np.zeros(4, np.float32)}


def toy_step(client: int, task: int) -> Sequence[float]:
    return (client + 1, (client + 1) * task)


def small_step(client: int, task: int) -> Sequence[float]:
    """Train so little that each client's loss stays lowest on its task's model."""
    return ((client + 1) / 10, (client + 1) * task / 10)


def draw_model(number: int) -> protocol.NDArrays:
    """Clients of task t are nearest to model t."""
    return {"w": np.array([10 * number, 0], np.float32), "steps": np.array(0, np.int64)}


def toy_plane(signatures: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Stands in for UMAP, which takes seconds to import and has no numbers to work by hand."""
    return [own[:, :2].astype(np.float64) for own in signatures]


def _random(m: int = 3, **options: Any) -> ClusteredStrategy:
    return make_strategy("random", [3, 2, 2] if m == 3 else [7], **options)


def _optimum(m: int = 3, **options: Any) -> ClusteredStrategy:
    return make_strategy(
        "optimum", {client: task if m == 3 else 0 for client, task in enumerate(TASKS)}, **options
    )


# Each takes the number of clusters that it is to find, as far as it has one: 3 or 1. CFL is made to
# split every cluster in every round, or none.
STRATEGIES: dict[str, Callable[..., ClusteredStrategy]] = {
    "rcc-pfl": lambda m=3, **o: make_strategy("rcc-pfl", m, num_eigenvectors=3, **o),
    "mt-hfl": lambda m=3, **o: make_strategy(
        "mt-hfl", m, common_layers=["steps"], num_eigenvectors=3, **o
    ),
    "flt": lambda m=3, **o: make_strategy("flt", ENCODER, m, **o),
    "flt-graph": lambda m=3, **o: make_strategy("flt-graph", ENCODER, m, **o),
    "fedhc": lambda m=3, **o: make_strategy("fedhc", m, **o),
    "ifca-pfl": lambda m=3, **o: make_strategy("ifca-pfl", m, draw_model, **o),
    "ifca": lambda m=3, **o: make_strategy("ifca", m, draw_model, **o),
    "fedsem": lambda m=3, **o: make_strategy("fedsem", m, **o),
    "fedsem-flt": lambda m=3, **o: make_strategy("fedsem-flt", m, **o),
    "cfl": lambda m=3, **o: make_strategy("cfl", *((2, 0.1) if m == 3 else (0.4, 0.6)), **o),
    "pacfl": lambda m=3, **o: make_strategy("pacfl", m, **({"threshold": None} | o)),
    "fedclust": lambda m=3, **o: make_strategy("fedclust", m, **o),
    "fedgroup": lambda m=3, **o: make_strategy("fedgroup", m, **o),
    "pca-km-hc": lambda m=3, **o: make_strategy("pca-km-hc", m, **o),
    "optimum": _optimum,
    "random": _random,
    "single": lambda m=1, **o: make_strategy("single", **o),
    "local": lambda m=1, **o: make_strategy("local", **o),
}


# For what each clustering or aggregation could get wrong by itself.
every_strategy = pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES.keys())
# One for each way through the engine, for what it does: clusters that stay, in clusters, in a
# graph and with layers in common; and such as change after the training, and before it.
PATHS = ("rcc-pfl", "flt-graph", "mt-hfl", "fedhc", "ifca-pfl")
every_path = pytest.mark.parametrize("make", [STRATEGIES[name] for name in PATHS], ids=PATHS)


def run(
    strategy: ClusteredStrategy,
    grid: Grid,
    rounds: int = 1,
    initial: ArrayRecord = MODEL,
    **config: Any,
) -> Result:
    record = ConfigRecord({protocol.SEED: 0, **config})
    return strategy.start(grid, initial, rounds, train_config=record, evaluate_config=record)


def weights(result: Result) -> list[float]:
    """Return the first weight of each model."""
    return [protocol.to_arrays(m)["w"][0] for m in protocol.unpack_models(result.arrays)]


def groups(of_client: Mapping[int, int]) -> list[list[int]]:
    """Return the clients of each inhabited cluster."""
    return sorted(
        [c for c, own in of_client.items() if own == cluster] for cluster in set(of_client.values())
    )


def toy_features(task: int, client: int) -> np.ndarray:
    """Images of one task vary along axes of their own."""
    rng = np.random.default_rng([client, 7])
    scale = np.full(8, 0.1)
    scale[2 * task : 2 * task + 2] = (3, 2)
    return (rng.normal(size=(60, 8)) * scale).astype(np.float32)


def toy_app(
    task_of: Sequence[int] = (0,) * 100,
    corrupt: Mapping[tuple[str, int], Corrupt] | None = None,
    step: Step = toy_step,
) -> ClientApp:
    """`corrupt` maps (message type, client) to what becomes of that client's answer.

    `step` says by how much a client of a task moves the two weights of every layer.
    """

    class Toy(Client):
        def features(self) -> np.ndarray:
            return toy_features(task_of[self.index], self.index)

        def training_data(self) -> Images:
            samples = torch.from_numpy(self.features())
            return samples, torch.zeros(len(samples), dtype=torch.int64)

        def losses(self, models: Sequence[ArrayRecord]) -> list[float]:
            target = 10 * task_of[self.index]
            return [abs(float(arrays["w"].numpy()[0]) - target) for arrays in models]

    def toy_signature(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type != protocol.query(protocol.SIGNATURE):
            return call_next(message, context)
        client = Toy(message, context).index
        spread = np.random.default_rng([client, 5]).normal(size=(2, 3))
        centroids = (10 * task_of[client] + 0.01 * spread).astype(np.float32)
        return reply(message, arrays=ArrayRecord({protocol.CENTROIDS: Array(centroids)}))

    app = ClientApp(mods=[toy_signature, mask_mod])
    answer_queries(app, Toy)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        restore_model(message, context)
        client = Toy(message, context).index
        arrays = protocol.to_arrays(message.content[protocol.ARRAYS])
        moved = np.array(step(client, task_of[client]), np.float32)
        changed = {
            name: array + (moved if array.dtype.kind == "f" else array.dtype.type(1))
            for name, array in arrays.items()
        }
        metrics = {protocol.NUM_EXAMPLES: 10 * (client + 1), protocol.LOSS: float(client)}
        return reply(message, arrays=protocol.to_record(changed), metrics=MetricRecord(metrics))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        arrays = protocol.to_arrays(message.content[protocol.ARRAYS])
        accuracy = float(next(iter(arrays.values()))[0]) / 1000
        return reply(message, metrics=MetricRecord({"accuracy": accuracy, "loss": 1.0}))

    return CorruptedApp(app, corrupt or {})


class CorruptedApp(ClientApp):
    """Passes messages on to `app` and corrupts some of the answers."""

    def __init__(self, app: ClientApp, corrupt: Mapping[tuple[str, int], Corrupt]) -> None:
        super().__init__()
        self.inner = app
        self.corrupt = corrupt

    def __call__(self, message: Message, context: Context) -> Message:
        answer = self.inner(message, context)
        key = (message.metadata.message_type, int(context.node_config["partition-id"]))
        return self.corrupt[key](message, context, answer) if key in self.corrupt else answer


def reply(message: Message, **records: ArrayRecord | MetricRecord) -> Message:
    return Message(RecordDict(records), reply_to=message)


def fail(message: Message, context: Context, answer: Message) -> Message:
    raise RuntimeError("the disk is full")


def in_rounds(*rounds: int, corrupt: Corrupt = fail) -> Corrupt:
    """Corrupt answers in these rounds only; 0 is the pre-round."""

    def sometimes(message: Message, context: Context, answer: Message) -> Message:
        now = message.content.config_records[protocol.CONFIG][protocol.SERVER_ROUND]
        return corrupt(message, context, answer) if now in rounds else answer

    return sometimes


def with_arrays(change: Callable[[dict[str, np.ndarray]], None]) -> Corrupt:
    """Change the arrays of an answer."""

    def corrupt(message: Message, context: Context, answer: Message) -> Message:
        arrays = {k: v.copy() for k, v in protocol.to_arrays(answer.content["arrays"]).items()}
        change(arrays)
        answer.content["arrays"] = protocol.to_record(arrays)
        return answer

    return corrupt


def with_other_test(**scores: float) -> Corrupt:
    """Add a second test to an answer. `_` stands for `-`."""

    def corrupt(message: Message, context: Context, answer: Message) -> Message:
        told = {name.replace("_", "-"): value for name, value in scores.items()}
        answer.content["other-test"] = MetricRecord({**told})
        return answer

    return corrupt


def with_metrics(**values: float | list[float] | None) -> Corrupt:
    """Change the metrics of an answer; None removes one. `_` stands for `-`."""

    def corrupt(message: Message, context: Context, answer: Message) -> Message:
        for key, value in values.items():
            name = key.replace("_", "-")
            if value is None:
                del answer.content["metrics"][name]
            else:
                answer.content["metrics"][name] = value
        return answer

    return corrupt
