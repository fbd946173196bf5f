"""FLT: relate clients by an encoder's embeddings of their data (Algorithms 2 and 3).

H. Jamali-Rad, M. Abdizadeh, A. Singh, "Federated Learning With Taskonomy for Non-IID Data", IEEE
TNNLS 34(11), 2022, https://doi.org/10.1109/TNNLS.2022.3152581.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
from flwr.app import ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.options import COUNT, NATURAL, number, one_of, option, or_none
from strategies.clusterings.agglomeration import COUNT_RULES, NumClusters
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.signatures import (
    CENTROID_DISTANCES,
    THRESHOLD,
    CentroidDistance,
    cluster_means,
    embed_signatures,
    group_graph,
    nearest_cluster,
    neighbours_in,
    relatedness_graph,
)
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison, Round
from strategies.rounds.state import state_field

Float32 = NDArray[np.float32]
FineTune = Literal["refresh", "always", "never"]

_WIDTH = "its centroids have {} numbers"
_ENCODER_EPOCHS = 5  # J
_LARGEST = 1e6  # embeddings of pixels in [0, 1] are small; squares of larger ones would overflow


@dataclass
class SignatureClustering(Clustering):
    """Clients encode their images and send k centroids; the server relates them on a manifold.

    Clients that train send how far their data have moved since they were last asked (δ). Once it
    has been above `change_threshold` for more than `max_changed` of them, or every `refresh_every`
    rounds, all clients are asked again. Until then, newcomers join the cluster with the nearest
    mean embedding.
    """

    name: ClassVar[str] = "signature"
    needs_packages: ClassVar[tuple[str, ...]] = ("umap",)
    shares: ClassVar[str] = "centroids"
    exact_number: ClassVar[bool] = True
    encoder: NDArrays = field(compare=False, repr=False)  # or the whole autoencoder's arrays
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "elbow"  # C; "elbow": from Ward's dendrogram of the graph's rows
    num_centroids: int = option(5, COUNT, "centroids that each client sends")  # k
    threshold: float = option(  # γ
        THRESHOLD,
        number(float, 0),
        "how close two clients' centroids must be on the manifold; the paper has 1",
        key="graph-threshold",
    )
    centroid_distance: CentroidDistance = option(
        "closest",
        one_of(get_args(CentroidDistance)),
        "the distance of two clients: their `closest` centroids, as FLT says, or all of them, "
        "`matching` each with another, as its authors' code has it with one centroid for each "
        "class (`num-centroids`)",
    )
    fine_tune: FineTune = option(  # Enc1, of data like the clients', is refreshed; Enc2, always
        "always",
        one_of(get_args(FineTune)),
        "when clients fit the encoder to their images, for five epochs; `refresh`: when they are "
        "asked again; `always`: in the pre-round, too",
    )
    change_threshold: float = option(
        0.12,
        number(float, 0),
        "a client's data have changed if their mean has moved by this share of their spread",
    )
    max_changed: int | None = option(  # λ
        0,
        or_none(NATURAL, "never"),
        "ask clients again once the data of more than this many have changed",
    )
    refresh_every: int = option(0, NATURAL, "ask clients again every so many rounds; 0: never")  # τ
    seed: int = 0
    encoder_note: str = ""  # a warning about the images that the encoder was pre-trained on
    _signatures: dict[int, Float32] = state_field(dict)
    _means: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _changed: set[int] = state_field(set)
    _silent: set[int] = state_field(set)
    _flags: dict[int, int] = state_field(dict)  # that clients have sent one after the other
    _sketches: dict[int, list[float]] = state_field(dict)
    _fine_tuned: bool = state_field(bool)

    def __post_init__(self) -> None:
        """Show the warning in the table of results."""
        self.note = self.encoder_note

    def find(self, conversation: Conversation) -> Clusters:
        """Form the clients' relatedness (FCR, Algorithm 2)."""
        self._fine_tuned = self.fine_tune == "always"
        self._signatures = self._ask(conversation, None)
        return self._relate()

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Ask all clients again if it is time to (Algorithm 3, lines 21 to 28)."""
        flagged = self.max_changed is not None and len(self._changed) > self.max_changed
        passed = state.number - 1
        due = self.refresh_every > 0 and passed > 0 and passed % self.refresh_every == 0
        if not (flagged or due):
            return state.clusters
        self._changed, self._fine_tuned = set(), self.fine_tune != "never"
        # The last signature of a client that fails stays; its flag would only be the same again.
        answers = self._ask(conversation, None, self._means.shape[1])
        self._silent = set(conversation.nodes) - set(answers)
        known = {**self._signatures, **answers}
        self._signatures = {client: known[client] for client in sorted(known)}
        return self._relate(state.number)

    def after_training(self, state: Round) -> Clusters:
        """Store the change flags; the clusters stay until the next round.

        Of successive flags of a client, the first, second, fourth, eighth … count, so that one that
        always raises its flag does not make all clients be asked in every round.
        """
        for update in state.updates:
            is_up = update.shift > self.change_threshold
            self._flags[update.client] = self._flags.get(update.client, 0) + 1 if is_up else 0
        raised = {u.client for u in state.updates if self._flags[u.client].bit_count() == 1}
        self._changed |= raised - self._silent
        return state.clusters

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each at the nearest mean embedding (section III-B4)."""
        signatures = self._ask(conversation, newcomers, self._means.shape[1])
        self._signatures |= signatures
        # Means alone are embedded: how near a newcomer is to each client is unknown.
        unknown = np.full(len(clusters.compared), np.nan)
        placed = {c: nearest_cluster(one, self._means) for c, one in signatures.items()}
        return clusters.with_clients(placed, dict.fromkeys(signatures, unknown))

    def training_entries(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return the sketch of the images from which the client made its signature."""
        known = self._sketches.get(client)
        return {protocol.IMAGE_SKETCH: known} if known else {}

    def _ask(
        self, conversation: Conversation, clients: Sequence[int] | None, width: int | None = None
    ) -> dict[int, Float32]:
        epochs = _ENCODER_EPOCHS if self._fine_tuned else 0
        sent = {n: a for n, a in self.encoder.items() if epochs or n.startswith("encoder.")}
        answers = ask_signatures(
            conversation,
            protocol.with_arrays(sent),
            {protocol.NUM_CENTROIDS: self.num_centroids, protocol.ENCODER_EPOCHS: epochs},
            clients,
            width,
        )
        self._sketches |= {client: sketch for client, (_, sketch) in answers.items()}
        return {client: centroids for client, (centroids, _) in answers.items()}

    def _relate(self, number: int = 0) -> Clusters:
        signatures = self._signatures
        rows = list(signatures.values())
        distances = CENTROID_DISTANCES[self.centroid_distance](embed_signatures(rows, self.seed))
        graph = relatedness_graph(distances, self.threshold)
        grouping = group_graph(graph, self.num_clusters)
        self._means = cluster_means(rows, grouping.labels)
        return Clusters.of_labels(
            signatures,
            grouping.labels,
            neighbours=neighbours_in(graph, tuple(signatures)),
            comparison=Comparison(
                tuple(signatures),
                1 / (1 + distances),
                grouping.merges,
                "closeness 1/(1 + A)",
                round=number,
            ),
        )


def ask_signatures(
    conversation: Conversation,
    content: RecordDict,
    options: Mapping[str, int],
    clients: Sequence[int] | None,
    width: int | None = None,
) -> dict[int, tuple[Float32, list[float]]]:
    """Return clients' centroids of `width` numbers (None: the most common width), and sketches."""
    most = options[protocol.NUM_CENTROIDS]
    found = conversation.query(
        protocol.SIGNATURE,
        lambda answer: (_read_centroids(answer, most, width), _sketch(answer)),
        content,
        options,
        clients=clients,
    )
    widths = {client: centroids.shape[1] for client, (centroids, _) in found.items()}
    similar = conversation.exclude_uncommon_sizes(protocol.SIGNATURE, widths, _WIDTH)
    return {client: found[client] for client in similar}


def _sketch(content: RecordDict) -> list[float]:
    """Return a client's sketch, which only that client reads; empty if it is invalid."""
    found = protocol.numbers(content, protocol.IMAGE_SKETCH)
    whole = len(found) == protocol.SKETCH_SIZE and np.isfinite(found).all()
    return found if whole else []


def _read_centroids(content: RecordDict, most: int, width: int | None) -> Float32:
    rows = protocol.array_in(content, protocol.CENTROIDS)
    if rows.ndim != 2 or not 1 <= rows.shape[0] <= most or not rows.shape[1]:
        raise ValueError(f"its centroids have shape {rows.shape}, not (1 to {most}, e)")
    if width is not None and rows.shape[1] != width:
        raise ValueError(f"{_WIDTH.format(rows.shape[1])}, the others' {width}")
    if rows.dtype.kind != "f" or not (np.abs(rows) < _LARGEST).all():  # NaN fails as well
        raise ValueError(f"its centroids are not all numbers below {_LARGEST:g}")
    return rows.astype(np.float32)
