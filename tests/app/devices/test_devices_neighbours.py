"""Devices on one machine that share a folder or a file are told so."""

import pytest

from fl_app.devices.neighbours import shared_paths
from tests.device_images import write_sites
from tests.device_runs import run
from tests.supernodes import supernode


@pytest.fixture
def paths(tmp_path):
    return {"data-path": tmp_path / "scans", "model-path": tmp_path / "model.safetensors"}


def copied(paths, name):
    return f'name="{name}" ' + " ".join(f'{key}="{path}"' for key, path in paths.items())


def test_whoever_shares_images_or_a_model_is_named(paths, tmp_path):
    with supernode(copied(paths, "lyon")):
        data, model = shared_paths("berlin", paths)
        assert data == (
            f"data-path is {tmp_path}/scans, which lyon on this machine has, too: give each device "
            "images of its own, or they count twice."
        )
        assert model.startswith(f"model-path is {tmp_path}/model.safetensors, which lyon on this")
        (tmp_path / "link").symlink_to("scans")
        linked = {"data-path": tmp_path / "link", "model-path": None}
        assert len(shared_paths("berlin", linked)) == 1
        with supernode(copied({"model-path": paths["model-path"]}, "oslo")):
            assert "which lyon, oslo on this machine" in shared_paths("berlin", paths)[1]


def test_who_is_no_other_device_is_not_named(paths, tmp_path):
    with supernode(copied(paths, "berlin")):  # it is this one, or the one that it takes over from
        assert not shared_paths("berlin", paths)
    for number in ("5", "0"):  # which Flower reads as a number
        with supernode(copied(paths, number).replace(f'"{number}"', number)):
            assert not shared_paths(number, paths)
            assert len(shared_paths("berlin", paths)) == 2
    with supernode(copied(paths, "lyon")):
        pass
    assert not shared_paths("berlin", paths)
    with supernode(copied({key: f"{path}-of-lyon" for key, path in paths.items()}, "lyon")):
        assert not shared_paths("berlin", paths)
    for unread in ("", 'name="lyon', "partition-id=0", f'data-path="{paths["data-path"]}"'):
        with supernode(unread):
            assert not shared_paths("berlin", paths)
    with supernode(copied(paths, "lyon"), program="vi"):
        assert not shared_paths("berlin", paths)


def test_a_device_is_warned_and_takes_part(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites", images=10)
    with supernode(copied({"data-path": folders["rome"]}, "rome-2")):
        summary, _ = run(tmp_path / "out", folders, num_server_rounds=1, strategy="single")
    assert summary["runs"][0]["names"] == ["berlin", "lyon", "oslo", "rome"]
    warned = [text for text in caplog.messages if "on this machine has, too" in text]
    assert len(warned) == 1
    assert warned[0].startswith(f"rome: data-path is {folders['rome']}, which rome-2 on this")
