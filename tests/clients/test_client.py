"""A client of one's own app: opened once for a message, and asked only for what it has."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from clients.client import Client
from clients.handlers import answer_queries
from fl_core.messages import protocol
from strategies import make_strategy
from tests.local_grid import LocalGrid
from tests.toy_app import toy_features


def ask(app, action, **asked):
    """Return what the only client of an app answers to a query."""
    config = ConfigRecord({key.replace("_", "-"): value for key, value in asked.items()})
    grid = LocalGrid(app, 1)
    message = Message(
        RecordDict({protocol.CONFIG: config}), grid.node_of(0), protocol.query(action)
    )
    (reply,) = grid.send_and_receive([message])
    return reply


def test_each_message_opens_one_client_and_reads_its_data_once():
    done = []

    class Counted(Client):
        def __init__(self, message, context):
            super().__init__(message, context)
            done.append(message.metadata.message_type)

        def features(self):
            done.append("features")
            return toy_features(0, self.index)

        def training_data(self):
            done.append("images")
            images = np.random.default_rng(0).integers(0, 255, (20, 1, 28, 28), np.uint8)
            return torch.from_numpy(images), torch.zeros(20, dtype=torch.int64)

    app = ClientApp()
    answer_queries(app, Counted)
    assert not ask(app, protocol.SPECTRUM, num_eigenvectors=2).has_error()
    assert not ask(app, protocol.SIGNATURE, num_centroids=2, num_components=3).has_error()
    assert done == ["query.spectrum", "features", "query.signature", "images"]


def test_what_a_client_lacks_is_named():
    app = ClientApp()
    answer_queries(app)
    said = ask(app, protocol.SPECTRUM, num_eigenvectors=2).error.reason
    assert (
        "the server asks for what Client.features returns: define it, as clients/client.py" in said
    )
    assert ask(app, protocol.DESCRIBE).content[protocol.METRICS][protocol.CLIENT_INDEX] == 0


def test_a_node_without_a_number_is_reported_with_the_remedy():
    app = ClientApp()
    answer_queries(app)
    grid = LocalGrid(app, 1)
    grid.contexts[grid.node_of(0)].node_config.clear()
    with pytest.raises(RuntimeError, match="this node has no partition-id: start its SuperNode"):
        make_strategy("fedhc", 1).start(grid, protocol.to_record({"w": np.zeros(2, np.float32)}), 1)
