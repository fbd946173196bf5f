"""A device's files: who may read them, and which candidates of other runs stay."""

import os
import time

import pytest

from fl_app.devices.site.model_files import remove_old_candidates
from tests.device_images import write_sites
from tests.device_runs import run


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_model_is_for_its_owner_alone(tmp_path, monkeypatch, share):
    """Also one that has waited for its verdict."""
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    folders = write_sites(tmp_path / "sites", {"berlin": (0, 2), "lyon": (0, 2)}, images=10)
    paths = {name: tmp_path / "models" / f"{name}.safetensors" for name in folders}
    options = {"strategy": "local,single", "num_server_rounds": 1, "model_paths": paths}
    run(tmp_path / "out", folders, validation_share=share, **options)
    assert (tmp_path / "models").stat().st_mode & 0o777 == 0o700
    stored = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "models").iterdir()}
    endings = (".safetensors", ".verdict.json") if share else (".safetensors",)
    assert stored == {f"{name}{ending}": 0o600 for name in folders for ending in endings}


def test_models_of_a_run_that_may_go_on_stay(tmp_path):
    """Those of one that was cut short last week go; another device's are not looked at."""
    model, current = tmp_path / "model.safetensors", tmp_path / "model-candidates-1"
    days = {
        current.name: 30,
        "model-candidates-2": 6,
        "model-candidates-3": 8,
        "m-candidates-4": 30,
    }
    for name, old in days.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "0000.safetensors").touch()
        os.utime(tmp_path / name, (0, time.time() - old * 86400))
    remove_old_candidates(model, current)
    assert {path.name for path in tmp_path.iterdir()} == {*days} - {"model-candidates-3"}
