"""A full disk costs one sentence and no file: what is there stays whole, and a run goes on."""

import errno
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from fl_core.files import open_file, replacing
from tests.pipes import not_waited_for

FULL = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL)
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "summary.json"
    path.write_text("old")
    expected = pytest.raises(OSError, match="the disk is full: make room")
    with expected as raised, replacing(path) as temporary:
        temporary.write_text("ne")
        raise error
    assert str(raised.value).startswith(f"{path} cannot be written")
    assert "\n" not in str(raised.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_where_not_even_a_name_can_be_made(tmp_path, monkeypatch):
    def full(*args, **options):
        raise FULL[0]

    monkeypatch.setattr("os.open", full)
    expected = pytest.raises(
        OSError, match=r"model.safetensors cannot be written, the disk is full"
    )
    with expected, replacing(tmp_path / "model.safetensors"):
        pass


def test_the_umask_says_who_may_read_and_is_never_changed(tmp_path, monkeypatch):
    """It is the whole process's: two threads that set and restore it may leave it at 0."""
    tmp_path.chmod(0o755)
    masks, change = [], os.umask
    before = change(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: masks.append(mask) or change(mask))
        for name, private in (("summary.json", False), ("key", True)):
            with replacing(tmp_path / name, private=private) as temporary:
                temporary.write_text("new")
        monkeypatch.undo()
    finally:
        assert change(before) == 0o027
    assert masks == []
    assert (tmp_path / "summary.json").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_file_is_only_readable_for_those_who_can_read_its_folder(tmp_path):
    """The folders that are made on the way, too."""
    before = os.umask(0o022)
    try:
        for name, mode in (("mine", 0o700), ("groups", 0o750), ("everybodys", 0o755)):
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(mode)
            path = tmp_path / name / "checkpoints/personal/x.safetensors"
            with replacing(path) as temporary:
                temporary.write_text("new")
            assert path.stat().st_mode & 0o777 == mode & 0o666
            for folder in path.parents[:3]:
                assert folder.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def test_a_replaced_temporary_file_keeps_the_mode(tmp_path):
    """As safetensors does; nor does a private file become anybody's."""
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        for name, private in (("model", False), ("key", True)):
            with replacing(tmp_path / name, private=private) as temporary:
                other = tmp_path / "other"
                other.write_text("new")
                other.chmod(0o640)
                other.replace(temporary)
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_an_error_names_the_file_that_was_to_be_written(monkeypatch, tmp_path):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("fl_core.files.os.open", refuse)
    with pytest.raises(PermissionError) as info, replacing(tmp_path / "report.html"):
        pass
    assert info.value.filename == str(tmp_path / "report.html")


def test_only_files_and_links_to_them_are_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_file(tmp_path / name) as stream:
            assert stream.read() == b"mine"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "to-nothing").symlink_to("nowhere")
    for name in ("pipe", "to-pipe", "to-nothing", "", "/dev/zero"):
        with not_waited_for(tmp_path / "pipe"), pytest.raises(ValueError, match="it is not a file"):
            open_file(tmp_path / name)


def test_a_pipe_that_takes_a_files_place_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    with not_waited_for(tmp_path / "pipe"), pytest.raises(ValueError, match="it is not a file"):
        open_file(tmp_path / "pipe")
