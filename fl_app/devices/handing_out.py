"""After the training, each device is sent the model that is its own, to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fl_core.wire import protocol
from strategies import ClusteredStrategy
from strategies.engine.conversation import Traffic
from strategies.engine.exchange import Exchange
from strategies.engine.replies import sort_replies


def hand_out_models(
    strategy: ClusteredStrategy, grid: Grid, config: ConfigRecord, timeout: float
) -> dict[int, str]:
    """Send each client the model that is its own in the end, to be kept (`keep_model`).

    `strategy.start` has ended; to `config` comes the client's cluster; `timeout` is in seconds.
    Returned is, from client, why it did not keep its model, of those that did not.
    """
    training, roster = strategy.training, strategy.training.roster
    of_client = training.clusters.of_client
    exchange = Exchange(training, roster.nodes, Traffic())
    messages = exchange.messages(
        protocol.query(protocol.KEEP_MODEL),
        {**config, **strategy.local_told},
        timeout,
        lambda client: {protocol.CLUSTER: of_client[client]},
    )
    failures = _not_kept(grid, messages, exchange.asked, timeout)
    absent = (of_client.keys() | roster.names.keys()) - roster.nodes.keys()
    failures |= {client: roster.failures.get(client, "it is not connected") for client in absent}
    return dict(sorted(failures.items()))


def deploy_models(
    nodes: Mapping[int, int],
    chosen: Mapping[int, ConfigRecord],
    grid: Grid,
    timeout: float,
) -> dict[int, str]:
    """Let each client use, of the models that it was handed, that of the strategy which it is told.

    Parameters
    ----------
    nodes : mapping of int
        From client to node.
    chosen : mapping of ConfigRecord
        What each client is told: the strategy and its verdict, beside what every message says.
    timeout : float
        Seconds to wait.

    Returns
    -------
    dict of str
        Why clients did not, of those that were told.
    """
    messages = [
        Message(
            RecordDict({protocol.CONFIG: told}),
            dst_node_id=nodes[client],
            message_type=protocol.query(protocol.DEPLOY_MODEL),
            ttl=timeout,
        )
        for client, told in chosen.items()
        if client in nodes
    ]
    asked = {nodes[client]: client for client in chosen if client in nodes}
    return _not_kept(grid, messages, asked, timeout)


def _not_kept(
    grid: Grid, messages: Iterable[Message], asked: Mapping[int, int], timeout: float
) -> dict[int, str]:
    """Return why clients do not have their model, of those that were sent a message about it."""
    answers, failures = sort_replies(asked, grid.send_and_receive(messages, timeout=timeout))
    for client, answer in answers.items():
        if protocol.metrics_of(answer).get(protocol.KEPT) != 1:
            failures[client] = "it has no model-path"
    return failures
