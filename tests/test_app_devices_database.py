"""The SuperLink's database has more patience than Flower gives it."""

import pytest
from flwr.supercore.object_store import ObjectStoreFactory
from sqlalchemy import text

from fl_app.devices.database import PATIENCE


@pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's
@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?plugin=fedkin", PATIENCE)])
def test_how_long_flowers_own_store_waits(tmp_path, query, seconds):
    store = ObjectStoreFactory(f"sqlite:///{tmp_path / 'state.db'}{query}").store()
    for _ in range(2):  # a connection that is made, and one that is used again
        with store.session() as session:
            waits = session.execute(text("PRAGMA busy_timeout")).scalar()
        assert waits == seconds * 1000
    store._engine.dispose()
