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
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.ask import Request, as_it_is
from strategies.rounds.participants import draw_testers
from strategies.rounds.training import UNTESTED

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
    request = Request(
        protocol.query(protocol.KEEP_STATE),
        dict(training.roster.nodes),
        lambda client: RecordDict({protocol.CONFIG: ConfigRecord({**told})}),
        lambda _, content: _state_in(content) if content else None,  # a device sends nothing
        timeout,
    )
    answers = request.ask(grid)
    for client, reason in answers.failures.items():
        logger.warning(
            "%s has not kept its own part of the model for this checkpoint, and a run that goes on "
            "from it starts that part again: %s",
            *(training.roster.name_of(client), reason),
        )
    return {client: state for client, state in answers.values.items() if state is not None}


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

    def content_of(client: int) -> RecordDict:
        content, state = RecordDict({protocol.CONFIG: ConfigRecord({**told})}), states[client]
        if "arrays" in state:
            content[protocol.ARRAYS] = protocol.to_record(state["arrays"])
            content[protocol.METRICS] = MetricRecord({protocol.KEPT: state["round"]})
        return content

    request = Request(
        protocol.query(protocol.RESTORE_STATE),
        {client: nodes[client] for client in states if client in nodes},
        content_of,
        as_it_is,
        timeout,
    )
    for client, reason in request.ask(grid).failures.items():
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
    request = training.model_request(
        protocol.EVALUATE, clients, as_it_is, {**told, **strategy.local_told}, timeout
    )
    training.warn(request.ask(grid).failures, UNTESTED)
