"""What clients keep for themselves, in a run that can be interrupted.

With each checkpoint, the clients are told to hold what they have. A device does so on its own disk,
and nothing of it is sent. A simulated client has no disk: its state is in the simulation's memory,
and on a Ray cluster perhaps computed on another machine, so it hands its state over, and a file
beside the checkpoint has all clients'.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import (
    ConfigRecord,
    ConfigRecordValues,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.conversation import Traffic
from strategies.rounds.exchange import UNTESTED, Exchange
from strategies.rounds.participants import draw_testers
from strategies.rounds.replies import read_answers, sort_replies

logger = logging.getLogger(__name__)

ConfigValues = Mapping[str, ConfigRecordValues]


def keep_states(
    grid: Grid, strategy: ClusteredStrategy, told: ConfigValues, timeout: float
) -> dict[int, Any]:
    """Let clients hold what they keep, after the present round, for a checkpoint of it.

    Parameters
    ----------
    told : mapping
        What every message of the run tells a client, the seed among it.
    timeout : float
        Seconds to wait for the clients.

    Returns
    -------
    dict
        From a simulated client's index to its state, for `fl_core.models.checkpoint`.
    """
    training = strategy.training
    told = {**told, **strategy.local_told, protocol.SERVER_ROUND: training.round}
    nodes = training.roster.nodes
    asked = {client: RecordDict({protocol.CONFIG: ConfigRecord({**told})}) for client in nodes}
    answers, failures = query_clients(grid, protocol.KEEP_STATE, nodes, asked, timeout)
    handed_over = {client: content for client, content in answers.items() if content}  # no device
    states = read_answers(handed_over, failures, lambda _, content: _state_in(content))
    for client, reason in failures.items():
        logger.warning(
            "%s has not kept its own part of the model for this checkpoint, and a run that goes on "
            "from it starts that part again: %s",
            *(training.roster.name_of(client), reason),
        )
    return states


def _state_in(content: RecordDict) -> dict[str, Any]:
    """Return what a simulated client handed over."""
    state: dict[str, Any] = {}
    if protocol.ARRAYS in content.array_records:
        state["round"] = protocol.number(protocol.metrics_of(content), protocol.KEPT)
        state["arrays"] = protocol.to_arrays(content.array_records[protocol.ARRAYS])
    return state


def restore_states(
    grid: Grid,
    nodes: Mapping[int, int],
    states: Mapping[int, Any],
    told: ConfigValues,
    timeout: float,
) -> None:
    """Give simulated clients back what they had kept: `nodes` is from client index to node id.

    Parameters
    ----------
    states : mapping
        As `keep_states` returned them.
    told : mapping
        What every message of the run tells a client, the training's identity among it.

    Raises
    ------
    RuntimeError
        If a client does not take its state.
    """
    asked = {client: RecordDict({protocol.CONFIG: ConfigRecord({**told})}) for client in states}
    for client, state in states.items():
        if "arrays" in state:
            asked[client][protocol.ARRAYS] = protocol.to_record(state["arrays"])
            asked[client][protocol.METRICS] = MetricRecord({protocol.KEPT: state["round"]})
    _, failures = query_clients(grid, protocol.RESTORE_STATE, nodes, asked, timeout)
    for client, reason in failures.items():
        raise RuntimeError(f"client {client} did not take back what it had kept: {reason}")


def compare_again(
    grid: Grid, strategy: ClusteredStrategy, told: ConfigValues, timeout: float
) -> None:
    """Let clients test a strategy that had ended before its run was resumed.

    What each of them was right about is known in its run alone, and strategies to come are to be
    compared with it. Neither their answers nor the bytes count a second time.

    Parameters
    ----------
    told : mapping
        What every test of the strategy tells a client.
    """
    training = strategy.training
    # Who has come since has no model of it.
    nodes = [client for client in training.roster.nodes if client in training.model_of_client]
    clients = draw_testers(nodes, strategy.fraction_evaluate, strategy.seed, training.round)
    exchange = Exchange(training, clients, Traffic(), UNTESTED)
    messages = exchange.messages(protocol.EVALUATE, {**told, **strategy.local_told}, timeout)
    exchange.read(grid.send_and_receive(messages, timeout=timeout), lambda client, content: None)


def query_clients(
    grid: Grid,
    action: str,
    nodes: Mapping[int, int],
    contents: Mapping[int, RecordDict],
    timeout: float,
) -> tuple[dict[int, RecordDict], dict[int, str]]:
    """Send clients a query each, and return their answers, and why others failed.

    Parameters
    ----------
    action : str
        The query's name.
    nodes : mapping of int
        From client to node; a client without one is not asked.
    contents : mapping of RecordDict
        What each client is sent.
    timeout : float
        Seconds to wait.
    """
    asked = {nodes[client]: client for client in contents if client in nodes}
    messages = [
        Message(
            contents[client],
            dst_node_id=node,
            message_type=protocol.query(action),
            ttl=timeout,
        )
        for node, client in asked.items()
    ]
    return sort_replies(asked, grid.send_and_receive(messages, timeout=timeout))
