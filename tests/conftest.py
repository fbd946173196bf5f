import gc
import os
from collections.abc import Iterator

import pytest
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import settings

from fl_core.data import image_folder
from tests.toy_app import toy_plane

# How long an example takes says something of the machine, not of the code.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and 5,000 cases that stay until the end anyway."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def flower_task() -> Iterator[None]:
    """Flower's messages want to know which task makes them; there is none in a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_run_id", "_task_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def hasty_disk() -> Iterator[None]:
    """No test outlives a power cut: to wait for the disk is a tenth of some tests' time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs the tests keeps a cache without our images, which nobody would ever clear."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def plane_without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.clusterings.flt.embed_signatures", toy_plane)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Count how often a folder is decoded and stored."""
    done: list[tuple[object, ...]] = []

    def counted(*arguments, save=image_folder._save):
        done.append(arguments)
        save(*arguments)

    monkeypatch.setattr(image_folder, "_save", counted)
    return done
