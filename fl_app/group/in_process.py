"""Clients that answer in this process: a pre-round takes seconds, so no Flower is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import NDArray

from clients.handlers import answer_queries
from fl_app.client_app import open_node
from fl_app.nodes.attack_mod import attack_mod
from fl_app.nodes.simulated_node import Node
from fl_core.flower.node import TaskIdentity
from fl_core.wire import protocol


class InProcessGrid(Grid):
    """A grid whose nodes answer at once, one after the other, in this process.

    Parameters
    ----------
    node_configs : sequence of mappings
        What each node's `--node-config` would say.
    run_config : mapping
        The run's configuration.
    """

    def __init__(
        self, node_configs: Sequence[Mapping[str, Any]], run_config: Mapping[str, Any]
    ) -> None:
        # Not the app that devices run: nobody is here from whom an answer must be hidden by salt.
        self._app = ClientApp(mods=[attack_mod])
        answer_queries(self._app, self._open)
        self._features: dict[tuple[int, ...], NDArray[np.float32]] = {}
        # Flower's messages want to know who sends them.
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self._asked: dict[int, Message] = {}
        self._contexts = {
            node: Context(1, node, dict(own), RecordDict(), dict(run_config))
            for node, own in enumerate(node_configs, start=1)
        }

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Let each node answer; a failure is its answer, as in Flower."""
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self._asked[node] = message
            try:
                replies.append(self._app(message, self._contexts[node]))
            except Exception as error:  # what a client raises stays the client's
                reason = f"{type(error)}:<'{error}'>"
                replies.append(Message(Error(code=1, reason=reason), reply_to=message))
        return replies

    def node(self, node_id: int) -> Node:
        """Return a node as it was when it answered last."""
        return self._open(self._asked[node_id], self._contexts[node_id])

    def _open(self, message: Message, context: Context) -> Node:
        """Return a node that computes its features once for all who ask: they take the longest."""
        node = open_node(message, context)
        compute, key = node.features, (context.node_id, *protocol.entropy(message))

        def features() -> NDArray[np.float32]:
            if key not in self._features:
                self._features[key] = compute()
            return self._features[key]

        vars(node)["features"] = features
        return node

    run = property(lambda self: self._refuse())

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("a grid in this process has no run and no queue of messages.")

    set_run = create_message = push_messages = pull_messages = _refuse
