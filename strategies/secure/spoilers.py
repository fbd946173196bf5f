"""Who spoils secure sums: a mask hides what a client sends, so sums over parts of a cluster tell.

A cluster whose sum was spoilt is summed in random parts from the next round on. Parts that come out
right count as always; who is in spoilt ones more often than chance has it is left out. No paper has
this in just this form; the idea is group testing's (Dorfman, The detection of defective members of
large populations, 1943). docs/robustness.md derives the numbers that are set here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from fl_core.wire.masking import FEWEST
from strategies.secure.repeated_sums import told_by

FEWEST_SEARCHED = 2 * FEWEST
"""Fewer clients cannot be summed in two parts."""

MOST_TIMES = 4.0
"""How many times as long as usual a sum's mean update may be; of honest clients it was up to 2.6
times (benchmarks.secure_liars)."""

CHANCE = 0.01
"""How likely it may be at each look that some honest client of a cluster is left out."""

_PARTS_AT_FIRST = 5

OFTEN_SPOILT = "the secure sums that it was part of were spoilt more often than chance has it"
OFTEN_SHORT = "the secure sums that it was part of were too short more often than chance has it"


class Fault(Enum):
    """What is wrong with a sum."""

    NONE = auto()
    GARBAGE = auto()
    LONG = auto()
    SHORT = auto()
    """It counts: but it makes others, which may be right, look too long."""


class Outcome(NamedTuple):
    """A sum over some clients; if it has a fault, somebody among them is to blame for it."""

    clients: frozenset[int]
    fault: Fault = Fault.NONE


# Where lengths differ too much, either side may lie: each client is suspected of both.
_SPOILS = frozenset({Fault.GARBAGE, Fault.LONG})
_SHORTENS = frozenset({Fault.SHORT})


class Spoilers:
    """What a training's secure sums have told of its clients.

    Parameters
    ----------
    rng : numpy.random.Generator
        Draws the parts. Whoever foresees them can choose in whose company to spoil.

    Attributes
    ----------
    left_out : dict of str
        Why clients take part in no sum any more.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.left_out: dict[int, str] = {}
        self._unmoved: dict[int, list[frozenset[int]]] = {}
        self._rounds: dict[int, list[list[Outcome]]] = {}
        self._usual: dict[int, list[float]] = {}

    def blame(self, client: int, reason: str) -> None:
        """Leave out a client that has sent what cannot be right."""
        self.left_out.setdefault(client, reason)

    def hides(
        self, cluster: int, clients: frozenset[int], beside: Sequence[frozenset[int]] = ()
    ) -> bool:
        """Return whether a sum tells no update that others of the same model do not.

        Others are those that were read, and those `beside` it in its round. Until a cluster's model
        moves, clients with one batch send the same updates again. Those of who is left out are not
        hidden: they may be known.
        """
        if not (before := self._unmoved.get(cluster)):
            return True  # the sums of one round have no client in common
        sums = [one - self.left_out.keys() for one in (*before, *beside, clients)]
        return told_by(sums) <= told_by(sums[:-1])

    def note(self, cluster: int, clients: frozenset[int]) -> None:
        """Remember over whom a sum was read, until the cluster's model moves."""
        self._unmoved.setdefault(cluster, []).append(clients)

    def move(self, cluster: int) -> None:
        """Forget over whom sums were: the cluster's model has changed, and so will updates."""
        self._unmoved.pop(cluster, None)

    def parts_of(self, cluster: int, clients: Sequence[int]) -> list[list[int]]:
        """Return over whom to sum: over all of a cluster's `clients`, or over random parts of them.

        Parts are as many as there can be while it is not known who has spoilt a sum, and up to
        five before any sum has told how far the cluster's updates usually go. Each is in the order
        in which it was drawn: clients see their places, and in ascending order these would say who
        else is in their part.
        """
        number = len(clients) // FEWEST
        if not self.searches(cluster):
            number = 1 if self._usual.get(cluster) else min(number, _PARTS_AT_FIRST)
        if number < 2:
            return [list(clients)]
        drawn = self._rng.permutation(list(clients))
        return [part.tolist() for part in np.array_split(drawn, number)]

    def searches(self, cluster: int) -> bool:
        """Return whether a sum of the cluster was spoilt, and by nobody who is known."""
        return any(
            one.fault in _SPOILS
            for outcomes in self._rounds.get(cluster, ())
            for one in telling(outcomes, _SPOILS, self.left_out.keys())
        )

    def faults(self, cluster: int, lengths: Sequence[float | None]) -> list[Fault]:
        """Find the faults of a round's sums, by how far their mean updates go.

        Each is compared with the median of the round's others; one alone, with the median of the
        cluster's earlier ones.

        Parameters
        ----------
        cluster : int
        lengths : sequence of float, optional
            The Euclidean norms of the mean updates of the cluster's sums; None: of garbage.
        """
        found = []
        for place, length in enumerate(lengths):
            if length is None:
                found.append(Fault.GARBAGE)
                continue
            others = [x for i, x in enumerate(lengths) if i != place and x is not None]
            usual = float(np.median(others)) if others else self.usual(cluster)
            if 0 < MOST_TIMES * usual < length:
                found.append(Fault.LONG)
            else:
                found.append(Fault.SHORT if MOST_TIMES * length < usual else Fault.NONE)
        if Fault.LONG not in found:  # whoever is far shorter than the others harms nobody
            return [Fault.NONE if fault is Fault.SHORT else fault for fault in found]
        return found

    def usual(self, cluster: int) -> float:
        """Return how long a cluster's mean update has been, at the median; 0 before any."""
        return float(np.median(self._usual.get(cluster, [0.0])))

    def learn(self, cluster: int, outcomes: Sequence[Outcome], lengths: Sequence[float]) -> None:
        """Take note of a round's sums, and leave out who must have spoilt some of them.

        Parameters
        ----------
        cluster : int
        outcomes : sequence of Outcome
        lengths : sequence of float
            Of those that count; if all are too long, of those.
        """
        if lengths:
            length, usual = float(np.median(lengths)), self.usual(cluster)
            if usual and len(outcomes) == 1 and len(outcomes[0].clients) >= FEWEST_SEARCHED:
                length = min(length, usual)  # one client could make it longer, round by round
            self._usual.setdefault(cluster, []).append(length)
        if not any(one.fault in _SPOILS for one in outcomes):
            return
        rounds = self._rounds.setdefault(cluster, [])
        rounds.append(list(outcomes))
        while True:
            chances = {
                (client, reason): chance
                for faults, reason in ((_SPOILS, OFTEN_SPOILT), (_SHORTENS, OFTEN_SHORT))
                for client, chance in chances_of_honesty(
                    rounds, faults, self.left_out.keys()
                ).items()
            }
            if not chances:
                return
            (client, reason), chance = min(chances.items(), key=lambda item: (item[1], item[0]))
            if chance * len(chances) >= CHANCE:
                return
            self.blame(client, reason)


def telling(
    outcomes: Sequence[Outcome], faults: Collection[Fault], known: Collection[int]
) -> list[Outcome]:
    """Return the sums of a round that say something of who has these faults.

    Parameters
    ----------
    outcomes : sequence of Outcome
    faults : collection of Fault
    known : collection of int
        Who spoils for certain: faults in their company say nothing of the others, and if theirs was
        too short, nor do those that looked too long beside it; or the other way round.
    """
    guilty = {one.fault for one in outcomes if not one.clients.isdisjoint(known)}
    explained = {
        fault
        for fault, opposite in ((Fault.LONG, Fault.SHORT), (Fault.SHORT, Fault.LONG))
        if opposite in guilty
    }
    return [
        one
        for one in outcomes
        if (
            one.fault not in explained and one.clients.isdisjoint(known)
            if one.fault in faults
            else one.fault is not Fault.GARBAGE
        )
    ]


def chances_of_honesty(
    rounds: Sequence[Sequence[Outcome]],
    faults: Collection[Fault] = _SPOILS,
    known: Collection[int] = (),
) -> dict[int, float]:
    """Return how likely an honest client would be in as many faulty sums as each has been.

    Parts are drawn anew in each round, so an honest client is in faulty ones by chance: by that of
    the honest clients' places in them, of which each has at least one that is not honest's; but
    where some sums are too long beside others, those may be in either. In how many a client is, is
    Poisson binomial.

    Parameters
    ----------
    rounds : sequence of sequences of Outcome
        The sums of each round.
    faults : collection of Fault
        Those that count.
    known : collection of int
        As in `telling`.

    Returns
    -------
    dict of float
        By client, of those that were in a sum that says something.
    """
    seen: dict[int, list[tuple[bool, float]]] = {}
    for outcomes in rounds:
        said = telling(outcomes, faults, known)
        faulty = [len(one.clients) for one in said if one.fault in faults]
        if not faulty:
            continue
        clients = sum(len(one.clients) for one in said)
        chance = (sum(faulty) - len(faulty)) / (clients - len(faulty))
        opposite = sum(one.fault not in faults and one.fault is not Fault.NONE for one in said)
        if opposite:  # then all in the faulty ones may be honest
            chance = max(chance, sum(faulty) / (clients - opposite))
        for one in said:
            for client in one.clients:
                seen.setdefault(client, []).append((one.fault in faults, chance))
    from scipy.stats import poisson_binom  # noqa: PLC0415 - it takes half a second

    return {
        client: float(poisson_binom.sf(sum(bad for bad, _ in own) - 1, [p for _, p in own]))
        for client, own in sorted(seen.items())
    }
