"""Which client holds which samples, where the data come in partitions already made."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_NAME = 200  # characters


@dataclass(frozen=True, eq=False)
class GivenPartition:
    """Which client holds which samples, where the data come in partitions.

    Attributes
    ----------
    train, test : tuple of K int
        How many samples each client has: the first ones are client 0's, and so on.
    tasks : tuple of K int, optional
        The true task of each client, if it is known.
    names : tuple of K str, optional
        What to call the clients, if they have names: people, places.
    in_time : frozenset of int
        Clients whose training samples are in order of time, at least within a class.

    Raises
    ------
    ValueError
        If there are not as many names as clients, two are alike, or one is no line of text.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    tasks: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    in_time: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.names is None:
            return
        if len(self.names) != len(self.train):
            raise ValueError(
                f"{len(self.names)} names for {len(self.train)} clients: give one for each"
            )
        for client, name in enumerate(self.names):
            line = isinstance(name, str) and name == name.strip() and name.isprintable()
            if not line or not 0 < len(name) <= _LONGEST_NAME:
                raise ValueError(
                    f"{name!r} as client {client}'s name, but it must be a line of text of 1 to "
                    f"{_LONGEST_NAME} characters, without blanks around it"
                )
            if name in self.names[:client]:
                raise ValueError(f"two clients that are called {name}: give each another name")
