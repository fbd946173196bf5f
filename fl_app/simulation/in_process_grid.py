"""Clients that answer in this process, one after the other: no Flower is started."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fl_core.flower.node import TaskIdentity


class InProcessGrid(Grid):
    """A grid with nodes that answer at once, in this process.

    `node_configs` are as each node's `--node-config`; `contexts` has Flower's state of each node,
    by node id.
    """

    def __init__(
        self,
        app: ClientApp,
        node_configs: Sequence[Mapping[str, Any]],
        run_config: Mapping[str, Any],
    ) -> None:
        self.app = app
        # Flower's messages need the identity of their sender.
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.contexts: dict[int, Context] = {}
        for index, one in enumerate(node_configs):
            node = self.node_of(index)
            self.contexts[node] = Context(1, node, dict(one), RecordDict(), dict(run_config))

    @staticmethod
    def node_of(index: int) -> int:
        """Return the id of a node by its index, from 0."""
        return index + 1

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Let each node answer; a failure is its answer, as in Flower."""
        return [answer(self.app, one, self.contexts[one.metadata.dst_node_id]) for one in messages]

    run = property(lambda self: self._refuse())

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("a grid in this process has no run and no queue of messages.")

    set_run = create_message = push_messages = pull_messages = _refuse


def answer(app: ClientApp, message: Message, context: Context) -> Message:
    """Return the answer of a node; an exception of the app is a failure of this node only."""
    try:
        return app(message, context)
    except Exception as error:
        reason = f"{type(error)}:<'{error}'>"
        return Message(Error(code=1, reason=reason), reply_to=message)
