"""The clients of `fedkin group`, which answer in this process."""

from collections.abc import Iterable

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from clients.handlers import answer_queries, handler
from fl_app.client_app import moments, open_node
from fl_app.config.allowed_code import ALLOWED_CODE, client_code_paths
from fl_app.config.run_config import Config
from fl_app.run.node import Node
from fl_app.simulation.attacks import attack_mod
from fl_app.simulation.in_process_grid import InProcessGrid
from fl_core.messages import protocol


class PreRoundGrid(InProcessGrid):
    """A grid of simulated clients that answer queries only, and can be inspected afterwards."""

    def __init__(self, config: Config) -> None:
        # Not the app of devices: no client here needs its answers hidden by salt.
        app = ClientApp(mods=[attack_mod])
        answer_queries(app, self._open)
        app.query(protocol.MOMENTS)(handler(moments, self._open))
        # The user of this process named the code: it may run.
        own_code = {ALLOWED_CODE: ",".join(client_code_paths(config))}
        count = config.num_clients
        nodes = [{"partition-id": i, "num-partitions": count, **own_code} for i in range(count)]
        super().__init__(app, nodes, config.as_run_config())
        self._features: dict[tuple[int, ...], NDArray[np.float32]] = {}
        self._messages: dict[int, Message] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Let each node answer; a failure is its answer, as in Flower."""
        messages = list(messages)
        self._messages |= {message.metadata.dst_node_id: message for message in messages}
        return super().send_and_receive(messages, timeout=timeout)

    def node(self, node_id: int) -> Node:
        """Return a node as it was when it answered last."""
        return self._open(self._messages[node_id], self.contexts[node_id])

    def _open(self, message: Message, context: Context) -> Node:
        """Return a node that computes its features once: they take the longest."""
        node = open_node(message, context)
        compute, key = node.features, (context.node_id, *protocol.entropy(message))

        def features() -> NDArray[np.float32]:
            if key not in self._features:
                self._features[key] = compute()
            return self._features[key]

        vars(node)["features"] = features
        return node
