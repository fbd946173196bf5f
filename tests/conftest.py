from collections.abc import Iterator

import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture(autouse=True, scope="session")
def flower_task() -> Iterator[None]:
    """Flower's messages want to know which task makes them; there is none in a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_run_id", "_task_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        yield
