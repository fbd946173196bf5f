"""Draw which clients take part in a round."""

from collections.abc import Collection

import numpy as np

from fl_core.messages import protocol
from strategies.rounds.training import Training

_PARTICIPANTS, _TESTS = 0xDEA1, 0x7E575


def draw_participants(
    training: Training,
    fraction: float,
    seed: int,
    *,
    untrained: bool = False,
    without: Collection[int] = (),
    at_least: int = 1,
) -> list[int]:
    """Return the clients that train in the present round, ascending: a share of the connected ones.

    With `untrained`, all connected clients that have never trained are added. Those of `without`
    are never drawn, and do not reduce the number of the others. A RuntimeError says that none is
    left.
    """
    nodes = training.registry.nodes
    there = training.registry.connected() or list(nodes)
    # If none of these is connected, all are asked: who is left out must not end the run.
    clients = [c for c in there if c not in without] or [c for c in nodes if c not in without]
    if not clients:
        raise RuntimeError(
            "no client is left to train: start those that are missing, or correct what they send "
            "to secure sums, then resume the run"
        )
    absent = sorted(set(nodes) - set(there))
    training.record_failures(dict.fromkeys(absent, "it is not connected"), protocol.TRAIN)
    count = min(len(clients), max(at_least, _share_of(len(there), fraction)))
    drawn = _draw(clients, count, seed, training.round, _PARTICIPANTS)
    never = set(training.registry.connected()) - set(training.num_examples) - set(without)
    return sorted(never.union(drawn)) if untrained else drawn


def draw_testers(clients: list[int], fraction: float, seed: int, number: int) -> list[int]:
    """Return the clients that test their models in a round, ascending."""
    return _draw(clients, _share_of(len(clients), fraction), seed, number, _TESTS)


def _share_of(number: int, fraction: float) -> int:
    return max(1, round(fraction * number))


def _draw(clients: list[int], count: int, seed: int, number: int, stream: int) -> list[int]:
    rng = np.random.default_rng([seed, number, stream])
    return sorted(rng.choice(clients, size=count, replace=False).tolist())
