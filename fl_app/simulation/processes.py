"""End the processes of Flower and Ray in order, or by a guard if their parent is killed.

`python -m fl_app.simulation.processes HOME` is the guard: it ends them once its input is closed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_STOP_SECONDS = 15
_TRIES = 3


def stop_family(process: subprocess.Popen[bytes], home: Path) -> None:
    """End a process of Flower and all its descendants.

    Children leave the session and outlive their parents. So they are found, before anything ends,
    by descent and by their `FLWR_HOME`, which must be `home` for them and for nothing else.
    """
    family = {member.pid: member for member in _with_home(home)}
    # Once it is reaped, its number may be another program's.
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            for member in (parent, *parent.children(recursive=True)):
                family[member.pid] = member
    _end(family.values())
    process.wait()


@contextmanager
def guarded(home: Path) -> Iterator[None]:
    """End all processes with this `FLWR_HOME`, and remove it, if this process is killed."""
    # -P: a module in the working folder may have the name of one of ours.
    command = [sys.executable, "-P", "-m", "fl_app.simulation.processes", str(home)]
    # In another session, so that Ctrl-C does not end it. The kernel closes its input at our end.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.kill()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C, and signals that act like it, only print a line while processes are ended.

    In another thread than the main one nothing changes: no signal interrupts it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    interrupting = [s for s in signals if signal.getsignal(s) is signal.default_int_handler]
    for number in interrupting:
        signal.signal(number, _say_stopping)
    try:
        yield
    finally:
        for number in interrupting:
            signal.signal(number, signal.default_int_handler)


def _say_stopping(*_: object) -> None:
    with suppress(OSError):
        os.write(2, "stopping…\n".encode())  # not by print, which may be what was interrupted


def main() -> int:
    """Wait for the end of the input, then end the processes of the given folder."""
    home = Path(sys.argv[1])
    sys.stdin.buffer.read()
    for _ in range(_TRIES):  # some start while others end
        if members := _with_home(home):
            _end(members)
    shutil.rmtree(home, ignore_errors=True)
    return 0


def _end(members: Iterable[psutil.Process]) -> None:
    members = list(members)
    for member in members:
        with suppress(psutil.Error):
            member.terminate()
    _, alive = psutil.wait_procs(members, timeout=_STOP_SECONDS)
    for member in alive:
        with suppress(psutil.Error):
            member.kill()
    psutil.wait_procs(alive, timeout=_STOP_SECONDS)


def _with_home(home: Path) -> list[psutil.Process]:
    """Return the other processes with this `FLWR_HOME`, and their descendants.

    Ray's agents overwrite their environment with their titles: only their parents identify them.
    """
    found = {}
    for other in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if other.pid != os.getpid() and other.environ().get("FLWR_HOME") == str(home):
                found[other.pid] = other
                found |= {child.pid: child for child in other.children(recursive=True)}
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
