"""A process that imports PyTorch and Flower once, and forks for each message of a SuperNode.

Started as `python -m fl_app.devices.site.warm PARENT ADDRESS ca.crt HASH`; the last two may be ''.

Forking is safe, since the process has one thread of Python and calls its SuperNode by plain HTTP
(Flower 1.41 has no gRPC there), so no lock is held; and since it computes nothing, so neither
OpenMP nor CUDA has started. The app comes with the run: the installed one replaces it only if it is
the same, byte for byte. Each message is answered by a child, so none changes this process.
"""

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
APP_PACKAGES = ("clients", "fl_app", "fl_core", "strategies")  # they come with each run
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
            return self._client.AcquireTask(asked).token or None
        except httpx.HTTPError as error:  # it starts, or is busy, or is about to end
            _log.debug("the SuperNode does not answer: %s", error)
            return None

    def close(self) -> None:
        """Close the connection of this process; the parent's stays open."""
        self._client.close()


class InstalledApp(NamedTuple):
    """The modules of the installed app, removed from `sys.modules`."""

    modules: dict[str, ModuleType]
    sources: dict[str, bytes]  # their files' contents, by the path within the app

    def replace_if_equal(self, folder: Path) -> None:
        """Use these modules for the app in a folder, if that is the same: it saves their import."""
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


def check_app(digest: str, only: str) -> None:
    """Log the app of a message by the hash of its FAB; refuse it if `only` is another hash."""
    if only and digest != only:
        raise ValueError(
            f"this device runs no app but {only} (--only-app), and the run has {digest}: ask those "
            "who run the server what has changed, and start fedkin node with the new hash to agree."
        )
    _log.info("a message is answered by the app %s", digest)


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
    """Let a child `answer` each message by its token, until an exception; then end all of them."""
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
            alive = [child for child in children if not _has_ended(child)]
            if token or len(alive) < len(children):
                expected_until = time.monotonic() + _EXPECTANT
            children = alive
            soon = not children and time.monotonic() < expected_until
            # The end of a child ends the pause.
            wait([child.sentinel for child in children], _SOON if soon else _LATE)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join(_STOP_SECONDS)
            child.kill()


def _has_ended(child: ForkProcess) -> bool:
    """Return whether a child has ended, and log it if it was killed."""
    if child.is_alive():
        return False
    if (status := child.exitcode or 0) < 0:
        name = signal.Signals(-status).name
        _log.warning(
            "the process for a message was ended by %s: the message fails in a minute", name
        )
    child.close()
    return True


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
    app = warm_up()
    # The run's app is compiled once, where Flower installs it, and not for each message.
    sys.dont_write_bytecode = False
    address = resolve_bind_address(bound)
    authority = Path(path).expanduser().read_bytes() if path else None

    _log.info(READY)
    serve(
        SuperNodeTasks(address, authority),
        lambda token: answer_task(
            *(address, token, authority),
            lambda digest: check_app(digest, only_app),
            app.replace_if_equal,
        ),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
