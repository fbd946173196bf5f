"""The partition that data come in, where each client's samples are given."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_NAME = 200  # characters


@dataclass(frozen=True, eq=False)
class GivenPartition:
    """How many samples each of K clients has; the first samples are those of client 0."""

    train: tuple[int, ...]
    test: tuple[int, ...]
    tasks: tuple[int, ...] | None = None  # the true task of each client, if known
    names: tuple[str, ...] | None = None  # of the clients: people, places
    in_time: frozenset[int] = frozenset()  # clients with training samples ordered by time

    def __post_init__(self) -> None:
        if self.names is None:
            return
        if len(self.names) != len(self.train):
            raise ValueError(
                f"{len(self.names)} names for {len(self.train)} clients: give one for each"
            )
        for client, name in enumerate(self.names):
            is_line = isinstance(name, str) and name == name.strip() and name.isprintable()
            if not is_line or not 0 < len(name) <= _MAX_NAME:
                raise ValueError(
                    f"{name!r} as the name of client {client}, but a name must be one line of 1 to "
                    f"{_MAX_NAME} characters, without spaces around it"
                )
            if name in self.names[:client]:
                raise ValueError(f"two clients named {name}: rename one")
