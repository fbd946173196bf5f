"""Send each device its final model after the training, to be stored and used there."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies import ClusteredStrategy
from strategies.rounds.ask import Request


def deliver_models(
    strategy: ClusteredStrategy, grid: Grid, config: ConfigRecord, timeout: float
) -> dict[int, str]:
    """Send each client its final model, to be stored, and return why clients did not store it.

    Every message has `config`, and the client's cluster; `timeout` is in seconds.
    """
    training, registry = strategy.training, strategy.training.registry
    of_client = training.clusters.of_client
    request = training.model_request(
        protocol.query(protocol.SAVE_MODEL),
        registry.nodes,
        _check_stored,
        {**config, **strategy.objective_entries},
        timeout,
        config_of=lambda client: {protocol.CLUSTER: of_client[client]},
    )
    failures = request.ask(grid).failures
    absent = (of_client.keys() | registry.names.keys()) - registry.nodes.keys()
    failures |= {client: registry.failures.get(client, "it is not connected") for client in absent}
    return dict(sorted(failures.items()))


def deploy_models(
    nodes: Mapping[int, int],
    chosen: Mapping[int, ConfigRecord],
    grid: Grid,
    timeout: float,
) -> dict[int, str]:
    """Let each client use one of its stored models, and return why clients did not.

    `nodes` is by client, and `chosen` has the strategy and the verdict for each of them.
    """
    request = Request(
        protocol.query(protocol.DEPLOY_MODEL),
        {client: nodes[client] for client in chosen if client in nodes},
        lambda client: RecordDict({protocol.CONFIG: chosen[client]}),
        _check_stored,
        timeout,
    )
    return request.ask(grid).failures


def _check_stored(client: int, content: RecordDict) -> None:
    """Raise a ValueError unless a client has stored, or now uses, its model."""
    if protocol.metrics_of(content).get(protocol.STORED) != 1:
        raise ValueError("it has no model-path")
