"""A message is answered as by Flower's program, with two of its names replaced."""

import importlib
import inspect
from hashlib import sha256
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from fl_core.flower import tasks

PROJECT = """\
[project]
name = "small"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "fedkin"
[tool.flwr.app.components]
serverapp = "small:server"
clientapp = "small:client"
"""


@pytest.fixture
def module(monkeypatch):
    found = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    for name in ("install_from_fab", "get_load_client_app_fn", "pull_and_inflate_object_from_tree"):
        monkeypatch.setattr(found, name, getattr(found, name))  # put back afterwards
    return found


def test_flower_s_program_unpacks_once_and_looks_again_soon(module, monkeypatch):
    called, seen = [], []
    monkeypatch.setattr(tasks, "run_clientapp", lambda **words: called.append(words))
    monkeypatch.setattr(tasks, "install_once", lambda fab, skip_prompt: Path(fab.decode()))
    pull = module.pull_and_inflate_object_from_tree
    assert inspect.signature(pull).parameters["initial_backoff"].default == 1
    tasks.answer_task("127.0.0.1:9094", "token", b"authority", seen.append, seen.append)
    tasks.answer_task("127.0.0.1:9094", "token", None, seen.append, seen.append)
    assert [one["insecure"] for one in called] == [False, True]
    assert [one["certificates"] for one in called] == [b"authority", None]
    assert module.install_from_fab(b"there", skip_prompt=True) == Path("there")
    with pytest.raises(FileNotFoundError, match="there"):
        module.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)(
            "fedkin/small", "1.0.0", "ab"
        )
    assert seen == [sha256(b"there").hexdigest(), Path("there")]
    found = module.pull_and_inflate_object_from_tree
    assert (found.func, found.keywords) == (pull, {"initial_backoff": 0.1})


def test_a_name_that_flower_uses_no_more_is_missed(module, monkeypatch):
    monkeypatch.delattr(module, "install_from_fab")
    with pytest.raises(AttributeError, match="has no install_from_fab any more"):
        tasks.answer_task("127.0.0.1:9094", "token", None, print, print)


def test_an_app_that_is_refused_is_not_unpacked(module, monkeypatch):
    unpacked = []
    monkeypatch.setattr(tasks, "run_clientapp", lambda **_: None)
    monkeypatch.setattr(tasks, "install_once", lambda fab, _: unpacked.append(fab))

    def refuse(digest):
        raise ValueError(digest)

    tasks.answer_task("127.0.0.1:9094", "token", None, refuse, print)
    with pytest.raises(ValueError, match=sha256(b"other").hexdigest()):
        module.install_from_fab(b"other")
    assert unpacked == []


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's
def test_an_app_is_unpacked_once_and_another_one_beside_it(tmp_path, monkeypatch):
    install, unpacked = tasks.install_from_fab, []

    def counted(fab, *words, **more):
        unpacked.append(fab)
        return install(fab, *words, **more)

    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks, "install_from_fab", counted)
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (app / "small.py").write_text("client = server = 1\n", encoding="utf-8")
    first = build_fab_from_disk(app)
    (app / "small.py").write_text("client = server = 2\n", encoding="utf-8")
    second = build_fab_from_disk(app)
    # As if an app that is refused shared 32 bits with the first one's hash.
    (tmp_path / "home" / tasks.APP_DIR / f"evil.app.1.{sha256(first).hexdigest()[:8]}").mkdir(
        parents=True
    )
    places = [tasks.install_once(fab) for fab in (first, second, first, second)]
    assert unpacked == [first, second]
    assert places[:2] == places[2:]
    texts = [(place / "small.py").read_text(encoding="utf-8") for place in places[:2]]
    assert texts == ["client = server = 1\n", "client = server = 2\n"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == [tasks.APP_DIR]
