"""Clients with the same images under different labels, and a server that asks them."""

import numpy as np
import torch
from flwr.clientapp import ClientApp

from clients.client import Client
from clients.handlers import answer_queries
from fl_core.messages import protocol
from strategies.rounds.client_registry import ClientRegistry
from strategies.rounds.conversation import Conversation
from strategies.rounds.training import Training
from tests.local_grid import LocalGrid


class SameImages(Client):
    """Clients 0, 2, 4, … call the two kinds of images 0 and 1, the others 1 and 0."""

    def _kinds(self):
        return np.random.default_rng(self.index).permutation(np.arange(20 + self.index) % 2)

    def features(self):
        kinds = self._kinds()
        rng = np.random.default_rng([self.index, 1])
        rows = np.where(kinds[:, None], (3.0, 1.0, 0, 0), (0, 0, 1.0, 3.0))
        return (rows + 0.2 * rng.normal(size=rows.shape)).astype(np.float32)

    def training_data(self):
        return torch.empty(0), torch.from_numpy((self._kinds() + self.index) % 2)


def conversation(clients, order=list, kind=SameImages):
    app = ClientApp()
    answer_queries(app, kind)
    nodes = {client: LocalGrid.node_of(client) for client in range(clients)}
    return Conversation(
        LocalGrid(app, clients, order=order), {protocol.SEED: 1}, 1, Training(ClientRegistry(nodes))
    )
