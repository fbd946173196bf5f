"""The clients of one secure sum: what the server keeps of a round's keys and shares, and the sum.

Values and maths only; `strategies.secure.secure_round` asks for what is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fl_core.flower.keys import bytes_to_public_key, public_key_to_bytes
from fl_core.wire import masking, protocol
from fl_core.wire.masking import SpoiltError, Total, Words
from fl_core.wire.shares import combine_shares
from strategies.engine.means import mean_model

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(eq=False)
class Group:
    """Clients that are summed, in the order in which they know each other: their places.

    Attributes
    ----------
    cluster : int
        Theirs.
    members : list of int
        Client indices.
    names : list of str
        What to call them.
    keys : array of uint8, shape (n, 2, bytes)
        Everybody's public keys: for masks, and for shares.
    shares : dict of arrays, shape (n, bytes)
        From a place to the encrypted shares of its secrets, one for each place.
    digests : dict of arrays, shape (2, n, bytes)
        And to the digests of its shares: of its seed, and of its key.
    """

    cluster: int
    members: list[int]
    names: list[str]
    keys: masking.Bytes
    shares: dict[int, masking.Bytes] = field(default_factory=dict)
    digests: dict[int, masking.Bytes] = field(default_factory=dict)

    @property
    def clients(self) -> frozenset[int]:
        """Return who can have spoilt the sum: whoever sent shares."""
        return self.at([*self.shares])

    def at(self, places: Sequence[int]) -> frozenset[int]:
        """Return the clients at these places."""
        return frozenset(self.members[place] for place in places)

    @property
    def threshold(self) -> int:
        """Return how many must be left at the end."""
        return masking.threshold(len(self.members))

    def unfit(
        self, there: Sequence[int], revealed: Mapping[int, masking.Bytes]
    ) -> dict[tuple[int, int], str]:
        """Return which shares are not what was announced: by owner and holder, what is wrong.

        Parameters
        ----------
        there : sequence of int
            The places whose update came: their seeds are revealed, and the others' keys.
        revealed : mapping of arrays, shape (n, bytes)
            From a place to its shares.
        """
        found = {}
        for owner in self.shares:
            known = self.digests[owner][0 if owner in there else 1]
            for holder, rows in revealed.items():
                share = rows[owner].tobytes()
                if masking.digest(share) != known[holder].tobytes():
                    found[owner, holder] = (
                        "are not what was announced" if any(share) else "could not be read"
                    )
        return found

    def at_fault(self, unfit: Mapping[tuple[int, int], str]) -> dict[int, str]:
        """Return the places that are at fault for unfit shares, and why.

        Either side of a pair may be. But whoever does not fit itself is; and so is who, these
        apart, does not fit three others and more than half of them: most are honest, if not in
        each part of a cluster.
        """
        certain = {owner for owner, holder in unfit if owner == holder}
        others: dict[int, set[int]] = {}
        for pair in unfit:
            if certain.isdisjoint(pair):
                owner, holder = pair
                others.setdefault(owner, set()).add(holder)
                others.setdefault(holder, set()).add(owner)
        most = max(masking.FEWEST - 1, (len(self.shares) - 1) // 2)
        outvoted = {place for place, partners in others.items() if len(partners) > most}
        reason = "its secrets' shares are not what was announced"
        return dict.fromkeys(sorted(certain | outvoted), reason)

    def secrets(
        self,
        there: Sequence[int],
        revealed: Mapping[int, masking.Bytes],
        unfit: Mapping[tuple[int, int], str],
    ) -> tuple[dict[int, bytes], list[int]]:
        """Return the seed of each place that is there, the key of the others, and who lied.

        Of who has lied, shares that fit do not make a secret.

        Parameters
        ----------
        there, revealed
            As in `unfit`.
        unfit : mapping
            What that returns.

        Raises
        ------
        SpoiltError, ValueError
            If one cannot be had: whose, and why; ValueError if too few have answered.
        """
        found, liars = {}, []
        for owner in self.shares:
            fit = [
                rows[owner].tobytes()
                for holder, rows in revealed.items()
                if (owner, holder) not in unfit
            ]
            if len(fit) < self.threshold:
                reason = (
                    f"of {self.names[owner]}'s secret {len(fit)} fitting shares came back, and it "
                    f"takes {self.threshold}"
                )
                enough = len(revealed) >= self.threshold
                raise SpoiltError(reason) if enough else ValueError(reason)
            try:
                found[owner] = combine_shares(fit[: self.threshold])
                _check_secret(found[owner], None if owner in there else self.keys[owner, 0])
            except ValueError:
                liars.append(owner)
        return found, liars

    def unmasked(
        self, there: Sequence[int], secrets: Mapping[int, bytes], updates: Sequence[Words]
    ) -> Words:
        """Return the sum of updates without their masks.

        Parameters
        ----------
        there : sequence of int
            The places whose masked `updates` came.
        secrets : mapping of bytes
            From a place that is there to its seed, from one that is not to its key.
        updates : sequence of arrays of uint64
        """
        summed = np.zeros_like(updates[0])
        for words in updates:
            summed += words
        publics = {p: bytes_to_public_key(self.keys[p, 0].tobytes()) for p in there}
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


def together(totals: Sequence[Total]) -> Total:
    """Return the sum of sums."""
    if len(totals) == 1:
        return totals[0]
    clients = sum(total.num_clients for total in totals)
    losses = [total.loss * total.num_clients for total in totals if total.loss is not None]
    weights = [total.weight for total in totals]
    return Total(
        mean_model([total.model for total in totals], weights),
        clients,
        sum(losses) / clients if len(losses) == len(totals) else None,
        sum(weights),
        max(total.length for total in totals),
    )


def read_keys(client: int, content: RecordDict) -> masking.Bytes:
    """Return a client's two public keys, uint8 of shape (2, bytes).

    Raises
    ------
    ValueError
        If they are none of ours.
    """
    keys = read_array(content, protocol.KEYS, (2, masking.PUBLIC_KEY_BYTES), np.uint8)
    for key in keys:
        if not masking.is_public_key(key.tobytes()):
            raise ValueError("its keys are none of ours")
    if np.array_equal(*keys):
        raise ValueError("its two keys are the same")
    return keys


def senders_of_repeated(keys: Mapping[int, masking.Bytes]) -> list[int]:
    """Return the clients with a key that another sent, too."""
    sent = Counter(key.tobytes() for pair in keys.values() for key in pair)
    return [c for c, pair in keys.items() if any(sent[key.tobytes()] > 1 for key in pair)]


def read_array(
    content: RecordDict, name: str, shape: tuple[int, ...], kind: type[Scalar]
) -> NDArray[Scalar]:
    """Return an array of a client's answer.

    Raises
    ------
    ValueError
        If it is not there, or of another shape or type.
    """
    record = content.array_records.get(protocol.ARRAYS, ArrayRecord())
    if name not in record:
        raise ValueError(f"its answer has no {name}")
    array: NDArray[Scalar] = record[name].numpy()
    if array.shape != shape or array.dtype != kind:
        raise ValueError(
            f"its {name} are {array.dtype} of shape {array.shape}, not {np.dtype(kind)} of {shape}"
        )
    return array
