"""A wrapper of Flower's grid."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from flwr.serverapp import Grid


def _pass(name: str) -> Callable[..., Any]:
    def method(self: "GridWrapper", *args: Any, **kwargs: Any) -> Any:
        return getattr(self._grid, name)(*args, **kwargs)

    return method


class GridWrapper(Grid):
    """A grid that passes every call to another grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    run = property(attrgetter("_grid.run"))
    set_run = _pass("set_run")
    get_node_ids = _pass("get_node_ids")
    create_message = _pass("create_message")
    push_messages = _pass("push_messages")
    pull_messages = _pass("pull_messages")
    send_and_receive = _pass("send_and_receive")
