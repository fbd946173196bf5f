"""A private, more patient SuperLink's database: `--database "sqlite:///superlink.db?plugin=fedkin"`.

SQLite lets one write at a time, and Flower 1.41 gives up after waiting 5 seconds for its turn: the
SuperLink answers 500, its own programs end for good (no run starts any more), and devices' answers
are lost. It also leaves to the umask who may read what names the sites and holds their models.
Flower has no option for either, but its address of the database is SQLAlchemy's, which loads the
plugins that it names. It keeps five connections, opens up to ten more while many devices call, and
closes each of these after one use, so that the next has to read the database's schema anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import CreateEnginePlugin
from sqlalchemy.pool import Pool, QueuePool

PATIENCE = 20
"""Seconds: SuperNodes wait for an answer for 30."""
CONNECTIONS = 15
"""At most, as many as SQLAlchemy opens by itself."""


class PatientDatabase(CreateEnginePlugin):
    """Lets a connection wait for its turn for `PATIENCE` seconds, and makes the file private.

    Connections are kept. What Flower sets by itself is right and stays: a log that is written ahead
    and flushed when it goes into the file (`journal_mode` WAL, `synchronous` NORMAL).
    """

    def update_url(self, url: URL) -> URL:
        """Leave the rest of the address as it is, and make the file, to be read by its owner only.

        SQLite takes an empty file for an empty database, and gives those beside it the same mode.
        So it is with one that was there before, such as a backup that was put back.
        """
        if (path := url.database) and path != ":memory:":
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                # By name: to open and close it would end the locks that this process has on it.
                for ending in ("", "-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        Path(path + ending).chmod(0o600)
        return url

    def handle_pool_kwargs(self, pool_cls: type[Pool], pool_args: dict[str, Any]) -> None:
        """Keep all connections that may be open at a time."""
        if issubclass(pool_cls, QueuePool):  # that of files
            pool_args |= {"pool_size": CONNECTIONS, "max_overflow": 0}

    def engine_created(self, engine: Engine) -> None:
        """Set it whenever a connection is used: Flower sets its own when one is made."""

        @event.listens_for(engine, "checkout")
        def be_patient(connection: Any, _record: Any, _proxy: Any) -> None:
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}").close()
