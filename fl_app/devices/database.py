"""More patience for the SuperLink's database: `--database "sqlite:///superlink.db?plugin=fedkin"`.

SQLite lets one write at a time, and Flower 1.41 gives up after waiting 5 seconds for its turn: the
SuperLink answers 500, its own programs end for good (no run starts any more), and devices' answers
are lost. Flower has no option for it, but its address of the database is SQLAlchemy's, which loads
the plugins that it names.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import CreateEnginePlugin

PATIENCE = 20
"""Seconds: SuperNodes wait for an answer for 30."""


class PatientDatabase(CreateEnginePlugin):
    """Lets every connection wait for its turn for `PATIENCE` seconds."""

    def update_url(self, url: URL) -> URL:
        """Leave the rest of the address as it is."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Set it whenever a connection is used: Flower sets its own when one is made."""

        @event.listens_for(engine, "checkout")
        def be_patient(connection: Any, _record: Any, _proxy: Any) -> None:
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}").close()
