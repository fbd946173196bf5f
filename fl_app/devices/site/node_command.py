"""`fedkin node`, a site's SuperNode with a process that answers its messages, and its check."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from fl_app.devices.site.child_processes import can_fork_safely, configure_logging, die_with_parent
from fl_app.devices.tls import check_port, parse_address
from fl_core.files import program_path

_STOP_SECONDS = 20.0
_FILES = ("--root-certificates", "--auth-supernode-private-key")
_DECIDED_HERE = re.compile(
    "--(isolation|superexec-auth-secret-file|allow-runtime-dependency-installation)"
)
_REST = 2.0  # seconds before a process that was killed is started again
_LOOK_AGAIN = 0.5  # seconds between two looks whether a process has ended
# A SuperLink counts a node as connected for a minute after its last heartbeat, and activates none
# twice. It says the same of a key that is not registered.
_REFUSED = b"[code: 2004]"
_REFUSED_SECONDS = 75.0
_REFUSED_REST = 10.0

_log = logging.getLogger("fedkin.node")


def add_node_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `node` to the command line."""
    parser = commands.add_parser(
        "node",
        help="take part in runs, at a site: start a SuperNode that answers without delay",
        usage="fedkin node OPTIONS",
        description="Start flower-supernode with any of its options, and a process that imports "
        "PyTorch once and forks for each message. `flower-supernode --help` lists the options.",
    )
    parser.add_argument(
        "--only-app",
        default="",
        metavar="HASH",
        help="refuse the app of a run unless its FAB has this SHA-256 hash; the node logs the hash "
        "of each app that it runs",
    )
    parser.set_defaults(call=_run, supernode=())


def add_check_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `check` to the subcommands of `fedkin devices`."""
    check = commands.add_parser(
        "check",
        help="check a site before a run: data, server, certificate, key",
        description="At a site, with the options of its SuperNode: read its data, reach the "
        "server, and ask whether this device's key is registered. The exit status is 1 if "
        "anything is wrong.",
    )
    check.add_argument("--superlink", required=True, metavar="HOST:PORT", help="the gate")
    for option, metavar, what in (
        ("--root-certificates", "ca.crt", "the authority's certificate"),
        ("--auth-supernode-private-key", "NAME.key", "this device's key"),
    ):
        check.add_argument(option, type=Path, required=True, metavar=metavar, help=what)
    check.add_argument(
        "--node-config",
        required=True,
        metavar="KEYS",
        help='for example \'name="berlin" data-path="/srv/scans"\'',
    )
    check.add_argument(
        "--port",
        type=int,
        help="the SuperNode's port on this machine, if it is to be checked that it is free",
    )
    check.set_defaults(call=_check_site)


def _check_site(options: argparse.Namespace) -> int:
    from fl_app.devices.site.check import Site, check_site  # noqa: PLC0415 - imports PyTorch
    from fl_app.devices.site.device_node import NodeConfig  # noqa: PLC0415
    from fl_core.flower.node import read_node_config  # noqa: PLC0415

    host, port = parse_address(options.superlink, "--superlink")
    files = (options.root_certificates, options.auth_supernode_private_key)
    config = NodeConfig.of(read_node_config(options.node_config))
    findings = check_site(Site(host, port, *files, config, options.port))
    for finding in findings:
        print(f"{'✓' if finding.is_right else '✗'} {finding.what:<10} {finding.said}")
    return 0 if all(finding.is_right for finding in findings) else 1


def _run(options: argparse.Namespace) -> int:
    configure_logging()
    return run_node(options.supernode, options.only_app)


def run_node(words: list[str], only_app: str = "") -> int:
    """Run a SuperNode with these options; return its exit status, or 0 after SIGTERM or Ctrl-C."""
    if not {"--version", "-V"}.isdisjoint(words):  # it prints, and ends
        return subprocess.call([program_path("flower-supernode"), *words])
    _check_words(words, only_app)
    options = _parse(words)
    command = [program_path("flower-supernode"), *words, "--isolation", "process"]
    started: list[subprocess.Popen[bytes]] = []
    warm = None
    until = 0.0  # when a device that the server refuses is given up
    with _check_options(options), suppress(KeyboardInterrupt):
        try:
            while True:
                # In another process group: Ctrl-C is for this process, which then ends the others.
                supernode = subprocess.Popen(
                    command,
                    stderr=subprocess.PIPE,
                    preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509
                    process_group=0,
                )
                refused = threading.Event()
                copying = (supernode.stderr, refused)
                log = threading.Thread(target=_copy_log, args=copying, daemon=True)
                log.start()
                started = [supernode, *([warm] if warm else [])]
                while supernode.poll() is None:
                    if warm is None:
                        warm = _start_warm(options, only_app)
                        started = [supernode, warm]
                    time.sleep(_LOOK_AGAIN)
                    if warm.poll() is not None and supernode.poll() is None:
                        _check_ended(warm.returncode)
                        warm = None
                log.join(_LOOK_AGAIN)
                if not refused.is_set():
                    return _exit_status(supernode.returncode)
                until = until or time.monotonic() + _REFUSED_SECONDS
                if (left := until - time.monotonic()) <= 0:
                    _log.error("the server still refuses this device: run `fedkin devices check`")
                    return supernode.returncode
                _log.warning(
                    "the server refuses this device (code 2004): it counts one that was killed as "
                    "connected for a minute. Otherwise its key is not registered, or another "
                    "SuperNode uses it. Trying again, for %.0f more seconds",
                    left,
                )
                time.sleep(_REFUSED_REST)
        finally:
            _stop(started)
    return 0


def _copy_log(lines: BinaryIO, refused: threading.Event) -> None:
    """Print a SuperNode's log, and note whether the server has refused to activate it."""
    with lines:
        for line in lines:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
            if _REFUSED in line:
                refused.set()


def _check_ended(status: int) -> None:
    """Raise an error if what answers messages has failed; otherwise log that it is restarted."""
    if status > 0:
        raise RuntimeError(
            f"the process that answers messages has ended with status {status}: see the log above."
        )
    _log.warning(
        "the process that answers messages was ended by %s and is restarted: a message that it was "
        "answering fails in a minute",
        signal.Signals(-status or signal.SIGTERM).name,
    )
    time.sleep(_REST)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    parser.add_argument("--ssl-ca-certfile", default="")
    parser.add_argument("--node-config", default="")
    for option in _FILES:
        parser.add_argument(option, type=Path)
    return parser.parse_known_args(words)[0]


def _check_words(words: list[str], only_app: str) -> None:
    if found := next(filter(None, map(_DECIDED_HERE.match, words)), None):
        raise ValueError(
            f"fedkin node has no option {found[0]}, since it answers messages itself: leave the "
            "option out, or start flower-supernode."
        )
    if not can_fork_safely():
        raise ValueError("fedkin node needs Linux: start flower-supernode here.")
    if only_app and not re.fullmatch("[0-9a-f]{64}", only_app):
        raise ValueError(
            f"--only-app is {only_app}, but it must be a SHA-256 hash, 64 digits from 0 to f: copy "
            "it from the line in this node's log that names the app of a run."
        )


def _check_options(options: argparse.Namespace) -> AbstractContextManager[object]:
    """Refuse options at which Flower would fail later; return the lock of the model."""
    from fl_app.devices.site.model_files import check_apps  # noqa: PLC0415 - half a second
    from fl_core.flower.node import read_node_config  # noqa: PLC0415

    config = read_node_config(options.node_config)
    for option in _FILES:
        path = getattr(options, option.strip("-").replace("-", "_"))
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"{option} {path} is not a file: give the one sent to this site.")
    check_apps()
    check_port(options.host, options.port)
    return _lock_model(str(config.get("model-path", "")))


def _lock_model(model_path: str) -> AbstractContextManager[object]:
    """Lock a device's model, so that no other device of this machine overwrites it."""
    from fl_app.devices.site.model_files import check_model_path, expand  # noqa: PLC0415

    path = expand(model_path)
    if not path.is_absolute():  # or there is none
        return nullcontext()
    check_model_path(path)
    try:
        return FileLock(path.with_name(f".{path.name}.lock"), mode=0o600).acquire(blocking=False)
    except Timeout as error:
        raise ValueError(
            f"model-path is {path}, where another fedkin node of this machine saves its model: "
            "give each device another model-path."
        ) from error


def _start_warm(options: argparse.Namespace, only_app: str) -> subprocess.Popen[bytes]:
    """Start the process that forks for messages."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    words = [str(os.getpid()), f"{host}:{options.port}", options.ssl_ca_certfile, only_app]
    # -P: no module is imported from the working directory, as in Flower's programs.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fl_app.devices.site.warm", *words], process_group=0
    )


def _exit_status(status: int) -> int:
    """Return the exit status of a SuperNode as a shell does, and 1 where it has left its server."""
    if status == 0:  # a SuperNode ends with 0 if its signature is refused
        _log.error(
            "the SuperNode has ended by itself, as it does when the server refuses its signature: "
            "its clock is wrong, or its key was revoked. Run `fedkin devices check` to see which."
        )
        return 1
    return status if status >= 0 else 128 - status


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()  # nothing happens to one that has ended
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
