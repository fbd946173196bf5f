"""Flower's SuperLink, which notes what its database is asked: benchmarks/superlink_database.py.

`python -m benchmarks.counted_superlink NOTES OPTION…` takes the options of `flower-superlink`. With
`plugin=counted` in its database's address, it writes one line for each connection that is made and
for each transaction. Who asked is read from the call stack.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, TextIO

from flwr.superlink.cli import flower_superlink
from sqlalchemy import URL, Engine, event
from sqlalchemy.dialects import plugins
from sqlalchemy.engine import CreateEnginePlugin

_STATES = ("sql_linkstate.py", "sql_corestate.py", "sql_object_store.py")
_HANDLERS = ("handlers.py", "node_auth.py")


class CountedDatabase(CreateEnginePlugin):
    """Notes an engine's connections and transactions."""

    notes: ClassVar[TextIO]

    def update_url(self, url: URL) -> URL:
        """Leave the address as it is."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Listen to what begins, and time what commits."""
        commit = engine.dialect.do_commit

        @event.listens_for(engine, "connect")
        def connected(_connection: Any, _record: Any) -> None:
            self._write({"at": time.time(), "connected": True})

        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            changed = connection.connection.dbapi_connection.total_changes
            connection.info["note"] = {"statements": 0, "before": changed}

        @event.listens_for(engine, "before_cursor_execute")
        def before(connection: Any, *_: Any) -> None:
            locked = connection.connection.dbapi_connection.in_transaction
            connection.info["statement"] = time.perf_counter(), locked

        @event.listens_for(engine, "after_cursor_execute")
        def after(connection: Any, *_: Any) -> None:
            if (note := connection.info.get("note")) is None:
                return
            (started, locked), now = connection.info["statement"], time.perf_counter()
            note["statements"] += 1
            if not locked and connection.connection.dbapi_connection.in_transaction:
                # SQLite waits for its lock in the first statement that may write.
                note |= {"waited": now - started, "locked": now}

        def do_commit(connection: Any) -> None:
            commit(connection)
            if (note := connection.info.pop("note", None)) is None:
                return
            changed = connection.dbapi_connection.total_changes - note.pop("before")
            held = time.perf_counter() - note.pop("locked") if "locked" in note else None
            handler, state = _whose(sys._getframe())
            asked = {"at": time.time(), "handler": handler, "state": state, "changed": changed}
            self._write(asked | note | {"held": held})

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]

    def _write(self, note: dict[str, Any]) -> None:
        self.notes.write(json.dumps(note) + "\n")


def _whose(frame: FrameType | None) -> tuple[str, str]:
    """Return the handler of a request, and the outermost function of Flower's states that asked."""
    handler = state = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(_STATES):
            state = frame.f_code.co_name
        elif path.endswith(_HANDLERS):
            handler = frame.f_code.co_name
        frame = frame.f_back
    return handler, state


def main() -> None:
    """Start the SuperLink."""
    path = Path(sys.argv.pop(1))
    with path.open("w", encoding="utf-8", buffering=1) as CountedDatabase.notes:
        plugins.register("counted", __name__, "CountedDatabase")
        flower_superlink()


if __name__ == "__main__":
    main()
