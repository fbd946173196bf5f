"""Who spoils secure sums: a mask hides what a client sends, so sums over parts of a cluster tell.

A cluster whose sum was spoilt is summed in random parts from the next round on. Parts that come out
right count as always; who is in spoilt ones more often than chance has it is left out. No paper has
this in just this form; the idea is group testing's (Dorfman, The detection of defective members of
large populations, 1943). docs/robustness.md derives the numbers that are set here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import poisson_binom

from fl_core.masking import FEWEST

FEWEST_SEARCHED = 2 * FEWEST
"""Fewer clients cannot be summed in two parts."""

MOST_TIMES = 4.0
"""How many times as long as usual a sum's mean update may be; of honest clients it was up to 2.6
times (benchmarks.secure_liars)."""

CHANCE = 0.01
"""How likely it may be at each look that some honest client of a cluster is left out."""

_PARTS_AT_FIRST = 5

OFTEN_SPOILT = "the secure sums that it was part of were spoilt more often than chance has it"


class Outcome(NamedTuple):
    """A sum over some clients, and whether it is right; otherwise one of them has spoilt it."""

    clients: frozenset[int]
    right: bool


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
        self._outcomes: dict[int, list[list[Outcome]]] = {}
        self._usual: dict[int, list[float]] = {}

    def blame(self, client: int, reason: str) -> None:
        """Leave out a client that has sent what cannot be right."""
        self.left_out.setdefault(client, reason)

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
            not one.right and not one.clients & self.left_out.keys()
            for outcomes in self._outcomes.get(cluster, ())
            for one in outcomes
        )

    def too_long(self, cluster: int, lengths: Sequence[float]) -> list[bool]:
        """Return which of a round's mean updates go too far to be honest clients'.

        Each is compared with the median of the round's others; one alone, with the median of the
        cluster's earlier ones.

        Parameters
        ----------
        cluster : int
        lengths : sequence of float
            The Euclidean norms of the mean updates of the cluster's sums.
        """
        earlier = self._usual.get(cluster, [])
        found = []
        for place, length in enumerate(lengths):
            others = [*lengths[:place], *lengths[place + 1 :]] or earlier
            usual = float(np.median(others)) if others else 0.0
            found.append(0 < MOST_TIMES * usual < length)
        return found

    def learn(self, cluster: int, outcomes: Sequence[Outcome], lengths: Sequence[float]) -> None:
        """Take note of a round's sums, and leave out who must have spoilt some of them.

        Parameters
        ----------
        cluster : int
        outcomes : sequence of Outcome
        lengths : sequence of float
            Of those that are right; if there are none, of those that are too long.
        """
        if lengths:
            self._usual.setdefault(cluster, []).append(float(np.median(lengths)))
        if all(one.right for one in outcomes):
            return
        rounds = self._outcomes.setdefault(cluster, [])
        rounds.append(list(outcomes))
        while suspects := chances_of_honesty(rounds, self.left_out.keys()):
            client = min(suspects, key=lambda one: (suspects[one], one))
            if suspects[client] * len(suspects) >= CHANCE:
                return
            self.blame(client, OFTEN_SPOILT)


def chances_of_honesty(
    rounds: Sequence[Sequence[Outcome]], known: Collection[int] = ()
) -> dict[int, float]:
    """Return how likely an honest client would be in as many spoilt sums as each has been.

    Parts are drawn anew in each round, so an honest client is in spoilt ones by chance: by that of
    the honest clients' places in them, of which each has at least one that is not honest's. In how
    many is Poisson binomial.

    Parameters
    ----------
    rounds : sequence of sequences of Outcome
        The sums of each round.
    known : collection of int
        Who spoils for certain: spoilt sums with them say nothing of the others.

    Returns
    -------
    dict of float
        By client, of those that were in a sum that says something.
    """
    seen: dict[int, list[tuple[bool, float]]] = {}
    for outcomes in rounds:
        telling = [one for one in outcomes if one.right or one.clients.isdisjoint(known)]
        spoilt = [len(one.clients) for one in telling if not one.right]
        if not spoilt:
            continue
        clients = sum(len(one.clients) for one in telling)
        chance = (sum(spoilt) - len(spoilt)) / (clients - len(spoilt))
        for one in telling:
            for client in one.clients:
                seen.setdefault(client, []).append((not one.right, chance))
    return {
        client: float(poisson_binom.sf(sum(bad for bad, _ in own) - 1, [p for _, p in own]))
        for client, own in sorted(seen.items())
    }
