"""`fedkin node`: a site's SuperNode, and beside it a process that is ready for its messages."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from fl_app.devices.site.parents import can_fork_safely, end_with, log_here
from fl_core.files import program_path

_STOP_SECONDS = 20.0
_FILES = ("--root-certificates", "--auth-supernode-private-key")
_ONLY_ASKING = {"-h", "--help", "--version", "-V"}
_REST = 2.0  # seconds before what was killed is started again

_log = logging.getLogger("fedkin.node")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `node` to the command line."""
    parser = commands.add_parser(
        "node",
        help="take part in runs, at a site: a SuperNode that is ready for its messages",
        usage="fedkin node OPTIONS",
        description="Start flower-supernode with its own options, all of them, and beside it a "
        "process that has PyTorch imported once and forks for each message, instead of starting "
        "one that imports everything anew. Where forking is not to be had (it takes Linux), or "
        "dependencies are to be installed for each run, the SuperNode starts a process for each "
        "message, and this says so. `flower-supernode --help` lists the options.",
    )
    parser.set_defaults(call=_run, supernode=())


def _run(options: argparse.Namespace) -> int:
    log_here()
    return run_node(options.supernode)


def run_node(words: list[str]) -> int:
    """Run a SuperNode until it ends, and return its exit status, or 0 after a polite kill.

    Parameters
    ----------
    words : list of str
        The options of `flower-supernode`.
    """
    options = _parse(words)
    alone = _why_alone(options)
    if is_asking := bool(_ONLY_ASKING.intersection(words)):
        lock: AbstractContextManager[object] = nullcontext()
    else:
        lock = _check(options)
    command = [program_path("flower-supernode"), *words]
    if alone:
        _log.warning("the SuperNode starts a process for each message: %s", alone)
    else:
        command += ["--isolation", "process"]
    ends_too = partial(end_with, os.getpid(), signal.SIGTERM) if can_fork_safely() else None
    started: list[subprocess.Popen[bytes]] = []
    with lock, suppress(KeyboardInterrupt):
        try:
            # A group of its own: Ctrl-C is for this process, which then ends the others in order.
            supernode = subprocess.Popen(
                command,
                preexec_fn=ends_too,  # noqa: PLW1509 - one thread
                process_group=0 if ends_too else None,  # else nothing ends it with a terminal
            )
            started = [supernode]
            if alone:
                return _ended(supernode.wait(), is_asking=is_asking)
            while supernode.poll() is None:
                started = [supernode, _warm(options)]
                while all(process.poll() is None for process in started):
                    child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                    if child and child.si_pid not in [process.pid for process in started]:
                        os.waitpid(child.si_pid, 0)  # an orphan that this process was given
                ended = started[-1].poll()
                if ended is not None and ended > 0:
                    raise RuntimeError(
                        f"what answers messages has ended with status {ended}: see above why."
                    )
                if ended is not None and supernode.poll() is None:
                    _log.warning(
                        "what answers messages was ended by %s and is started again: the "
                        "server is told in a minute that a message was not answered",
                        signal.Signals(-ended or signal.SIGTERM).name,
                    )
                    time.sleep(_REST)
            return _ended(supernode.returncode, is_asking=is_asking)
        finally:
            _stop(started)
    return 0


def _parse(words: list[str]) -> argparse.Namespace:
    """Read the options of `flower-supernode` that matter here."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    parser.add_argument("--ssl-ca-certfile")
    parser.add_argument("--isolation")
    parser.add_argument("--superexec-auth-secret-file")
    parser.add_argument("--allow-runtime-dependency-installation", action="store_true")
    parser.add_argument("--node-config", default="")
    for option in _FILES:
        parser.add_argument(option, type=Path)
    return parser.parse_known_args(words)[0]


def _why_alone(options: argparse.Namespace) -> str:
    """Return why a SuperNode must start its processes itself; empty: it need not."""
    for option in ("isolation", "superexec-auth-secret-file"):
        if getattr(options, option.replace("-", "_")) is not None:
            raise ValueError(
                f"fedkin node takes no --{option}, since it starts what answers messages itself: "
                "leave the option out, or start flower-supernode."
            )
    if options.allow_runtime_dependency_installation:
        return "each run may bring packages of its own (--allow-runtime-dependency-installation)"
    return "" if can_fork_safely() else f"there is no safe fork on {sys.platform}"


def _check(options: argparse.Namespace) -> AbstractContextManager[object]:
    """Refuse what Flower would fail at in the midst of its code; return the lock of the model."""
    from fl_app.devices.site.model_files import check_apps  # noqa: PLC0415 - half a second
    from fl_core.flower.node import read_node_config  # noqa: PLC0415

    config = read_node_config(options.node_config)
    for option in _FILES:
        path = getattr(options, option.strip("-").replace("-", "_"))
        if path is not None and not path.expanduser().is_file():
            raise ValueError(
                f"{option} {path} is no file: give the one that was sent to this site."
            )
    check_apps()
    try:
        with socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((options.host, int(options.port)))
    except (OSError, OverflowError, ValueError) as error:
        is_used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise ValueError(
            f"no SuperNode can answer at --host {options.host} --port {options.port} "
            f"({'in use' if is_used else error}): give each SuperNode of a machine a --port of its "
            "own, 1 to 65535, and leave --host out."
        ) from error
    return _lock_model(str(config.get("model-path", "")))


def _lock_model(model_path: str) -> AbstractContextManager[object]:
    """Lock a device's model, which another device of this machine would overwrite."""
    from fl_app.devices.site.model_files import check_model_path, expand  # noqa: PLC0415

    path = expand(model_path)
    if not path.is_absolute():  # or there is none
        return nullcontext()
    check_model_path(path)
    try:
        return FileLock(path.with_name(f".{path.name}.lock")).acquire(blocking=False)
    except Timeout as error:
        raise ValueError(
            f"model-path is {path}, where another fedkin node of this machine saves its model: "
            "give each device a model-path of its own."
        ) from error


def _address(options: argparse.Namespace) -> str:
    """Return where the SuperNode will answer its own machine's processes."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"


def _warm(options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start the process that forks for messages; the SuperNode need not answer yet."""
    authority = options.ssl_ca_certfile
    words = [str(os.getpid()), _address(options), *([authority] if authority else [])]
    # -P: what lies in the folder where a site is started is not imported, as in Flower's programs.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fl_app.devices.site.warm", *words], process_group=0
    )


def _ended(status: int, *, is_asking: bool) -> int:
    """Return an exit status as a shell gives it, and 1 where a SuperNode has left its server.

    One whose signature is refused ends with 0, as if it had been told to.
    """
    if status == 0 and not is_asking:
        _log.error(
            "the SuperNode has ended by itself, as it does where the server refuses its signature: "
            "a clock is wrong, or its key was revoked; `fedkin devices check` says which"
        )
        return 1
    return status if status >= 0 else 128 - status


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
