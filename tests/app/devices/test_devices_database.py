"""The SuperLink's database has more patience than Flower gives it."""

import os
from contextlib import ExitStack

import pytest
from flwr.supercore.object_store import ObjectStoreFactory
from sqlalchemy import event, text

from fl_app.devices.database import CONNECTIONS, PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")


@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?plugin=fedkin", PATIENCE)])
def test_how_long_flowers_own_store_waits(tmp_path, query, seconds):
    store = ObjectStoreFactory(f"sqlite:///{tmp_path / 'state.db'}{query}").store()
    for _ in range(2):  # a connection that is made, and one that is used again
        with store.session() as session:
            waits = session.execute(text("PRAGMA busy_timeout")).scalar()
        assert waits == seconds * 1000
    store._engine.dispose()


def test_a_database_is_for_its_owner_alone(tmp_path):
    """And what SQLite puts beside it; also one that was there, and what a kill left beside it."""
    old = tmp_path / "old.db"
    for path in (old, tmp_path / "old.db-wal"):
        path.touch()
        path.chmod(0o644)
    before = os.umask(0o000)
    try:
        for path in (tmp_path / "new.db", old):
            store = ObjectStoreFactory(f"sqlite:///{path}?plugin=fedkin").store()
            with store.session() as session:
                session.execute(text("CREATE TABLE sites (name TEXT)"))
                beside = list(tmp_path.glob(f"{path.name}-*"))
            assert beside
            there = [one for one in (path, *beside) if one.exists()]
            assert {one.stat().st_mode & 0o777 for one in there} == {0o600}
            store._engine.dispose()
    finally:
        os.umask(before)
    ObjectStoreFactory("sqlite:///:memory:?plugin=fedkin").store()
    assert not (tmp_path / ":memory:").exists()


@pytest.mark.parametrize(("query", "made"), [("", 15 + 10), ("?plugin=fedkin", 15)])
def test_connections_are_kept_and_no_more_than_flower_has(tmp_path, query, made):
    """Flower keeps five of fifteen connections, and opens the other ten again each time."""
    store = ObjectStoreFactory(f"sqlite:///{tmp_path / 'state.db'}{query}").store()
    store._engine.dispose()
    connected = []
    event.listen(store._engine, "connect", lambda *_: connected.append(1))
    for _ in range(2):
        with ExitStack() as stack:
            used = [stack.enter_context(store._engine.connect()) for _ in range(CONNECTIONS)]
            assert len({id(one.connection.dbapi_connection) for one in used}) == CONNECTIONS
    assert len(connected) == made
    with store.session() as session:  # what Flower sets is right and stays
        found = [session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 1]
    store._engine.dispose()
