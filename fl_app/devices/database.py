"""A plugin for the SuperLink's database: `--database "sqlite:///superlink.db?plugin=fedkin"`.

SQLite allows one write at a time, and Flower 1.41 fails after waiting 5 seconds for it: the
SuperLink answers 500, its own programs end for good, and devices' answers are lost. Flower also
lets the umask decide who may read the file, which has the names and models of sites. It has no
option for either. SQLAlchemy keeps five connections, and opens up to ten more while many devices
call. It closes each of these after one use, so that the next reads the schema again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import CreateEnginePlugin
from sqlalchemy.pool import Pool, QueuePool

PATIENCE = 20  # seconds that a connection waits to write: SuperNodes wait for an answer for 30
CONNECTIONS = 15  # as many as SQLAlchemy opens by itself


class PatientDatabase(CreateEnginePlugin):
    """Lets connections wait `PATIENCE` seconds, keeps them, and makes the file private."""

    def update_url(self, url: URL) -> URL:
        """Create the database's file with mode 600, or set that of a file that exists."""
        if (path := url.database) and path != ":memory:":
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                # By name: opening and closing the file would end this process's locks on it.
                for ending in ("", "-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        Path(path + ending).chmod(0o600)
        return url

    def handle_pool_kwargs(self, pool_cls: type[Pool], pool_args: dict[str, Any]) -> None:
        """Keep all connections open."""
        if issubclass(pool_cls, QueuePool):  # that of files
            pool_args |= {"pool_size": CONNECTIONS, "max_overflow": 0}

    def engine_created(self, engine: Engine) -> None:
        """Set the timeout whenever a connection is used: Flower sets another when it is made."""

        @event.listens_for(engine, "checkout")
        def be_patient(connection: Any, _record: Any, _proxy: Any) -> None:
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}").close()
