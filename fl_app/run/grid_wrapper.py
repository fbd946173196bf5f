"""What stands before Flower's own grid."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from flwr.serverapp import Grid


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: GridAround, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._grid, name)(*args, **kwargs)

    return method


class GridAround(Grid):
    """A grid that passes everything on to another, the real one."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    run = property(attrgetter("_grid.run"))
    set_run = _passed_on("set_run")
    get_node_ids = _passed_on("get_node_ids")
    create_message = _passed_on("create_message")
    push_messages = _passed_on("push_messages")
    pull_messages = _passed_on("pull_messages")
    send_and_receive = _passed_on("send_and_receive")
