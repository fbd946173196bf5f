"""A private SuperLink for a simulation, which leaves no process behind."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fl_app.simulation.processes import guarded, stop_family, uninterrupted
from fl_core.files import program_path
from fl_core.proxies import bypass_proxies_on_loopback

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's advice about a variable that this app does not use.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# For a private Ray; a running cluster has its settings already.
PRIVATE_RAY = {
    **RAY_SETTINGS,
    # Models of up to 4 MB travel inside Ray's calls instead of through its object store: measured,
    # a worker waits 8 ms instead of 14 for its next client (a model of 640 kB).
    "RAY_max_direct_call_object_size": "4000000",
    "RAY_task_rpc_inlined_bytes_limit": "100000000",
    # Never a cluster that runs here, or that the user's RAY_ADDRESS names.
    "RAY_ADDRESS": "local",
    # In spite of its name it works on Linux: Ray takes 127.0.0.1 as this machine's address and
    # listens nowhere else. Without it, with two workers, five of its processes listen on all
    # addresses and the sixth on the network's.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Workers that are started before it is known what they need are thrown away.
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise, any process that reaches one of its ports can run code.
    "RAY_AUTH_MODE": "token",
    # A CNN tested in batches of 1000 needs arrays of 19 to 50 MB. glibc would give each back to the
    # system and ask for it again: two fifths of a test's time (benchmarks/results/README.md).
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),
}

_START_SECONDS = 60
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CHATTER = ("INFO :", "DEBUG :", "Successfully installed ", "Using SuperLink", "warnings.warn(")
_CHATTER_WITHIN = ("Manually terminating", "Since flwr 1.32")


def print_line(line: str) -> None:
    """Print a line of a log at once."""
    print(line, end="", flush=True)


def run_app(
    env: Mapping[str, str], app: Path, *options: str, show: Callable[[str], None] = print_line
) -> bool:
    """Run `flwr run` with the app in a folder, show its log, and return whether it succeeded.

    `env` is from `private_superlink`; `show` is called with each line of the log.
    """
    run_id = str(_flwr(env, "run", str(app), *options, "--format", "json")["run-id"])
    with subprocess.Popen(
        [program_path("flwr"), "log", run_id, "--stream"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as stream:
        explained = False
        for line in stream.stdout or ():
            if not explained and not _is_chatter(line):
                try:
                    show(line)
                except BaseException:
                    stream.kill()  # or leaving would wait for the end of the run
                    raise
            # After our sentence, Flower prints a traceback.
            explained = explained or line.startswith("error: ")
    listed = _flwr(env, "ls", "--run-id", run_id, "--format", "json")
    return str(listed["runs"][0]["status"]) == "finished:completed"


@contextmanager
def private_superlink(
    home: Path, ray_address: str = "", settings: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Start a SuperLink on free ports; stop it, and all that it started, at the end.

    Its files go to the empty folder `home`. Yield the environment in which `flwr` finds it.
    Its simulations join the Ray cluster at `ray_address`, or start a private Ray; `settings` are
    more variables of its environment.
    """
    bypass_proxies_on_loopback()
    http_port, control_port = free_ports(2)
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http_port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control_port),
        # The app runs in the environment it is installed in, not in a new one for each run.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        **_ray_settings(ray_address),
        **(settings or {}),
    }
    command = [
        *(program_path("flower-superlink"), "--insecure", "--simulation"),
        *("--isolation", "subprocess"),
        *("--control-api-address", f"127.0.0.1:{control_port}"),
        *("--host", "127.0.0.1", "--port", str(http_port)),
    ]
    log = home / "superlink.log"
    with log.open("w", encoding="utf-8") as file, guarded(home):
        # In another session: Ctrl-C reaches only this process, which then stops it in order.
        process = subprocess.Popen(
            command, env=env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait_until_healthy(process, http_port, log)
            yield env
        finally:
            with uninterrupted():
                stop_family(process, home)


def _ray_settings(ray_address: str) -> dict[str, str]:
    if ray_address:  # its token, if it needs one, is in the user's environment
        return {**RAY_SETTINGS, "RAY_ADDRESS": ray_address}
    # In the environment, so on no command line and in no file; a new one for each SuperLink.
    return {**PRIVATE_RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    tail = "".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[-5:])
    raise RuntimeError(f"the SuperLink did not start; its log ends with:\n{tail}")


def _flwr(env: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Run a `flwr` command that answers in JSON."""
    done = subprocess.run(
        [program_path("flwr"), *arguments], env=env, capture_output=True, text=True, check=False
    )
    try:
        # Where FORCE_COLOR is set, as in a notebook, even JSON has colours.
        answer: dict[str, Any] = json.loads(_COLOUR.sub("", done.stdout))
    except json.JSONDecodeError:
        answer = {}
    if done.returncode or not answer.get("success"):
        said = answer.get("error-message") or (done.stdout + done.stderr).strip()
        raise RuntimeError(f"flwr {arguments[0]} failed: {said}")
    return answer


def _is_chatter(line: str) -> bool:
    """Return whether a line is one of Flower's or Ray's routine messages."""
    plain = _COLOUR.sub("", line).strip()
    return plain.startswith(_CHATTER) or any(part in plain for part in _CHATTER_WITHIN)


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
