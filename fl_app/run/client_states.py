"""The private state of clients (layers, models) in a run that can be interrupted.

At each checkpoint, a device saves its state on its disk. A simulated client has no disk: it sends
its state, which becomes part of the checkpoint.
"""

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.ask import Request
from strategies.rounds.participants import draw_testers

logger = logging.getLogger(__name__)

ConfigValues = Mapping[str, ConfigRecordValues]


def save_states(
    grid: Grid, strategy: ClusteredStrategy, sent: ConfigValues, timeout: float
) -> dict[int, Any]:
    """Let clients save their private state of the present round, for a checkpoint.

    Return the state of each simulated client by index, for `fl_core.models.checkpoint`; `sent` is
    what every message of the run holds.
    """
    training = strategy.training
    sent = {**sent, **strategy.objective_entries, protocol.SERVER_ROUND: training.round}
    request = Request(
        protocol.query(protocol.SAVE_STATE),
        dict(training.registry.nodes),
        lambda client: RecordDict({protocol.CONFIG: ConfigRecord({**sent})}),
        lambda _, content: _state_in(content) if content else None,  # a device sends nothing
        timeout,
    )
    answers = request.ask(grid)
    for client, reason in answers.failures.items():
        logger.warning(
            "%s did not save its private layers for this checkpoint; a run that is resumed from it "
            "starts these layers again: %s",
            *(training.registry.name_of(client), reason),
        )
    return {client: state for client, state in answers.values.items() if state is not None}


def _state_in(content: RecordDict) -> dict[str, Any]:
    """Return the state that a simulated client sent."""
    state: dict[str, Any] = {}
    if protocol.ARRAYS in content.array_records:
        state["round"] = protocol.number(protocol.metrics_of(content), protocol.STORED)
        state["arrays"] = protocol.to_arrays(content.array_records[protocol.ARRAYS])
    return state


def tested_models(
    grid: Grid, strategy: ClusteredStrategy, sent: ConfigValues, timeout: float
) -> dict[int, ArrayRecord]:
    """Return the model that each simulated client tested last, by client index."""
    training = strategy.training
    clients = [client for client in training.registry.nodes if client in training.model_of_client]
    request = training.model_request(
        protocol.query(protocol.TESTED_MODEL),
        clients,
        lambda _, content: content.array_records[protocol.ARRAYS],
        {**sent, **strategy.objective_entries},
        timeout,
    )
    answers = request.ask(grid)
    for client, reason in answers.failures.items():
        name = training.registry.name_of(client)
        logger.warning("%s's model is not among the results: %s", name, reason)
    return answers.values


def restore_states(
    grid: Grid,
    nodes: Mapping[int, int],
    states: Mapping[int, Any],
    sent: ConfigValues,
    timeout: float,
) -> None:
    """Send simulated clients the state that `save_states` returned; `nodes` is by client index.

    A client that does not restore its state is a RuntimeError.
    """

    def content_of(client: int) -> RecordDict:
        content, state = RecordDict({protocol.CONFIG: ConfigRecord({**sent})}), states[client]
        if "arrays" in state:
            content[protocol.ARRAYS] = protocol.to_record(state["arrays"])
            content[protocol.METRICS] = MetricRecord({protocol.STORED: state["round"]})
        return content

    request = Request(
        protocol.query(protocol.RESTORE_STATE),
        {client: nodes[client] for client in states if client in nodes},
        content_of,
        lambda _, reply: reply,
        timeout,
    )
    for client, reason in request.ask(grid).failures.items():
        raise RuntimeError(f"client {client} did not restore its private state: {reason}")


def repeat_test(
    grid: Grid, strategy: ClusteredStrategy, sent: ConfigValues, timeout: float
) -> None:
    """Let clients test a strategy again that had ended before its run was resumed.

    Later strategies are compared with its results at each client, which only the process of a run
    remembers. These answers and bytes are not counted again.
    """
    training = strategy.training
    # Clients that joined later have no model of it.
    nodes = [client for client in training.registry.nodes if client in training.model_of_client]
    clients = draw_testers(nodes, strategy.fraction_evaluate, strategy.seed, training.round)
    entries = {**sent, **strategy.objective_entries}
    request = training.model_request(
        protocol.EVALUATE, clients, lambda _, reply: reply, entries, timeout
    )
    training.record_failures(request.ask(grid).failures, protocol.EVALUATE)
