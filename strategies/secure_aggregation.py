"""The server's side of secure aggregation: it learns the sum of a cluster's updates, and no update.

Bonawitz et al., CCS 2017, for a server that follows the protocol (fl_core.masking). A cluster's
participants send public keys, then encrypted shares of their two secrets, then masked models. The
clients with an update reveal one share of each secret that is needed to unmask the sum.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from fl_core import masking
from fl_core.flower.keys import bytes_to_public_key, public_key_to_bytes
from fl_core.masking import CorruptedSumError, Total, Words
from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.secret_shares import combine_shares
from fl_core.text import one_line
from strategies.aggregations.aggregation import Aggregation, ClusterMean
from strategies.clusterings.clustering import Clustering, ClusterPerClient
from strategies.rounds.ask import Reading
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters

logger = logging.getLogger(__name__)

Scalar = TypeVar("Scalar", bound=np.generic)

MOST_FAILURES = 3
"""So many sums of a cluster may fail in a row before the run ends."""

MOST_TIMES = 4.0
"""How many times as long as usual a cluster's mean update may be."""


def why_not(clustering: type[Clustering], aggregation: type[Aggregation]) -> str | None:
    """Return why these parts need to see single updates; None if they do not."""
    if aggregation is not ClusterMean:
        return f"the aggregation {aggregation.name} needs each client's model"
    if clustering.after_training is not Clustering.after_training:
        return f"the clustering {clustering.name} looks at each client's model"
    if clustering is ClusterPerClient:
        return "the sum over a single client's cluster is its model"
    return None


@dataclass(eq=False)
class ClusterSum:
    """The sum over one cluster in one round; clients know each other by their positions in it."""

    cluster: int
    members: list[int]  # client indices
    names: list[str]  # in messages
    # Each member's public keys, for masks and for shares, uint8, shape (n, 2, bytes)
    keys: masking.Bytes
    # Encrypted, of a position's secrets, one for each position: shape (n, bytes)
    shares: dict[int, masking.Bytes] = field(default_factory=dict)
    # Of a position's shares, of its seed and of its key: shape (2, n, bytes)
    digests: dict[int, masking.Bytes] = field(default_factory=dict)
    # Masked, by position: of these the seed is revealed, of the others the key
    updates: dict[int, Words] = field(default_factory=dict)
    # The shares that a position revealed, one of each position's secrets
    revealed: dict[int, masking.Bytes] = field(default_factory=dict)

    @property
    def threshold(self) -> int:
        """Return how many clients must answer in the end."""
        return masking.threshold(len(self.members))

    @property
    def summed(self) -> set[int]:
        """Return the clients with an update in the sum."""
        return {self.members[position] for position in self.updates}

    def named(self, positions: Iterable[int]) -> str:
        """Return the names of the clients at some positions."""
        return ", ".join(self.names[position] for position in positions)

    def keys_for(self, position: int) -> RecordDict:
        """Return what a client needs to share its secrets: the keys of all."""
        return protocol.with_arrays({protocol.KEYS: self.keys})

    def read_shares(self, position: int, content: RecordDict) -> None:
        """Store the encrypted shares of a client's secrets, or raise a ValueError."""
        count = len(self.members)
        ciphertexts, digests = (count, masking.CIPHERTEXT_BYTES), (2, count, masking.DIGEST_BYTES)
        self.digests[position] = _read_array(content, protocol.DIGESTS, digests, np.uint8)
        self.shares[position] = _read_array(content, protocol.SHARES, ciphertexts, np.uint8)

    def ciphertexts_for(self, position: int) -> RecordDict:
        """Return what a client needs to reveal shares: ciphertexts for it, and which secrets."""
        ciphertexts = np.zeros((len(self.members), masking.CIPHERTEXT_BYTES), np.uint8)
        for owner, rows in self.shares.items():
            ciphertexts[owner] = rows[position]
        return protocol.with_arrays(
            {
                protocol.SHARES: ciphertexts,
                protocol.SURVIVORS: np.array(list(self.updates), np.int64),
                protocol.DROPPED: np.array(sorted(self.shares.keys() - self.updates), np.int64),
            }
        )

    def read_revealed(self, position: int, content: RecordDict) -> None:
        """Store the shares that a client reveals, or raise a ValueError."""
        shape = (len(self.members), masking.SHARE_BYTES)
        self.revealed[position] = _read_array(content, protocol.SHARES, shape, np.uint8)

    def mismatched_shares(self) -> set[tuple[int, int]]:
        """Return which revealed shares do not match their digests: by owner and holder."""
        unfit = set()
        for owner in self.shares:
            announced = self.digests[owner][0 if owner in self.updates else 1]
            for holder, rows in self.revealed.items():
                if masking.digest(rows[owner].tobytes()) != announced[holder].tobytes():
                    unfit.add((owner, holder))
        return unfit

    def at_fault(self, unfit: Iterable[tuple[int, int]]) -> set[int]:
        """Return the positions that are certainly at fault for unfit shares.

        Either side of a pair may be; but most clients are honest, so one that is in unfit pairs
        with three clients, and with more than half of them, itself included, is at fault.
        """
        partners = Counter(one for pair in {frozenset(pair) for pair in unfit} for one in pair)
        most = max(masking.FEWEST - 1, (len(self.shares) - 1) // 2)
        return {one for one, number in partners.items() if number > most}

    def secrets(self, unfit: Container[tuple[int, int]]) -> tuple[dict[int, bytes], list[int]]:
        """Return the seed of each position in the sum, the key of the others, and who lied.

        A CorruptedSumError says that too few shares fit, another ValueError that too few came.
        """
        secrets, liars = {}, []
        for owner in self.shares:
            fit = [
                rows[owner].tobytes()
                for holder, rows in self.revealed.items()
                if (owner, holder) not in unfit
            ]
            if len(fit) < self.threshold:
                reason = (
                    f"of {self.names[owner]}'s secret {len(fit)} valid shares came back, but "
                    f"{self.threshold} are needed"
                )
                enough = len(self.revealed) >= self.threshold
                raise CorruptedSumError(reason) if enough else ValueError(reason)
            key = None if owner in self.updates else self.keys[owner, 0].tobytes()
            try:
                secrets[owner] = _checked_secret(combine_shares(fit[: self.threshold]), key)
            except ValueError:
                liars.append(owner)
        return secrets, liars

    def unmasked(self, secrets: Mapping[int, bytes]) -> Words:
        """Return the sum of the updates without their masks, by the secrets of positions."""
        total = np.zeros_like(next(iter(self.updates.values())))
        for words in self.updates.values():
            total += words
        publics = {p: bytes_to_public_key(self.keys[p, 0].tobytes()) for p in self.updates}
        for position, secret in secrets.items():
            if position in self.updates:
                total -= masking.mask(secret, len(total))
                continue
            private = masking.private_key(secret)
            for other, public in publics.items():
                # What the absent client would have added: it cancels what `other` added.
                common = masking.common_key(private, public)
                masking.add_common_mask(total, common, position, other)
        return total


class SecureAggregation:
    """The secure sums of a training: one over each cluster in each round."""

    def __init__(self, conversation: Conversation, weighted: bool, timeout: float) -> None:
        self.left_out: dict[int, str] = {}  # why clients are excluded from all further sums
        self.has_summed = False  # whether any round had a sum
        self._conversation = conversation
        self._training = conversation.training
        self._weighted = weighted
        self._timeout = timeout
        # This round's sums, and in which of them a client is, and at which position.
        self._sums: list[ClusterSum] = []
        self._position_of: dict[int, tuple[ClusterSum, int]] = {}
        # By cluster: the norms of its mean updates in earlier rounds, how many sums in a row have
        # failed, and over which clients the last one was that could be read, but was not right.
        self._norms: dict[int, list[float]] = {}
        self._failures: Counter[int] = Counter()
        self._rejected: dict[int, set[int]] = {}

    def exchange_keys(self, clusters: Clusters, participants: Sequence[int]) -> list[int]:
        """Let participants exchange keys and shares, and return those that may train.

        If no cluster has three clients, a RuntimeError ends the run.
        """
        if max(np.bincount(list(clusters.of_client.values()))) < masking.FEWEST:
            raise RuntimeError(
                f"secure-aggregation is on, but no cluster has {masking.FEWEST} clients, and the "
                "sum over fewer hides no model: choose fewer clusters, or turn it off."
            )
        chosen = [
            client
            for cluster, members in _by_cluster(clusters, participants).items()
            if self._enough(cluster, len(members), masking.FEWEST, "take part")
            for client in members
        ]
        keys = self._ask(protocol.PUBLIC_KEYS, chosen, lambda _: RecordDict(), _read_keys)
        sent = Counter(key.tobytes() for pair in keys.values() for key in pair)
        for client, pair in list(keys.items()):
            if any(sent[key.tobytes()] > 1 for key in pair):  # all others would refuse them
                del keys[client]
                reason = {client: "another client sent one of its keys, too"}
                self._training.record_failures(reason, protocol.PUBLIC_KEYS)
        self._sums = [
            ClusterSum(
                cluster,
                members,
                [self._training.registry.name_of(client) for client in members],
                np.stack([keys[client] for client in members]),
            )
            for cluster, members in _by_cluster(clusters, keys).items()
            if self._enough(cluster, len(members), masking.FEWEST, "sent keys")
        ]
        self._position_of = {
            client: (one, position)
            for one in self._sums
            for position, client in enumerate(one.members)
        }
        self._ask_members(
            protocol.SHARE_KEYS, self._position_of, ClusterSum.keys_for, ClusterSum.read_shares
        )
        self._sums = [
            one
            for one in self._sums
            if self._enough(one.cluster, len(one.shares), one.threshold, "sent shares")
        ]
        return sorted(one.members[position] for one in self._sums for position in one.shares)

    def config_for(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return the peers of a client's update, and how it is weighted."""
        one, _ = self._position_of[client]
        return {protocol.PEERS: sorted(one.shares), protocol.WEIGHTED: self._weighted}

    def read(self, client: int, model: NDArrays, content: RecordDict) -> Words:
        """Return the masked update of a client that was sent `model`, or raise a ValueError."""
        try:
            if protocol.MASKED not in content.array_records.get(protocol.ARRAYS, ArrayRecord()):
                raise ValueError(
                    "its update is not masked: its ClientApp needs the mod "
                    "clients.secure_aggregation.mask_mod"
                )
            return _read_array(content, protocol.MASKED, (masking.num_words(model),), np.uint64)
        except Exception as error:  # bytes from the network may be anything
            self._leave_out(client, one_line(str(error)))
            raise

    def unmask(self, masked: Mapping[int, Words], models: Sequence[NDArrays]) -> dict[int, Total]:
        """Return the sum of each cluster's updates, by client, as far as it can be unmasked."""
        for client, words in sorted(masked.items()):
            one, position = self._position_of[client]
            one.updates[position] = words
        self._sums = [
            one
            for one in self._sums
            if self._enough(one.cluster, len(one.updates), one.threshold, "sent an update")
            and self._reveals_no_more(one)
        ]
        asked = [client for one in self._sums for client in one.summed]
        self._ask_members(
            protocol.UNMASK, asked, ClusterSum.ciphertexts_for, ClusterSum.read_revealed
        )
        totals = {}
        for one in self._sums:
            num_blamed = len(self.left_out)
            try:
                totals[one.cluster] = self._total(one, models[one.cluster])
            except ValueError as error:
                # That too few have answered is no fault.
                if isinstance(error, CorruptedSumError) and len(self.left_out) == num_blamed:
                    self._fail(one, str(error))
                else:
                    self._log_lost(one.cluster, str(error))
        self.has_summed |= bool(totals)
        return totals

    def _reveals_no_more(self, one: ClusterSum) -> bool:
        """Return whether a sum is safe beside the last rejected one of the same model.

        Clients may send the same updates again until the model changes. Two sums over different
        clients would then differ by the updates of those in only one of them.
        """
        before = self._rejected.get(one.cluster, one.summed) - self.left_out.keys()
        if before != one.summed:
            reason = "the last sum was over other clients, and both may show a single update"
            self._fail(one, reason)
        return before == one.summed

    def _total(self, one: ClusterSum, model: NDArrays) -> Total:
        """Return a valid sum, with a bounded norm."""
        words = one.unmasked(self._secrets(one))
        most = masking.max_weight(len(one.members)) if self._weighted else 1
        try:
            total = masking.decode_sum(words, model, len(one.updates), most)
        except CorruptedSumError:
            self._rejected[one.cluster] = one.summed
            raise
        self._rejected.pop(one.cluster, None)
        del self._failures[one.cluster]
        norms = self._norms.setdefault(one.cluster, [])
        bounded = bounded_norm(total, norms, model)
        if bounded is not total:
            logger.warning(
                "the sum over cluster %d counts with the usual norm in round %d: its norm is more "
                "than %g times as large, so one of its clients may be far off",
                *(one.cluster, self._training.round, MOST_TIMES),
            )
        return bounded

    def _secrets(self, one: ClusterSum) -> dict[int, bytes]:
        """Return the secrets of a sum, and exclude clients that must have lied about them."""
        unfit = one.mismatched_shares()
        at_fault = one.at_fault(unfit)
        for position in sorted(at_fault):
            reason = "its secrets' shares are not what was announced"
            self._leave_out(one.members[position], reason)
        doubtful = sorted(pair for pair in unfit if at_fault.isdisjoint(pair))
        for holder in sorted({holder for _, holder in doubtful}):
            owners = one.named(owner for owner, other in doubtful if other == holder)
            reason = (
                f"its shares of {owners} are not what was announced and are left out; either side "
                "may be at fault"
            )
            self._training.record_failures({one.members[holder]: reason}, protocol.UNMASK)
        secrets, liars = one.secrets(unfit)
        for position in liars:
            self._leave_out(one.members[position], "what it shared is not its secret")
        if liars:
            raise CorruptedSumError(f"{one.named(liars)} shared what is not a secret")
        return secrets

    def _ask_members(
        self,
        action: str,
        clients: Iterable[int],
        content_for: Callable[[ClusterSum, int], RecordDict],
        read: Callable[[ClusterSum, int, RecordDict], None],
    ) -> None:
        """Ask clients by their positions in this round's sums."""
        self._ask(
            action,
            sorted(clients),
            lambda client: content_for(*self._position_of[client]),
            lambda client, content: read(*self._position_of[client], content),
        )

    def _ask(
        self,
        action: str,
        clients: Sequence[int],
        content_for: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
    ) -> dict[int, Reading]:
        """Return what is read of each client's answer; exclude clients with unreadable ones."""
        if not clients:
            return {}
        nodes = {client: self._conversation.nodes[client] for client in clients}
        answers = self._conversation.ask(
            action,
            nodes,
            content_for,
            read,
            traffic=self._training.train_traffic,
            timeout=self._timeout,
        )
        self._training.record_failures(answers.failures, action)
        for client in sorted(answers.unreadable):
            self._leave_out(client, answers.failures[client])
        return answers.values

    def _leave_out(self, client: int, reason: str) -> None:
        """Exclude a client that has sent something impossible from all further sums."""
        if client not in self.left_out:
            self.left_out[client] = reason
            name = self._training.registry.name_of(client)
            logger.warning("%s takes part in no secure sum of this run any more: %s", name, reason)

    def _fail(self, one: ClusterSum, reason: str) -> None:
        """Log that a sum failed for an unknown reason, and end the run after three in a row."""
        failed = f"the sum over {one.named(one.updates)} failed: {reason}"
        self._log_lost(one.cluster, failed)
        self._failures[one.cluster] += 1
        if self._failures[one.cluster] >= MOST_FAILURES:
            raise RuntimeError(
                f"secure-aggregation is on, and {MOST_FAILURES} sums of cluster {one.cluster} in a "
                f"row have failed. {failed[0].upper()}{failed[1:]}. Masks hide which of them is at "
                "fault: leave out clients that you do not trust, or set secure-aggregation to "
                "false, so that each client's model is checked."
            )

    def _enough(self, cluster: int, number: int, least: int, did: str) -> bool:
        if number < least:
            self._log_lost(cluster, f"{number} of its clients {did}, but {least} are needed")
        return number >= least

    def _log_lost(self, cluster: int, reason: str) -> None:
        now = self._training.round
        logger.warning("cluster %d keeps its model in round %d: %s", cluster, now, reason)


def bounded_norm(total: Total, norms: list[float], model: NDArrays) -> Total:
    """Return a sum; scaled to the usual norm, the median of `norms`, if it is far larger.

    It is added to `norms`, at most as the largest allowed one: updates may grow, but no single
    round decides that. `model` is what the cluster's clients were sent.
    """
    usual = float(np.median(norms)) if norms else 0.0
    most = MOST_TIMES * usual or np.inf
    norms.append(min(total.norm, most))
    return total if total.norm <= most else masking.scale_to_norm(total, model, usual)


def _by_cluster(clusters: Clusters, clients: Iterable[int]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for client in clients:
        members.setdefault(clusters.of_client[client], []).append(client)
    return dict(sorted(members.items()))


def _checked_secret(secret: bytes, key: bytes | None) -> bytes:
    """Return a secret; a ValueError says that its length is wrong, or it is not that of a key."""
    is_secret = len(secret) == masking.SECRET_BYTES
    if is_secret and key is not None:
        is_secret = public_key_to_bytes(masking.private_key(secret).public_key()) == key
    if not is_secret:
        raise ValueError("what was shared is no secret")
    return secret


def _read_keys(client: int, content: RecordDict) -> masking.Bytes:
    """Return a client's two public keys, shape (2, bytes), or raise a ValueError."""
    keys = _read_array(content, protocol.KEYS, (2, masking.PUBLIC_KEY_BYTES), np.uint8)
    for key in keys:
        if not masking.is_public_key(key.tobytes()):
            raise ValueError("its keys are of an unsupported type")
    if np.array_equal(*keys):
        raise ValueError("its two keys are the same")
    return keys


def _read_array(
    content: RecordDict, name: str, shape: tuple[int, ...], kind: type[Scalar]
) -> NDArray[Scalar]:
    """Return an array of a client's answer, or raise a ValueError if its form is another."""
    array: NDArray[Scalar] = protocol.array_in(content, name)
    if array.shape != shape or array.dtype != kind:
        raise ValueError(
            f"its {name} are {array.dtype} of shape {array.shape}, not {np.dtype(kind)} of {shape}"
        )
    return array
