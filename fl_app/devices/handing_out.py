"""After the training, each device is sent the model that is its own, to keep."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.ask import Request


def hand_out_models(
    strategy: ClusteredStrategy, grid: Grid, config: ConfigRecord, timeout: float
) -> dict[int, str]:
    """Send each client the model that is its own in the end, to be kept (`keep_model`).

    `strategy.start` has ended; to `config` comes the client's cluster; `timeout` is in seconds.
    Returned is, from client, why it did not keep its model, of those that did not.
    """
    training, roster = strategy.training, strategy.training.roster
    of_client = training.clusters.of_client
    request = training.model_request(
        protocol.query(protocol.KEEP_MODEL),
        roster.nodes,
        _read_kept,
        {**config, **strategy.local_told},
        timeout,
        config_of=lambda client: {protocol.CLUSTER: of_client[client]},
    )
    failures = request.ask(grid).failures
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
    request = Request(
        protocol.query(protocol.DEPLOY_MODEL),
        {client: nodes[client] for client in chosen if client in nodes},
        lambda client: RecordDict({protocol.CONFIG: chosen[client]}),
        _read_kept,
        timeout,
    )
    return request.ask(grid).failures


def _read_kept(client: int, content: RecordDict) -> None:
    """Raise a ValueError unless a client has stored, or now uses, its model."""
    if protocol.metrics_of(content).get(protocol.KEPT) != 1:
        raise ValueError("it has no model-path")
