import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture(autouse=True)
def flower_task(monkeypatch):
    """Flower's messages want to know which task makes them; there is none in a test."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
