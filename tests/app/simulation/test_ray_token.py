"""A run's Ray is closed to strangers: processes that were not given its token."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import psutil
import pytest

from tests.processes import fedkin, wait_for_line

pytestmark = [pytest.mark.slow, pytest.mark.faults]

# Each of Ray's services, by a call that does no harm where it is let in.
CALLS = (
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/FreeObjects",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
)
# What a user's environment may say of another Ray, which a run of ours must not join.
OF_A_CLUSTER = {
    "RAY_ADDRESS": "192.0.2.1:6379",
    "RAY_AUTH_MODE": "disabled",
    "RAY_AUTH_TOKEN": "a-cluster-token",
}
STRANGER = """
import sys, ray

@ray.remote(num_cpus=0)
def code():
    return "code ran"

ray.init(address=sys.argv[1], log_to_driver=False)
print(ray.get(code.remote(), timeout=60))
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[psutil.Process]]:
    """Return the processes of a simulation after its first round; end it after the last test."""
    words = ["strategy=local", "num-clients=2", "num-server-rounds=5000", "--workers", "1"]
    folder = tmp_path_factory.mktemp("run")
    with fedkin(["run", *words, f"output-dir={folder}"], **OF_A_CLUSTER) as running:
        try:
            wait_for_line(running, "round   1/5000")
            yield psutil.Process(running.pid).children(recursive=True)
        finally:
            running.send_signal(signal.SIGTERM)
            running.communicate()


def listening(family: list[psutil.Process]) -> list[tuple[str, str, int]]:
    """Return who listens, on which address and on which port."""
    found = []
    for process in family:
        with suppress(psutil.NoSuchProcess):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.append((process.name(), one.laddr.ip, one.laddr.port))
    return found


def ask_ray(family: list[psutil.Process], home: Path, **token: str) -> tuple[str, str]:
    """Let a process, in an environment without anything of ours, run code through Ray."""
    (port,) = {port for name, _, port in listening(family) if name == "gcs_server"}
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, f"127.0.0.1:{port}"],
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            # Ray would otherwise go to this machine's address in the network instead.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_NUM_REDIS_GET_RETRIES": "2",
            **token,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.stderr


def answer(name: str, port: int, call: str) -> str:
    """Return the status with which a port answers somebody who has no token."""
    if "RuntimeEnvAgent" in name:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/get_or_create_runtime_env")
        refused.value.close()
        return {401: "UNAUTHENTICATED"}.get(refused.value.code, str(refused.value.code))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(call)(b"", timeout=20)
        except grpc.RpcError as error:
            return error.code().name
    return "let in"


def test_nothing_listens_to_the_network(family):
    found = listening(family)
    assert {"gcs_server", "raylet"} < {name for name, _, _ in found}
    outside = [one for one in found if one[1].removeprefix("::ffff:") not in {"127.0.0.1", "::1"}]
    assert not outside


def test_a_process_runs_code_only_with_the_token(family, tmp_path):
    said, problem = ask_ray(family, tmp_path)
    assert "code ran" not in said
    assert "Authentication token is missing or incorrect" in problem
    said, _ = ask_ray(family, tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
    assert "code ran" not in said
    (gcs,) = (one for one in family if one.name() == "gcs_server")
    token = {name: value for name, value in gcs.environ().items() if name.startswith("RAY_AUTH")}
    assert token["RAY_AUTH_TOKEN"] != OF_A_CLUSTER["RAY_AUTH_TOKEN"]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            assert token["RAY_AUTH_TOKEN"] not in " ".join(process.cmdline())
    said, problem = ask_ray(family, tmp_path, **token)
    assert "code ran" in said, problem


def test_every_port_of_rays_asks_for_the_token(family):
    for name, _, port in listening(family):
        answers = {answer(name, port, call) for call in CALLS}
        assert "UNAUTHENTICATED" in answers, name
        assert answers <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}, name
