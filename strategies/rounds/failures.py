"""What failed at clients, at which step, in which rounds and why: one record and one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from fl_core.messages import protocol
from fl_core.text import one_line


@dataclass(frozen=True)
class Failure:
    """A step (train, evaluate or a query) at which a client failed for one reason."""

    client: int
    step: str
    rounds: tuple[int, ...]
    reason: str

    @property
    def action(self) -> str:
        """Return what the client could not do, after its name."""
        actions = {protocol.TRAIN: "could not train", protocol.EVALUATE: "could not be tested"}
        return actions.get(self.step, f"failed at {self.step}")

    @property
    def when(self) -> str:
        """Return the rounds in words: "before training", "in round 3", "in rounds 1–4, 7"."""
        if self.rounds == (0,):
            return "before training"
        # Of rounds in a row, the difference to their position is the same.
        runs = [
            [number for _, number in run]
            for _, run in groupby(enumerate(self.rounds), lambda pair: pair[1] - pair[0])
        ]
        said = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
        return f"in round{'s' * (len(self.rounds) > 1)} {', '.join(said)}"

    def describe(self, name: str) -> str:
        """Return a sentence about the client of this name."""
        return f"{name} {self.action} {self.when}: {self.reason}"


@dataclass
class FailureLog:
    """All failures of a training, those of the same client, step and reason as one."""

    rounds: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)

    def add(self, client: int, step: str, number: int, reason: str) -> Failure:
        """Record a failure in the round of a number, and return it."""
        reason = one_line(reason)
        self.rounds.setdefault((client, step, reason), []).append(number)
        return Failure(client, step, (number,), reason)

    def __iter__(self) -> Iterator[Failure]:
        """Return the failures by client, those before training first."""
        for (client, step, reason), rounds in sorted(
            self.rounds.items(), key=lambda item: (item[0][0], item[1])
        ):
            yield Failure(client, step, tuple(dict.fromkeys(rounds)), reason)

    def copy(self) -> FailureLog:
        """Return another log with the same failures."""
        return FailureLog({key: list(rounds) for key, rounds in self.rounds.items()})
