"""IFCA and IFCA-PFL: each client trains the cluster model on which its loss is lowest.

A. Ghosh, J. Chung, D. Yin, K. Ramchandran, "An Efficient Framework for Clustered Federated
Learning", NeurIPS 2020, https://arxiv.org/abs/2006.04088 (IFCA, by model averaging).
A. Ali, A. Arafa, "RCC-PFL", 2025, Algorithm 2 (IFCA-PFL): see `spectral`.

Before each test, all clients choose by their training losses (Algorithm 2, line 10). Ghosh et al.'s
code lets a client choose by its loss on the test samples, which no client can know; this does not.

The clusters depend on the random initial models. With `initial_models="warm"`, which is ours, all
clients train one model in round 1. The means of FedHC's groups of these start the clusters.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.options import NATURAL, one_of, option
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.fedhc import agglomerate_directions
from strategies.rounds.ask import Traffic
from strategies.rounds.conversation import Conversation
from strategies.rounds.means import cluster_models
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import model_vector

Float64 = NDArray[np.float64]
DrawModel = Callable[[int], NDArrays]
InitialModels = Literal["drawn", "warm"]

MAX_DRAWS = 100
_DRAW_STREAM = 0x1FCA


def drawn_models(initial_model: DrawModel, seed: int) -> DrawModel:
    """Return a `draw_model` for `LossClustering` with a separate seed for each model.

    `initial_model` makes a fresh model from a seed; another `seed`, the run's, draws other models.
    """

    def draw_model(number: int) -> NDArrays:
        stream = np.random.SeedSequence([seed, number, _DRAW_STREAM])
        return initial_model(int(stream.generate_state(1)[0]))

    return draw_model


def inhabit_all(
    losses: Float64, labels: NDArray[np.int64], elsewhere: Collection[int] = ()
) -> NDArray[np.int64]:
    """Return labels, shape (K,), with clients in empty clusters (IFCA-PFL, Procedure 2, line 18).

    Into each empty cluster in turn moves the client with the lowest loss on its model, of those
    that do not leave their cluster empty. `losses` are each client's on each model, shape (K, M);
    the clients whose clusters are `elsewhere` were not asked and stay.
    """
    labels = labels.copy()
    sizes = np.bincount([*labels, *elsewhere], minlength=losses.shape[1])
    for empty in np.flatnonzero(sizes == 0):
        movable = np.flatnonzero(sizes[labels] > 1)
        if not len(movable):
            break
        moved = movable[losses[movable, empty].argmin()]
        sizes[labels[moved]] -= 1
        sizes[empty] += 1
        labels[moved] = empty
    return labels


@dataclass
class LossClustering(Clustering):
    """Clients are sent all models, and answer their training loss on each (IFCA-PFL, Procedure 2).

    All are asked before training and before each test; the participants, once a round. The models
    stay at a client that trains next: M models go down, not M + 1. Tests count their own bytes.
    """

    name: ClassVar[str] = "loss-inhabited"
    shares: ClassVar[str] = "losses"
    exact_number: ClassVar[bool] = True
    retains_models: ClassVar[bool] = True
    num_clusters: int  # M
    # From 0, 1, 2, … to a freshly initialised model, a different one for each number: equal models
    # have equal losses, and all clients choose the first.
    draw_model: DrawModel = field(compare=False)
    # True: IFCA-PFL: models are drawn again until clients choose every cluster, and later no
    # cluster stays empty; False: IFCA: an empty cluster keeps its model.
    enforce: bool = True
    initial_models: InitialModels = option(
        "drawn",
        one_of(get_args(InitialModels)),
        "`drawn`: at random, as in the papers; `warm`: all train one model first, and the means "
        "of the groups that FedHC would find start the clusters",
    )
    stop_after: int = option(
        0,
        NATURAL,
        "stop asking once no client has moved for this many rounds; 0: never stop",
        key="stop-reassociation",
    )
    _models: list[NDArrays] = state_field(list)
    _unchanged: int = state_field(int)  # rounds in which no client moved
    _warms_up: bool = state_field(bool)  # all train one model until a round groups them

    def needs_all_clients(self, number: int) -> bool:
        """Return whether all clients train, for the groups that start the clusters."""
        return self._warms_up

    def find(self, conversation: Conversation) -> Clusters:
        """Draw M models, and again until every cluster is inhabited (Algorithm 2, line 2).

        A RuntimeError says that some cluster was empty in each of `MAX_DRAWS` draws. Before a warm
        start nothing is asked.
        """
        self._warms_up = self.initial_models == "warm"
        self._check_number(len(conversation.nodes))
        if self._warms_up:
            return Clusters(dict.fromkeys(conversation.nodes, 0), self.num_clusters)
        for draw in range(MAX_DRAWS if self.enforce else 1):
            self._models = self._drawn(draw, conversation.training.private)
            traffic = conversation.training.train_traffic
            stored = conversation.all_train
            losses = ask_losses(conversation, self._models, None, traffic, stored=stored)
            self._check_number(len(losses))
            labels = np.array(list(losses.values())).argmin(axis=1)
            if not self.enforce or len(set(labels.tolist())) == self.num_clusters:
                return Clusters.of_labels(
                    losses, labels, num_clusters=self.num_clusters, models=self._models
                )
        raise RuntimeError(
            f"in {MAX_DRAWS} draws of {self.num_clusters} initial models there was always one that "
            "no client preferred: lower num-clusters, or take the strategy ifca, which allows "
            "empty clusters."
        )

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Ask the participants again; one that fails stays in its cluster."""
        if state.number == 1 or self._warms_up or self._is_stable():
            return state.clusters
        return self._associate(state, state.participants, conversation)

    def after_training(self, state: Round) -> Clusters:
        """Group the clients by the updates of a warm start's first round, as FedHC does."""
        if not self._warms_up:
            return state.clusters
        self._warms_up = False
        vectors = [model_vector(u.received, u.arrays) for u in state.updates]
        _, grouping = agglomerate_directions(vectors, self.num_clusters)
        labels = grouping.labels.tolist()
        found = {update.client: c for update, c in zip(state.updates, labels, strict=True)}
        return Clusters({**state.clusters.of_client, **found}, self.num_clusters)

    def before_test(self, state: Round, conversation: Conversation) -> Clusters:
        """Ask all clients again; one that fails stays in its cluster."""
        if self._warms_up or self._is_stable():
            return state.clusters
        quiet = self._unchanged
        found = self._associate(state, list(conversation.nodes), conversation, for_test=True)
        self._unchanged = min(quiet, self._unchanged)  # rounds count, tests do not
        return found

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers for their losses on the models of the last query.

        These may be some rounds old; but from now on the participants are asked again.
        """
        self._unchanged = 0
        if not self._models:
            return clusters.with_all_clients(newcomers)  # of a warm start: asked when they train
        losses = ask_losses(conversation, self._models, newcomers, stored=conversation.all_train)
        found = clusters.with_clients({c: int(np.argmin(values)) for c, values in losses.items()})
        return replace(found, unheld=self._unheld(clusters))

    def _check_number(self, clients: int) -> None:
        if self.enforce and self.num_clusters > clients:
            raise ValueError(
                f"num-clusters is {self.num_clusters}, but {clients} clients can be grouped: "
                f"choose 1 to {clients}, or the strategy ifca, which allows empty clusters."
            )

    def _is_stable(self) -> bool:
        return 0 < self.stop_after <= self._unchanged

    def _drawn(self, draw: int, private: Collection[str]) -> list[NDArrays]:
        numbers = range(draw * self.num_clusters, (draw + 1) * self.num_clusters)
        models = [self.draw_model(number) for number in numbers]
        return [{n: a for n, a in model.items() if n not in private} for model in models]

    def _associate(
        self,
        state: Round,
        clients: Sequence[int],
        conversation: Conversation,
        *,
        for_test: bool = False,
    ) -> Clusters:
        """Let clients choose among the clusters' present models."""
        self._models, training = self._present_models(state), conversation.training
        traffic = training.evaluate_traffic if for_test else training.train_traffic
        losses = ask_losses(conversation, self._models, clients, traffic, stored=not for_test)
        clusters = self._choose(state.clusters, losses)
        return replace(clusters, unheld=self._unheld(state.clusters))

    def _unheld(self, clusters: Clusters) -> dict[int, NDArrays]:
        return {n: model for n, model in enumerate(self._models) if not clusters.members(n)}

    def _present_models(self, state: Round) -> list[NDArrays]:
        # After a warm start no client was asked yet, and empty clusters have none.
        before = self._models or [state.initial] * self.num_clusters
        return [
            model if state.clusters.members(cluster) or not state.per_client else before[cluster]
            for cluster, model in enumerate(cluster_models(state))
        ]

    def _choose(self, clusters: Clusters, losses: dict[int, list[float]]) -> Clusters:
        """Return clusters in which the clients that answered are where their loss is lowest."""
        if not losses:
            return clusters
        table = np.array(list(losses.values()))
        labels = table.argmin(axis=1)
        if self.enforce:
            others = [c for client, c in clusters.of_client.items() if client not in losses]
            labels = inhabit_all(table, labels, others)
        found = dict(zip(losses, labels.tolist(), strict=True))
        of_client = {**clusters.of_client, **found}
        self._unchanged = self._unchanged + 1 if of_client == clusters.of_client else 0
        return Clusters(of_client, self.num_clusters)


@dataclass
class FreeLossClustering(LossClustering):
    """IFCA's: clusters may be empty."""

    name: ClassVar[str] = "loss"
    exact_number: ClassVar[bool] = False
    enforce: bool = False


def ask_losses(
    conversation: Conversation,
    models: Sequence[NDArrays],
    clients: Sequence[int] | None,
    traffic: Traffic | None = None,
    *,
    stored: bool = True,
) -> dict[int, list[float]]:
    """Return the losses, one on each model, of each client that answers; None asks all clients.

    `traffic` is as in `Conversation.query`; the models are `stored` at clients until they train.
    """
    packed = protocol.pack_models([protocol.to_record(model) for model in models])
    private_of = conversation.training.private_of
    losses = conversation.query(
        protocol.LOSSES,
        lambda content: _read_losses(content, len(models)),
        lambda client: RecordDict({protocol.ARRAYS: packed, **private_of(client)}),
        {protocol.STORED: stored},
        clients=clients,
        traffic=traffic,
    )
    if stored:
        conversation.models_at.update(dict.fromkeys(losses, models))
    return losses


def _read_losses(content: RecordDict, count: int) -> list[float]:
    """Return a client's losses; one that is not finite is the worst possible."""
    sent = protocol.numbers(content, protocol.LOSSES)
    if len(sent) != count:
        raise ValueError(f"its answer does not hold {count} losses")
    # One model that a client has corrupted is the worst for its cluster only.
    if not np.isfinite(sent).any():
        raise ValueError("none of its losses is a finite number")
    return [one if math.isfinite(one) else math.inf for one in sent]
