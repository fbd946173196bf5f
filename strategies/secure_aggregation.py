"""Secure aggregation, the server's side: it learns the sum of a cluster's updates, and no update.

Bonawitz et al., CCS 2017, for a server that keeps to the protocol (fl_core.masking). Before a
round's training, a cluster's participants send public keys, then shares of their two secrets, which
only the client that a share is for can read. What they train comes back masked. Afterwards those
whose update came reveal one share of each secret that is needed to take the masks off the sum.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecordValues, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes
from numpy.typing import NDArray

from fl_core import masking, protocol
from fl_core.masking import Total, Words
from fl_core.protocol import NDArrays
from strategies.aggregation import Aggregation, ClusterMean
from strategies.clustering import Clustering, OwnCluster
from strategies.conversation import Conversation
from strategies.rounds import Clusters

logger = logging.getLogger(__name__)

Reading = TypeVar("Reading")
Kind = TypeVar("Kind", bound=np.generic)


def why_not(clustering: type[Clustering], aggregation: type[Aggregation]) -> str | None:
    """Return what keeps these parts from an aggregation that shows no single update, or None."""
    if aggregation is not ClusterMean:
        return f"the aggregation {aggregation.name} needs each client's model"
    if clustering.after_training is not Clustering.after_training:
        return f"the clustering {clustering.name} looks at each client's model"
    if clustering is OwnCluster:
        return "the sum over a single client's cluster is its model"
    return None


def check_fraction(fraction: float, num_clients: int) -> None:
    """Refuse a share of the clients that is too small for a sum in any round.

    Raises
    ------
    RuntimeError
        If fewer than three train in a round, although there are as many.
    """
    if round(fraction * num_clients) < masking.FEWEST <= num_clients:
        raise RuntimeError(
            f"secure-aggregation is on, but fraction-train is {fraction:g}, which of "
            f"{num_clients} clients is fewer than {masking.FEWEST} in a round, and the sum over "
            "fewer hides no model: choose a larger share, or turn it off."
        )


@dataclass
class Group:
    """The participants of one cluster, in the order in which they know each other: their places.

    Attributes
    ----------
    members : list of int
        Client indices.
    keys : array of uint8, shape (n, 2, bytes)
        Everybody's public keys: for masks, and for shares.
    shares : dict of arrays, shape (n, bytes)
        From a place to the encrypted shares of its secrets, one for each place.
    digests : dict of arrays, shape (2, n, bytes)
        And to the digests of its shares: of its seed, and of its key.
    """

    members: list[int]
    keys: masking.Bytes
    shares: dict[int, masking.Bytes] = field(default_factory=dict)
    digests: dict[int, masking.Bytes] = field(default_factory=dict)

    @property
    def threshold(self) -> int:
        """Return how many must be left at the end."""
        return masking.threshold(len(self.members))


class SecureRound:
    """One round's secure sums, one for each cluster.

    Parameters
    ----------
    conversation : Conversation
    clusters : Clusters
    weighted : bool
        Whether clients count by their number of samples.
    timeout : float
        Seconds to wait for the answers to each query.
    """

    def __init__(
        self, conversation: Conversation, clusters: Clusters, weighted: bool, timeout: float
    ) -> None:
        self._conversation = conversation
        self._clusters = clusters
        self._weighted = weighted
        self._timeout = timeout
        self._groups: dict[int, Group] = {}

    def agree(self, participants: Sequence[int]) -> list[int]:
        """Let participants exchange keys and shares, and return those that may train.

        A cluster with fewer than three that take part does not train.

        Raises
        ------
        RuntimeError
            If no cluster has three clients.
        """
        if max(np.bincount(list(self._clusters.of_client.values()))) < masking.FEWEST:
            raise RuntimeError(
                f"secure-aggregation is on, but no cluster has {masking.FEWEST} clients, and the "
                "sum over fewer hides no model: choose fewer clusters, or turn it off."
            )
        chosen = [
            client
            for cluster, members in self._by_cluster(participants).items()
            if self._enough(cluster, members, masking.FEWEST, "take part")
            for client in members
        ]
        keys = self._ask(protocol.PUBLIC_KEYS, chosen, lambda _: RecordDict(), _read_keys)
        keys = self._without_repeated(keys)
        for cluster, members in self._by_cluster(keys).items():
            if self._enough(cluster, members, masking.FEWEST, "sent keys"):
                self._groups[cluster] = Group(members, np.stack([keys[c] for c in members]))
        self._share()
        return sorted(
            group.members[place] for group in self._groups.values() for place in group.shares
        )

    def told(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return with whom a client's update is to be summed."""
        group = self._group_of(client)
        return {protocol.PEERS: sorted(group.shares), protocol.WEIGHTED: self._weighted}

    def read(self, model: NDArrays, content: RecordDict) -> Words:
        """Return the masked update of a client that was sent `model`.

        Raises
        ------
        ValueError
            If it cannot be one.
        """
        if protocol.MASKED not in content.array_records.get(protocol.ARRAYS, ArrayRecord()):
            raise ValueError(
                "its update is not masked: its ClientApp needs the mod "
                "clients.secure_aggregation.mask_mod"
            )
        return _read_array(content, protocol.MASKED, (masking.size_of(model),), np.uint64)

    def unmask(self, masked: Mapping[int, Words], models: Sequence[NDArrays]) -> dict[int, Total]:
        """Return each cluster's sum; a cluster whose masks cannot be taken off has none.

        Parameters
        ----------
        masked : mapping of arrays
            From client to its masked update.
        models : sequence of dicts
            What the clients of each cluster were sent.
        """
        places = {
            cluster: [p for p in sorted(group.shares) if group.members[p] in masked]
            for cluster, group in self._groups.items()
        }
        places = {
            cluster: there
            for cluster, there in places.items()
            if self._enough(cluster, there, self._groups[cluster].threshold, "sent an update")
        }
        asked = [self._groups[c].members[p] for c, there in places.items() for p in there]

        def content_of(client: int) -> RecordDict:
            group, there = self._group_of(client), places[self._clusters.of_client[client]]
            place = group.members.index(client)
            ciphertexts = np.zeros((len(group.members), masking.CIPHERTEXT_BYTES), np.uint8)
            for owner, own in group.shares.items():
                ciphertexts[owner] = own[place]
            gone = sorted(group.shares.keys() - set(there))
            return protocol.with_arrays(
                {
                    protocol.SHARES: ciphertexts,
                    protocol.SURVIVORS: np.array(there, np.int64),
                    protocol.DROPPED: np.array(gone, np.int64),
                }
            )

        def read(client: int, content: RecordDict) -> masking.Bytes:
            shape = (len(self._group_of(client).members), masking.SHARE_BYTES)
            return _read_array(content, protocol.SHARES, shape, np.uint8)

        revealed = self._ask(protocol.UNMASK, asked, content_of, read)
        totals = {}
        for cluster, there in places.items():
            group = self._groups[cluster]
            updates = [masked[group.members[place]] for place in there]
            try:
                secrets = self._secrets(group, there, revealed)
                summed = unmasked(group, there, secrets, updates)
                most = masking.heaviest(len(group.members)) if self._weighted else 1
                totals[cluster] = masking.from_words(summed, models[cluster], len(there), most)
            except ValueError as error:
                self._lost(cluster, str(error))
        return totals

    def _without_repeated(self, keys: Mapping[int, masking.Bytes]) -> dict[int, masking.Bytes]:
        """Leave out, and name, clients with a key that another sent, too: all would refuse it."""
        sent = Counter(key.tobytes() for pair in keys.values() for key in pair)
        own = {}
        for client, pair in keys.items():
            if all(sent[key.tobytes()] == 1 for key in pair):
                own[client] = pair
            else:
                self._conversation.warn(
                    client, protocol.PUBLIC_KEYS, "another client sent one of its keys, too"
                )
        return own

    def _share(self) -> None:
        """Let the clients of each group exchange shares of their secrets."""

        def content_of(client: int) -> RecordDict:
            return protocol.with_arrays({protocol.KEYS: self._group_of(client).keys})

        def read(client: int, content: RecordDict) -> tuple[masking.Bytes, masking.Bytes]:
            count = len(self._group_of(client).members)
            return (
                _read_array(content, protocol.SHARES, (count, masking.CIPHERTEXT_BYTES), np.uint8),
                _read_array(content, protocol.DIGESTS, (2, count, masking.DIGEST_BYTES), np.uint8),
            )

        asked = [client for group in self._groups.values() for client in group.members]
        for client, both in self._ask(protocol.SHARE_KEYS, asked, content_of, read).items():
            group = self._group_of(client)
            place = group.members.index(client)
            group.shares[place], group.digests[place] = both
        for cluster, group in list(self._groups.items()):
            if not self._enough(cluster, list(group.shares), group.threshold, "sent shares"):
                del self._groups[cluster]

    def _secrets(
        self, group: Group, there: Sequence[int], revealed: Mapping[int, masking.Bytes]
    ) -> dict[int, bytes]:
        """Return, from place, the seed of each client that is there, and the key of the others.

        Raises
        ------
        ValueError
            If one cannot be had: whose, and why.
        """
        names = [self._conversation.roster.name_of(client) for client in group.members]
        answers = {p: revealed[c] for p, c in enumerate(group.members) if c in revealed}
        unfit: dict[tuple[int, str], list[str]] = {}
        secrets = {}
        for owner in group.shares:
            kind = 0 if owner in there else 1
            shares = {place: rows[owner].tobytes() for place, rows in answers.items()}
            known = {p: group.digests[owner][kind, p].tobytes() for p in shares}
            fit = [share for p, share in shares.items() if masking.digest(share) == known[p]]
            if len(fit) < group.threshold:
                raise ValueError(
                    f"of {names[owner]}'s secret {len(fit)} fitting shares came back, and it takes "
                    f"{group.threshold}"
                )
            for place, share in shares.items():
                if masking.digest(share) != known[place]:
                    wrong = "are not what was announced" if any(share) else "could not be read"
                    unfit.setdefault((place, wrong), []).append(names[owner])
            try:
                secrets[owner] = combine_shares(fit[: group.threshold])
                _check_secret(secrets[owner], None if kind == 0 else group.keys[owner, 0])
            except ValueError:
                raise ValueError(f"{names[owner]} shared something else than its secret") from None
        for (place, wrong), owners in unfit.items():
            reason = (
                f"its shares of {', '.join(owners)} {wrong} and are left out; either side may be "
                "at fault"
            )
            self._conversation.warn(group.members[place], protocol.UNMASK, reason)
        return secrets

    def _ask(
        self,
        action: str,
        clients: Sequence[int],
        content_of: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
    ) -> dict[int, Reading]:
        """Return what `read` makes of each client's answer; one at which it fails is named."""
        found: dict[int, Reading] = {}
        if not clients:
            return found
        answers = self._conversation.ask(
            action, content_of, clients=clients, for_training=True, timeout=self._timeout
        )
        for client, content in answers.items():
            try:
                found[client] = read(client, content)
            except Exception as error:  # bytes from the network may be anything
                self._conversation.warn(client, action, str(error))
        return found

    def _by_cluster(self, clients: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for client in clients:
            found.setdefault(self._clusters.of_client[client], []).append(client)
        return dict(sorted(found.items()))

    def _group_of(self, client: int) -> Group:
        return self._groups[self._clusters.of_client[client]]

    def _enough(self, cluster: int, there: Sequence[int], least: int, did: str) -> bool:
        if len(there) < least:
            self._lost(cluster, f"{len(there)} of its clients {did}, and it takes {least}")
        return len(there) >= least

    def _lost(self, cluster: int, reason: str) -> None:
        logger.warning(
            "cluster %d keeps its model in round %d: %s",
            *(cluster, self._conversation.server_round, reason),
        )


def unmasked(
    group: Group, there: Sequence[int], secrets: Mapping[int, bytes], updates: Sequence[Words]
) -> Words:
    """Return the sum of updates without their masks.

    Parameters
    ----------
    group : Group
    there : sequence of int
        The places whose masked `updates` came.
    secrets : mapping of bytes
        From a place that is there to its seed, from one that is not to its key.
    updates : sequence of arrays of uint64
    """
    summed = np.zeros_like(updates[0])
    for words in updates:
        summed += words
    publics = {p: bytes_to_public_key(group.keys[p, 0].tobytes()) for p in there}
    for place, secret in secrets.items():
        if place in there:
            summed -= masking.mask(secret, len(summed))
            continue
        private = masking.private_key(secret)
        for other, public in publics.items():
            # What who is gone would have added: with what `other` added, it cancels.
            masking.add_common_mask(summed, masking.common_key(private, public), place, other)
    return summed


def _check_secret(secret: bytes, key: masking.Bytes | None) -> None:
    if len(secret) != masking.SECRET_BYTES:
        raise ValueError("its length is wrong")
    if key is not None:
        own = public_key_to_bytes(masking.private_key(secret).public_key())
        if own != key.tobytes():
            raise ValueError("it is not that of the public key")


def _read_keys(client: int, content: RecordDict) -> masking.Bytes:
    """Return a client's two public keys."""
    keys = _read_array(content, protocol.KEYS, (2, masking.PUBLIC_KEY_BYTES), np.uint8)
    for key in keys:
        if not masking.is_public_key(key.tobytes()):
            raise ValueError("its keys are none of ours")
    if np.array_equal(*keys):
        raise ValueError("its two keys are the same")
    return keys


def _read_array(
    content: RecordDict, name: str, shape: tuple[int, ...], kind: type[Kind]
) -> NDArray[Kind]:
    record = content.array_records.get(protocol.ARRAYS, ArrayRecord())
    if name not in record:
        raise ValueError(f"its answer has no {name}")
    array: NDArray[Kind] = record[name].numpy()
    if array.shape != shape or array.dtype != kind:
        raise ValueError(
            f"its {name} are {array.dtype} of shape {array.shape}, not {np.dtype(kind)} of {shape}"
        )
    return array
