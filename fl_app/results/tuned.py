"""What a strategy tried before validation samples chose its values, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from fl_app.results.fields import Count, Number, Option, Text


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A strategy with some values of `tune`, as in summary.json.

    Attributes
    ----------
    values : dict
        By run-config key.
    score : float
        On validation samples, mean over clients: the accuracy, or the mean error of a number; NaN
        where no client has any.
    rounds, bytes, seconds
        What that took: of all clients, up and down.
    """

    values: dict[Text, Option]
    score: Number
    rounds: int
    bytes: Count
    seconds: Number


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The values that a strategy took, and all that it had tried.

    Attributes
    ----------
    values : dict
        Those that are best for the middle half of the clients.
    tried : list of Tried
    """

    values: dict[Text, Option]
    tried: list[Tried]

    def said(self, num_clients: int) -> str:
        """Return what was chosen, and what the choice cost.

        Examples
        --------
        >>> tried = [
        ...     Tried(values={"learning-rate": rate}, score=rate, rounds=4, bytes=8000, seconds=1.5)
        ...     for rate in (0.01, 0.001)
        ... ]
        >>> Tuned(values={"learning-rate": 0.01}, tried=tried).said(num_clients=2)
        'learning-rate=0.01 (of 2 tried: 8 rounds, 8 kB/client, 3 s in all)'
        """
        chosen = " ".join(f"{key}={value}" for key, value in self.values.items())
        rounds = sum(one.rounds for one in self.tried)
        kilobytes = sum(one.bytes for one in self.tried) / num_clients / 1000
        seconds = sum(one.seconds for one in self.tried)
        return (
            f"{chosen} (of {len(self.tried)} tried: {rounds:,} rounds, {kilobytes:,.0f} kB/client, "
            f"{seconds:,.0f} s in all)"
        )
