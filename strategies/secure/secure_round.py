"""Secure aggregation, the server's side: it learns the sum of a cluster's updates, and no update.

Bonawitz et al., CCS 2017, for a server that keeps to the protocol (fl_core.wire.masking). Before a
round's training, a cluster's participants send public keys, then shares of their two secrets, which
only the client that a share is for can read. What they train comes back masked. Afterwards those
whose update came reveal one share of each secret that is needed to take the masks off the sum.
Whoever spoils sums is found and left out (strategies.secure.spoilers).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecordValues, RecordDict

from fl_core.text import one_line
from fl_core.wire import masking, protocol
from fl_core.wire.masking import SpoiltError, Total, Words
from fl_core.wire.protocol import NDArrays
from strategies.aggregations.aggregation import Aggregation, ClusterMean
from strategies.clusterings.clustering import Clustering, OwnCluster
from strategies.engine.conversation import Conversation
from strategies.engine.replies import read_answers
from strategies.engine.rounds import Clusters
from strategies.secure.secure_group import (
    Group,
    read_array,
    read_keys,
    senders_of_repeated,
    together,
)
from strategies.secure.spoilers import FEWEST_SEARCHED, Fault, Outcome, Spoilers

logger = logging.getLogger(__name__)

Reading = TypeVar("Reading")


def why_not(clustering: type[Clustering], aggregation: type[Aggregation]) -> str | None:
    """Say why these parts need to see single updates; None if they do not."""
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


class SecureRound:
    """One round's secure sums: one for each cluster, or for each part of one.

    Parameters
    ----------
    conversation : Conversation
    clusters : Clusters
    weighted : bool
        Whether clients count by their number of samples.
    timeout : float
        Seconds to wait for the answers to each query.
    spoilers : Spoilers
        What earlier rounds have told of the clients; who is left out is not asked to begin with.
    """

    def __init__(
        self,
        conversation: Conversation,
        clusters: Clusters,
        weighted: bool,
        timeout: float,
        spoilers: Spoilers,
    ) -> None:
        self._conversation = conversation
        self._clusters = clusters
        self._weighted = weighted
        self._timeout = timeout
        self._spoilers = spoilers
        self._known = set(spoilers.left_out)
        self._groups: list[Group] = []
        self._group_of: dict[int, Group] = {}

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
            if self._enough(cluster, members, len(members), masking.FEWEST, "take part")
            for client in members
        ]
        keys = self._ask(protocol.PUBLIC_KEYS, chosen, lambda _: RecordDict(), read_keys)
        for client in senders_of_repeated(keys):  # all others would refuse them
            del keys[client]
            reason = "another client sent one of its keys, too"
            self._conversation.warn(client, protocol.PUBLIC_KEYS, reason)
        for cluster, members in self._by_cluster(keys).items():
            if self._enough(cluster, members, len(members), masking.FEWEST, "sent keys"):
                for part in self._spoilers.parts_of(cluster, members):
                    names = [self._conversation.roster.name_of(client) for client in part]
                    self._groups.append(
                        Group(cluster, part, names, np.stack([keys[c] for c in part]))
                    )
        self._group_of = {client: group for group in self._groups for client in group.members}
        self._share()
        return sorted(group.members[place] for group in self._groups for place in group.shares)

    def told(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return with whom a client's update is to be summed."""
        group = self._group_of[client]
        return {protocol.PEERS: sorted(group.shares), protocol.WEIGHTED: self._weighted}

    def read(self, client: int, model: NDArrays, content: RecordDict) -> Words:
        """Return the masked update of a client that was sent `model`.

        Raises
        ------
        ValueError
            If it cannot be one.
        """
        try:
            if protocol.MASKED not in content.array_records.get(protocol.ARRAYS, ArrayRecord()):
                raise ValueError(
                    "its update is not masked: its ClientApp needs the mod "
                    "clients.secure_aggregation.mask_mod"
                )
            return read_array(content, protocol.MASKED, (masking.size_of(model),), np.uint64)
        except Exception as error:  # bytes from the network may be anything
            self._spoilers.blame(client, one_line(str(error)))
            raise

    def unmask(self, masked: Mapping[int, Words], models: Sequence[NDArrays]) -> dict[int, Total]:
        """Return each cluster's sum; a cluster none of whose masks can be taken off has none.

        Parameters
        ----------
        masked : mapping of arrays
            From client to its masked update.
        models : sequence of dicts
            What the clients of each cluster were sent.
        """
        there: dict[Group, list[int]] = {}
        read: dict[int, list[frozenset[int]]] = {}
        for group in self._groups:
            places = [p for p in sorted(group.shares) if group.members[p] in masked]
            told = (group.cluster, group.members, len(places), group.threshold, "sent an update")
            if not self._enough(*told):
                continue
            clients, beside = group.at(places), read.setdefault(group.cluster, [])
            if self._spoilers.hides(group.cluster, clients, beside):
                there[group] = places
                beside.append(clients)
            else:
                reason = "beside a sum that came to nothing, theirs would tell an update"
                self._lost(group.cluster, group.members, f"{reason} of who was, or is, away")
        revealed = self._reveal(there)
        sums: dict[int, list[tuple[Group, Total | None]]] = {}
        for group, places in there.items():
            updates = [masked[group.members[place]] for place in places]
            total = None
            try:
                secrets = self._secrets(group, places, revealed)
                self._spoilers.note(group.cluster, group.at(places))
                summed = group.unmasked(places, secrets, updates)
                most = masking.heaviest(len(group.members)) if self._weighted else 1
                total = masking.from_words(summed, models[group.cluster], len(places), most)
            except ValueError as error:
                self._lost(group.cluster, group.members, str(error))
                if not isinstance(error, SpoiltError):
                    continue  # too few were left, which is nobody's fault
            sums.setdefault(group.cluster, []).append((group, total))
        totals = {}
        for cluster, found in sorted(sums.items()):
            if right := self._right(cluster, found, models[cluster]):
                totals[cluster] = together(right)
                self._spoilers.move(cluster)
        for client in sorted(self._spoilers.left_out.keys() - self._known):
            logger.warning(
                "%s takes part in no secure sum of this run any more: %s",
                *(self._conversation.roster.name_of(client), self._spoilers.left_out[client]),
            )
        return totals

    def _right(
        self, cluster: int, sums: Sequence[tuple[Group, Total | None]], sent: NDArrays
    ) -> list[Total]:
        """Return a cluster's sums that count, and learn from those that are not right.

        If all are too long, they count with the usual length: were the model kept, the same updates
        would come again, and be summed over whoever is there then.
        """
        spoilers = self._spoilers
        searched = spoilers.searches(cluster)
        lengths = [None if total is None else total.length for _, total in sums]
        faults = spoilers.faults(cluster, lengths)
        long: list[tuple[Group, Total]] = []
        right: list[tuple[Group, Total]] = []
        for (group, total), fault in zip(sums, faults, strict=True):
            if total is not None:
                (long if fault is Fault.LONG else right).append((group, total))
        outcomes = [
            Outcome(group.clients, fault) for (group, _), fault in zip(sums, faults, strict=True)
        ]
        # Sums that are all too long say what is usual, too: all may be as long from now on.
        known = [total.length for _, total in right or long]
        far_off = "their mean update is many times as long as usual: one of them is far off"
        if right:
            for group, _ in long:
                self._lost(cluster, group.members, far_off)
        elif long:
            now = self._conversation.server_round
            logger.warning("cluster %d counts with less in round %d: %s", cluster, now, far_off)
            usual = spoilers.usual(cluster)
            right = [(group, masking.shortened(total, sent, usual)) for group, total in long]
        spoilers.learn(cluster, outcomes, known)
        if spoilers.searches(cluster) and not searched:
            clients = sum(len(group.members) for group, _ in sums)
            logger.warning(
                "cluster %d has a client that spoils sums, and it cannot be told which: %s",
                *(cluster, _what_follows(clients)),
            )
        return [total for _, total in right]

    def _reveal(self, there: Mapping[Group, Sequence[int]]) -> dict[int, masking.Bytes]:
        """Ask those whose update came for their shares, and return them by client."""

        def content_of(client: int) -> RecordDict:
            group = self._group_of[client]
            place = group.members.index(client)
            ciphertexts = np.zeros((len(group.members), masking.CIPHERTEXT_BYTES), np.uint8)
            for owner, own in group.shares.items():
                ciphertexts[owner] = own[place]
            gone = sorted(group.shares.keys() - set(there[group]))
            return protocol.with_arrays(
                {
                    protocol.SHARES: ciphertexts,
                    protocol.SURVIVORS: np.array(there[group], np.int64),
                    protocol.DROPPED: np.array(gone, np.int64),
                }
            )

        def read(client: int, content: RecordDict) -> masking.Bytes:
            shape = (len(self._group_of[client].members), masking.SHARE_BYTES)
            return read_array(content, protocol.SHARES, shape, np.uint8)

        asked = [group.members[p] for group, places in there.items() for p in places]
        return self._ask(protocol.UNMASK, sorted(asked), content_of, read)

    def _share(self) -> None:
        """Let the clients of each group exchange shares of their secrets."""

        def content_of(client: int) -> RecordDict:
            return protocol.with_arrays({protocol.KEYS: self._group_of[client].keys})

        def read(client: int, content: RecordDict) -> tuple[masking.Bytes, masking.Bytes]:
            count = len(self._group_of[client].members)
            return (
                read_array(content, protocol.SHARES, (count, masking.CIPHERTEXT_BYTES), np.uint8),
                read_array(content, protocol.DIGESTS, (2, count, masking.DIGEST_BYTES), np.uint8),
            )

        asked = sorted(self._group_of)
        for client, both in self._ask(protocol.SHARE_KEYS, asked, content_of, read).items():
            group = self._group_of[client]
            place = group.members.index(client)
            group.shares[place], group.digests[place] = both
        self._groups = [
            group
            for group in self._groups
            if self._enough(
                group.cluster, group.members, len(group.shares), group.threshold, "sent shares"
            )
        ]

    def _secrets(
        self, group: Group, there: Sequence[int], answers: Mapping[int, masking.Bytes]
    ) -> dict[int, bytes]:
        """Return, from place, the seed of each client that is there, and the key of the others.

        Whoever must have lied about them is left out of further sums.

        Raises
        ------
        ValueError
            If one cannot be had: whose, and why.
        """
        revealed = {p: answers[c] for p, c in enumerate(group.members) if c in answers}
        unfit = group.unfit(there, revealed)
        at_fault = group.at_fault(unfit)
        for place, reason in at_fault.items():
            self._spoilers.blame(group.members[place], reason)
        between: dict[tuple[int, str], list[str]] = {}
        for (owner, holder), wrong in unfit.items():
            if not {owner, holder} & at_fault.keys():
                between.setdefault((holder, wrong), []).append(group.names[owner])
        for (holder, wrong), owners in between.items():
            reason = (
                f"its shares of {', '.join(owners)} {wrong} and are left out; either side may be "
                "at fault"
            )
            self._conversation.warn(group.members[holder], protocol.UNMASK, reason)
        secrets, liars = group.secrets(there, revealed, unfit)
        for place in liars:
            self._spoilers.blame(group.members[place], "it shared something else than its secret")
        if liars:
            names = ", ".join(group.names[place] for place in liars)
            raise SpoiltError(f"{names} shared something else than a secret")
        return secrets

    def _ask(
        self,
        action: str,
        clients: Sequence[int],
        content_of: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
    ) -> dict[int, Reading]:
        """Read each client's answer by `read`; one at which it fails is left out."""
        if not clients:
            return {}
        answers = self._conversation.ask(
            action, content_of, clients=clients, for_training=True, timeout=self._timeout
        )
        failures: dict[int, str] = {}
        found = read_answers(answers, failures, read)
        for client, reason in failures.items():
            self._conversation.warn(client, action, reason)
            self._spoilers.blame(client, reason)
        return found

    def _by_cluster(self, clients: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for client in clients:
            found.setdefault(self._clusters.of_client[client], []).append(client)
        return dict(sorted(found.items()))

    def _enough(
        self, cluster: int, clients: Sequence[int], number: int, least: int, did: str
    ) -> bool:
        if number < least:
            self._lost(cluster, clients, f"{number} of its clients {did}, and it takes {least}")
        return number >= least

    def _lost(self, cluster: int, clients: Sequence[int], reason: str) -> None:
        """Say that there is no sum over some clients of a cluster, or over all of it."""
        parts = sum(group.cluster == cluster for group in self._groups)
        now = self._conversation.server_round
        if parts < 2:
            logger.warning("cluster %d keeps its model in round %d: %s", cluster, now, reason)
            return
        names = ", ".join(self._conversation.roster.name_of(client) for client in sorted(clients))
        logger.warning(
            "cluster %d goes without its part %s in round %d: %s", cluster, names, now, reason
        )


def _what_follows(clients: int) -> str:
    if clients >= FEWEST_SEARCHED:
        return "it is searched for by sums over parts of the cluster"
    return (
        f"{clients} clients are too few to search for it, which takes {FEWEST_SEARCHED}; choose "
        "fewer clusters, or set secure-aggregation to false"
    )
