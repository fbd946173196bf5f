"""Which simulated client a node is: what a message and its context say together."""

from __future__ import annotations

from functools import lru_cache

import threadpoolctl
import torch
from flwr.app import Context, Message

from clients.handlers import partition_id
from fl_app.config import Config, parse_config
from fl_core import protocol
from fl_core.federation import Federation, simulate_federation


def open_node(message: Message, context: Context) -> tuple[Config, Federation, int]:
    """Return the configuration, the simulated federation and this client's index.

    Raises
    ------
    ValueError, OSError
        If the configuration is wrong, the node's index is not one of the clients', or its data
        cannot be had.
    """
    _one_thread()
    config = parse_config(context.run_config)
    settings = config.federation_settings(
        protocol.setting(message, protocol.NUM_CLIENTS), protocol.setting(message, protocol.SEED)
    )
    index = partition_id(message, context)
    if not 0 <= index < settings.num_clients:
        raise ValueError(
            f"this node's partition-id is {index}, but there are {settings.num_clients} clients: "
            f"start SuperNodes with partition-id 0 to {settings.num_clients - 1}."
        )
    return config, simulate_federation(settings), index


def _one_thread() -> None:
    """Give each simulated client one thread, whatever Ray grants: they share a machine.

    Sums are then added up in the same order on any number of workers. Asked for every time, since
    libraries that are loaded later (numba) raise the number again.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    _limit_threads_of_libraries()


@lru_cache(maxsize=1)
def _limit_threads_of_libraries() -> None:
    threadpoolctl.threadpool_limits(1)
