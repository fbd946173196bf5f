"""Connections to the gate: they must show soon that they are a device's, which has only some."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fl_app.devices.gate.callers import network_of

# Connections that no known device has used yet: more close the oldest of them.
_MOST_NEWCOMERS = 400
_MOST_NEWCOMERS_OF_ADDRESS = 100
_MOST_OF_DEVICE = 32  # as many as it may have requests at a time


class Connections:
    """Those that no known device has used yet, the oldest first, and those of each device."""

    def __init__(self) -> None:
        self._networks: dict[Connection, str] = {}
        self._owners: dict[Connection, bytes] = {}
        self._of_device: dict[bytes, dict[Connection, None]] = {}  # the least used first

    def add(self, connection: Connection, network: str) -> None:
        """Take one in, and close the oldest if there are too many.

        A device shows who it is within moments: what has stood there longest is least likely one.
        """
        of_network = [one for one, its in self._networks.items() if its == network]
        if len(of_network) >= _MOST_NEWCOMERS_OF_ADDRESS:
            self._close(of_network[0])
        elif len(self._networks) >= _MOST_NEWCOMERS:
            self._close(next(iter(self._networks)))
        self._networks[connection] = network

    def used_by(self, key: bytes, connection: Connection) -> None:
        """Hear that a known device uses one, and close what it has used least if it has many.

        Otherwise one device could use up all that the gate can have.
        """
        self.remove(connection)
        self._owners[connection] = key
        own = self._of_device.setdefault(key, {})
        own[connection] = None
        if len(own) > _MOST_OF_DEVICE:
            self._close(next(iter(own)))

    def remove(self, connection: Connection) -> None:
        """Let one go that is closed."""
        self._networks.pop(connection, None)
        if (key := self._owners.pop(connection, None)) is not None:
            del self._of_device[key][connection]
            if not self._of_device[key]:
                del self._of_device[key]

    def _close(self, connection: Connection) -> None:
        self.remove(connection)
        connection.transport.abort()


class Connection(H11Protocol):
    """uvicorn's connection, of which h11 bounds the size of heads, with a clock that bounds time.

    uvicorn's own clock starts only after the first answer, and any byte stops it.
    """

    def __init__(self, *args: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = connections
        self.is_stopping = False
        self.app_state = {"connection": self}  # requests carry it in their scope

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and count it among the newcomers."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self._connections.add(self, network_of(self.client[0] if self.client else "unknown"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let it go."""
        super().connection_lost(exc)
        self._connections.remove(self)

    def shutdown(self) -> None:
        """Hear that the gate stops: what is held here is answered as it stands."""
        self.is_stopping = True
        super().shutdown()

    def is_devices(self, key: bytes) -> None:
        """Hear that a known device uses this connection."""
        self._connections.used_by(key, self)

    @property
    def is_closed(self) -> bool:
        """Whether nobody listens any more."""
        return bool(self.transport.is_closing())

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self.conn.receive_data(data)
        # A whole head stops the clock.
        self.handle_events()
