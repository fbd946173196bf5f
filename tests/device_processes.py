"""Real processes of a federation of devices: SuperLink, gate, SuperNodes, and `flwr` before them.

    with federation(tmp_path) as devices:
        devices.register("berlin", "paris")
        with devices.supernode("berlin", 'name="berlin"') as berlin:
            berlin.wait_for("SuperNode ID")
            run_app(devices.env, APP, "--run-config", "num-clients=1")

Every block ends only once the processes that it started, and all that these started, are gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fl_app.devices.certificates import make_certificates
from fl_app.devices.tls import context_trusting
from fl_core.files import program_path
from tests.processes import free_ports, stop_family, toml_lines

_PATIENCE = 60.0


@dataclass(frozen=True)
class Program:
    """A running program, and what it and its children write."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        """What it said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, wanted: str, timeout: float = _PATIENCE) -> str:
        """Return the first whole line that holds `wanted`; fail if the program or the time ends."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None or time.monotonic() > deadline
            for line in self.text.splitlines(keepends=True):
                if wanted in line and line.endswith("\n"):
                    return line.rstrip("\n")
            if ended:
                raise AssertionError(f"{wanted!r} was not said; the last words:\n{self._end()}")
            time.sleep(0.1)

    def wait_for_exit(self, timeout: float = _PATIENCE) -> int:
        """Return its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs; its last words:\n{self._end()}") from None

    def _end(self) -> str:
        return "\n".join(self.text.splitlines()[-15:])


@contextmanager
def running(
    name: str,
    words: list[str],
    home: Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Start a program in `folder` by its words; stop it and all that it started at the end.

    Its FLWR_HOME, `home`, which no other running program has, gets its log, NAME.log.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            stdout=file,
            stderr=file,
            env=env or environment(home),
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield Program(process, log)
    finally:
        stop_family(process, home)


def environment(home: Path) -> dict[str, str]:
    """Return this process's environment, changed as all Flower programs here want it.

    What docs/devices.md does with options, they must do alone: no variable helps them.
    """
    beside = str(Path(sys.executable).parent)
    kept = dict(os.environ)
    kept.pop("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", None)
    return {
        **kept,
        "PATH": os.pathsep.join([beside, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }


@dataclass(frozen=True)
class Federation:
    """A SuperLink that only this machine reaches, and the gate before it."""

    folder: Path  # of all its files; SuperNodes have theirs in folders named after them
    certificates: Path
    port: int  # of the SuperLink
    gate_port: int
    superlink: Program
    gate: Program
    env: Mapping[str, str]  # in which `flwr` finds the SuperLink

    def flwr(self, *words: str) -> dict[str, Any]:
        """Run a `flwr` command and return its answer."""
        line = [program_path("flwr"), *words, "--format", "json"]
        done = subprocess.run(line, env=self.env, capture_output=True, text=True, check=False)
        # Some commands speak to people before they answer to programs.
        start = done.stdout.find("{")
        assert done.returncode == 0, done.stdout + done.stderr
        assert start >= 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout[start:])
        return answer

    def register(self, *names: str) -> list[int]:
        """Make devices' keys, register them, and return their node ids."""
        make_certificates(self.certificates, [], names)
        keys = [str(self.certificates / f"devices/{name}.pub") for name in names]
        return [
            int(self.flwr("supernode", "register", key, "--name", name)["node-id"])
            for key, name in zip(keys, names, strict=True)
        ]

    @contextmanager
    def supernode(
        self,
        name: str,
        node_config: str = "",
        *,
        key: Path | None = None,
        command: Sequence[str] = ("flower-supernode",),
        **options: str,
    ) -> Iterator[Program]:
        """Start the SuperNode of a registered device; `options` are other values of options."""
        (port,) = free_ports(1)
        given = {
            "port": str(port),
            "superlink": f"127.0.0.1:{self.gate_port}",
            "root_certificates": str(self.certificates / "ca.crt"),
            "auth_supernode_private_key": str(key or self.certificates / f"devices/{name}.key"),
            **({"node_config": node_config} if node_config else {}),
            **options,
        }
        words = [program_path(command[0]), *command[1:], "--host", "127.0.0.1"]
        for option, value in given.items():
            words += [f"--{option.replace('_', '-')}", value]
        with running("supernode", words, self.folder / name) as program:
            yield program

    def started_run(
        self, app: Path, run_config: Mapping[str, Any]
    ) -> AbstractContextManager[Program]:
        """Start a run of the app in a folder; `flwr` shows its log, and ends with it."""
        profile = self.folder / "profile.toml"
        profile.write_text(toml_lines(run_config), encoding="utf-8")
        words = [program_path("flwr"), "run", str(app), "--run-config", str(profile), "--stream"]
        return running("run", words, self.folder / "run", env=self.env)


@contextmanager
def federation(folder: Path, *, patient: bool = True) -> Iterator[Federation]:
    """Start a SuperLink with TLS, known devices only and a database, and the gate before it.

    If `patient`, its database has our patience instead of Flower's.
    """
    certificates = folder / "certificates"
    make_certificates(certificates, ["localhost"], [])
    port, gate_port = free_ports(2)
    home = folder / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "devices"\n\n[superlink.devices]\n'
        f'address = "127.0.0.1:{port}"\nroot-certificates = "{certificates / "ca.crt"}"\n',
        encoding="utf-8",
    )
    words = superlink_words(certificates, port, folder / "superlink" / "state.db", patient=patient)
    with (
        running("superlink", words, folder / "superlink", folder / "superlink") as superlink,
        running("gate", gate_words(certificates, port, gate_port), folder / "gate") as gate,
    ):
        wait_until_healthy(superlink, certificates, port)
        gate.wait_for("the gate listens")
        yield Federation(folder, certificates, port, gate_port, superlink, gate, environment(home))


def superlink_words(
    certificates: Path, port: int, database: Path, *, patient: bool = True
) -> list[str]:
    """Return the command line of a SuperLink as docs/devices.md has it."""
    address = f"sqlite:///{database}?plugin=fedkin" if patient else str(database)
    return [
        program_path("flower-superlink"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--ssl-ca-certfile", str(certificates / "ca.crt")),
        *("--ssl-certfile", str(certificates / "server.crt")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        *("--enable-supernode-auth", "--database", address),
        "--disable-runtime-dependency-installation",
    ]


def gate_words(certificates: Path, port: int, gate_port: int) -> list[str]:
    """Return the command line of a gate."""
    return [
        *(program_path("fedkin"), "gate", "--certificates", str(certificates)),
        *("--listen", f"127.0.0.1:{gate_port}", "--superlink", f"127.0.0.1:{port}"),
    ]


def wait_until_healthy(superlink: Program, certificates: Path, port: int) -> None:
    """Return once a SuperLink answers."""
    deadline = time.monotonic() + _PATIENCE
    with https_client(certificates) as client:
        while time.monotonic() < deadline and superlink.process.poll() is None:
            with suppress(httpx.TransportError):
                client.get(f"https://127.0.0.1:{port}/health").raise_for_status()
                return
            time.sleep(0.2)
    raise AssertionError(f"the SuperLink did not start:\n{superlink.text}")


def https_client(certificates: Path) -> httpx.Client:
    """Return a client that trusts a folder's ca.crt, and uses no proxy."""
    return httpx.Client(verify=context_trusting(certificates / "ca.crt"), trust_env=False)
