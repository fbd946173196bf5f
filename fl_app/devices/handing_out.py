"""After the training, each device is sent the model that is its own, to keep."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fl_app.run.personal_store import query_clients
from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.conversation import Traffic
from strategies.rounds.exchange import Exchange
from strategies.rounds.replies import sort_replies


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
    replies = grid.send_and_receive(messages, timeout=timeout)
    failures = _not_kept(*sort_replies(exchange.asked, replies))
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
    contents = {client: RecordDict({protocol.CONFIG: told}) for client, told in chosen.items()}
    return _not_kept(*query_clients(grid, protocol.DEPLOY_MODEL, nodes, contents, timeout))


def _not_kept(answers: Mapping[int, RecordDict], failures: Mapping[int, str]) -> dict[int, str]:
    """Return why clients do not have their model, of those that were sent a message about it."""
    kept = {c: protocol.metrics_of(answer).get(protocol.KEPT) for c, answer in answers.items()}
    return {**failures, **{c: "it has no model-path" for c, one in kept.items() if one != 1}}
