"""What the SuperLink's database is asked is counted right."""

import json
import subprocess
import sys

import pytest

from benchmarks.superlink_database import FEDKIN, asked, tables, written


def note(at, state, *, changed=0, held=None):
    about = {"at": at, "handler": "push_object", "state": state, "statements": 1}
    return {**about, "changed": changed, "held": held}


def test_only_what_is_within_the_rounds_counts():
    """A transaction locks if it held the lock; one that changed no row has locked for nothing."""
    notes = [
        {"at": 9.9, "connected": True},
        {"at": 10.5, "connected": True},
        note(9.0, "get_run_status", held=1.0),
        note(11.0, "get_run_status", held=0.004),
        note(11.0, "get_run_status"),
        note(21.0, "store_object", changed=3, held=0.0105),
    ]
    found = asked(notes, [(10.0, 12.0), (20.0, 22.0)])
    who = {"handler": "push_object"}
    first = {"transactions": 2, "statements": 2, "locked": 1, "changed": 0, "held-ms": 4}
    second = {"transactions": 1, "statements": 1, "locked": 1, "changed": 1, "held-ms": 10}
    assert found == {
        "connections": 1,
        "asked": [
            {**who, "state": "get_run_status", **first},
            {**who, "state": "store_object", **second},
        ],
    }
    run = {"devices": 2, "rounds": 1, "replies": 2, "way": FEDKIN, **found}
    run |= {"round-seconds": [4.0], "superlink-cpu-seconds": 1.0}
    shown = tables({"runs": [run]})
    cells = "2 | with `?plugin=fedkin` | 1 | 2 | 1 | 0 | 7 ms | 0.5 | 500 ms | 4.0 s"
    assert shown["each"].splitlines()[2:] == [f"| {cells} |"]
    assert "| `push_object` | `store_object` | 0.5 | 0.5 | 0.5 | 5.0 ms |" in shown["who"]


def test_what_strace_says_is_read():
    lines = [
        '12 10.1 pwrite64(7</x/state.db-wal>, "\\0\\1"..., 4096, 32) = 4096',
        "12 10.2 fdatasync(7</x/state.db-wal>)  = 0",
        '13 10.3 pwrite64(6</x/state.db>, "S"..., 100, 0) = 100',
        '13 30.0 pwrite64(6</x/state.db>, "S"..., 100, 0) = 100',
        '14 10.4 pwrite64(7</x/state.db-wal>, "\\3"..., 24, 64 <unfinished ...>',
        "14 10.4 <... pwrite64 resumed>)         = 24",
        "13 10.4 fsync(9</x/results>) = 0",
        "13 10.5 fdatasync(6</x/state.db> <unfinished ...>",
        "13 10.6 <... fdatasync resumed>) = 0",
    ]
    assert written(lines, [(10.0, 11.0)]) == {
        "log": {"bytes": 4120, "flushed": 1},
        "file": {"bytes": 100, "flushed": 1},
    }


@pytest.mark.faults
def test_transactions_of_flowers_own_store_are_noted(tmp_path):
    """In a process of its own: the plugin's name is for all engines of a process."""
    code = f"""
import warnings; warnings.simplefilter("ignore")
from pathlib import Path
from sqlalchemy.dialects import plugins
from benchmarks.counted_superlink import CountedDatabase
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.proto.message_pb2 import ObjectTree
plugins.register("counted", "benchmarks.counted_superlink", "CountedDatabase")
with Path({str(tmp_path / "notes")!r}).open("w", buffering=1) as CountedDatabase.notes:
    store = ObjectStoreFactory("sqlite:///{tmp_path / "state.db"}?plugin=counted").store()
    CountedDatabase.notes.truncate(0)
    CountedDatabase.notes.seek(0)
    store.preregister(1, ObjectTree(object_id="0" * 64))
    "1" * 64 in store
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    lines = (tmp_path / "notes").read_text().splitlines()
    notes = [one for one in map(json.loads, lines) if one.get("state")]
    assert [one["state"] for one in notes] == ["preregister", "__contains__"]
    write, read = notes
    assert write["changed"] == 3  # the lock's row, the object, whose run it is
    assert write["held"] > 0
    assert (read["changed"], read["held"]) == (0, None)
