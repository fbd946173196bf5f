"""A process that imports PyTorch and Flower once, and forks for each message of a SuperNode.

`fedkin node` starts it as `python -m fl_app.devices.site.warm PARENT ADDRESS ca.crt HASH`; the last
two may be empty.

Forking is safe, since the process has one thread of Python and calls its SuperNode by plain HTTP
(Flower 1.41 has no gRPC there), so no lock is held; and since it computes nothing, so neither
OpenMP nor CUDA has started. The app comes with the run: the installed one replaces it only if it is
the same, byte for byte. Each message is answered by a child, so none changes this process.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

import httpx
import numpy as np

from fl_app.devices.site.child_processes import configure_logging, die_with_parent
from fl_core.flower.tasks import (
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
    TaskType,
    answer_task,
    resolve_bind_address,
    update_console_handler,
)

READY = "ready: this process forks for each message"

APP_PACKAGES = ("clients", "fl_app", "fl_core", "strategies")
"""The packages that come with each run."""

# What PyTorch's optimisers import only once one is made, for some two seconds.
_LATER = "torch._dynamo"

# Seconds between two requests for a message: while one is expected; otherwise, or while one is
# being answered. They stay on this machine.
_SOON, _LATE = 0.1, 1.0
_EXPECTANT = 60.0  # seconds after a message in which the next is expected
_STOP_SECONDS = 5.0

_log = logging.getLogger("fedkin.node")


class SuperNodeTasks:
    """A client of the SuperNode at HOST:PORT; without an authority, by plain HTTP."""

    def __init__(self, address: str, authority: bytes | None) -> None:
        self._client = RuntimeHttpClient.from_server_address(
            address,
            insecure=authority is None,
            root_certificates=authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
        )

    def acquire(self) -> str | None:
        """Return the token of the oldest message; None if there is none or no answer."""
        asked = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        try:
            found = self._client.AcquireTask(asked)
        except httpx.HTTPError as error:  # it starts, or is busy, or is about to end
            _log.debug("the SuperNode does not answer: %s", error)
            return None
        return found.token or None

    def close(self) -> None:
        """Close the connection of this process; the parent's stays open."""
        self._client.close()


class InstalledApp(NamedTuple):
    """The modules of the installed app, removed from `sys.modules`."""

    modules: dict[str, ModuleType]
    sources: dict[str, bytes]  # their files' contents, by the path within the app

    def replace_if_equal(self, folder: Path) -> None:
        """Use these modules for the app in a folder, if that is the same.

        To import 150 modules again takes a quarter of the time of a small message.
        """
        try:
            for path, source in self.sources.items():
                with open(f"{folder}/{path}", "rb") as file:  # noqa: PTH123 - a fifth of the time
                    if file.read() != source:
                        return
        except OSError:
            return
        for name, module in self.modules.items():
            if hasattr(module, "__path__"):
                module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules.update(self.modules)


class AppLog:
    """Logs each app that runs, once, and refuses others than the one that the site allows."""

    def __init__(self, only: str = "") -> None:
        self._only = only
        # Children share it.
        self._last = multiprocessing.get_context("fork").RawArray(ctypes.c_char, len(only) or 64)

    def check(self, digest: str) -> None:
        """Log an app by the hash of its FAB, or raise a ValueError."""
        if self._only and digest != self._only:
            raise ValueError(
                f"this device runs no app but {self._only} (--only-app), and the run has {digest}: "
                "ask those who run the server what has changed, and start fedkin node with the new "
                "hash to agree."
            )
        if self._last.value != digest.encode("ascii"):
            self._last.value = digest.encode("ascii")
            _log.info("messages are answered by the app %s", digest)


def warm_up() -> InstalledApp:
    """Import what answers need, remove the app, and exclude all objects from garbage collection.

    A collection in a child would otherwise write to nearly every page that it shares.
    """
    importlib.import_module("fl_app.client_app")
    importlib.import_module(_LATER)
    app = InstalledApp({}, {})
    for name in list(sys.modules):
        if name.partition(".")[0] in APP_PACKAGES:
            app.modules[name] = module = sys.modules.pop(name)
            end = "/__init__.py" if hasattr(module, "__path__") else ".py"
            path = name.replace(".", "/") + end
            app.sources[path] = Path(module.__file__ or "").read_bytes()
    gc.collect()
    gc.freeze()
    return app


def serve(tasks: SuperNodeTasks, answer: Callable[[str], None]) -> NoReturn:
    """Fork for each message until an exception, and then end the children.

    `answer` answers the message of a token, in a child.
    """
    fork = multiprocessing.get_context("fork").Process
    me = os.getpid()
    children: list[ForkProcess] = []
    expected_until = 0.0
    try:
        while True:
            if (token := tasks.acquire()) is not None:
                child = fork(target=_child, args=(me, tasks, answer, token))
                try:
                    child.start()
                except OSError as error:  # no memory, or too many processes
                    _log.warning("no process can be started for a message: %s", error)
                else:
                    children.append(child)
            children, ended = _alive(children)
            if token or ended:
                expected_until = time.monotonic() + _EXPECTANT
            soon = not children and time.monotonic() < expected_until
            pause = _SOON if soon else _LATE
            if children:  # the end of one ends the pause
                wait([child.sentinel for child in children], pause)
            else:
                time.sleep(pause)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join(_STOP_SECONDS)
            child.kill()


def _alive(children: list[ForkProcess]) -> tuple[list[ForkProcess], int]:
    """Return the children that still run, and how many others have ended."""
    alive = [child for child in children if child.is_alive()]
    for child in children:
        if child not in alive:
            if (child.exitcode or 0) < 0:
                name = signal.Signals(-(child.exitcode or 0)).name
                _log.warning(
                    "the process for a message was ended by %s: the message fails in a minute", name
                )
            child.close()
    return alive, len(children) - len(alive)


def _child(parent: int, tasks: SuperNodeTasks, answer: Callable[[str], None], token: str) -> None:
    """Answer a message as a new process would."""
    die_with_parent(parent, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    tasks.close()
    # Python seeds its generator again in a child, and PyTorch's is the same in each process.
    np.random.seed()  # noqa: NPY002
    answer(token)


def _end(*_: object) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT):  # a second one would interrupt the end
        signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def main(words: list[str]) -> NoReturn:
    """Warm up, and fork until a signal ends this process or its parent ends."""
    configure_logging()
    update_console_handler(timestamps=True)  # of Flower, which prints its log itself
    logging.getLogger("flwr").propagate = False
    parent, bound, path, only_app = words
    die_with_parent(int(parent), signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    app, log = warm_up(), AppLog(only_app)
    # The run's app is compiled once, where Flower installs it, and not for each message.
    sys.dont_write_bytecode = False
    address = resolve_bind_address(bound)
    authority = Path(path).expanduser().read_bytes() if path else None

    _log.info(READY)
    serve(
        SuperNodeTasks(address, authority),
        lambda token: answer_task(address, token, authority, log.check, app.replace_if_equal),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
