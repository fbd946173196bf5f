"""After the training, each device is sent the model that is its own, to keep."""

from __future__ import annotations

from flwr.app import ConfigRecord
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
    answers, failures = sort_replies(
        exchange.asked, grid.send_and_receive(messages, timeout=timeout)
    )
    for client, answer in answers.items():
        if protocol.metrics_of(answer).get(protocol.KEPT) != 1:
            failures[client] = "it has no model-path"
    absent = (of_client.keys() | roster.names.keys()) - roster.nodes.keys()
    failures |= {client: roster.failures.get(client, "it is not connected") for client in absent}
    return dict(sorted(failures.items()))
