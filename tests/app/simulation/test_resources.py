"""Where simulated clients run: shares of GPUs, and a Ray cluster of two nodes."""

import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest
import torch

from fl_app.cli import main
from fl_app.simulation import resources
from fl_app.simulation.resources import check_cluster, gpus_per_client
from tests.app_runs import ALL_STEPS, run, without_seconds

RUN = ["strategy=rcc-pfl", "num-clients=6", "num-server-rounds=2"]


@pytest.mark.parametrize(
    ("gpus", "device", "given", "share"),
    [
        (0, "auto", None, 0.0),
        (0, "cpu", None, 0.0),
        (1, "cpu", None, 0.0),
        (1, "auto", None, 0.3333),  # three of them fit
        (2, "cuda", None, 0.6666),
        (8, "cuda", None, 2.0),  # above one, Ray takes whole ones only
        (1, "auto", 0.1, 0.1),
        (1, "auto", 0.0, 0.0),
    ],
)
def test_workers_share_the_gpus_evenly(monkeypatch, gpus, device, given, share):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)
    assert gpus_per_client(device, 3, given) == share


@pytest.mark.parametrize(
    ("device", "given", "said"),
    [
        ("auto", -0.5, "must be a share from 0 to 1, or a whole number"),
        ("auto", 1.5, "must be a share from 0 to 1, or a whole number"),
        ("auto", float("inf"), "is inf, but must be a share from 0 to 1, or a whole number"),
        ("auto", float("nan"), "is nan, but must be a share from 0 to 1, or a whole number"),
        ("cuda", 0.0, "give each client a share, or set device to auto"),
    ],
)
def test_a_share_that_is_none_is_refused_here_and_on_a_cluster(device, given, said):
    with pytest.raises(ValueError, match=said):
        gpus_per_client(device, 2, given)
    with pytest.raises(ValueError, match=said):
        check_cluster("auto", device, given)


@pytest.mark.parametrize("count", ["-3", "many"])
def test_workers_are_counted(capsys, count):
    with pytest.raises(SystemExit):
        main(["run", "--workers", count])
    assert f"{count} is not a whole number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["device=cuda"], 'device is "cuda", but PyTorch sees no GPU here'),
        (["--gpus-per-client", "0.1"], "gpus-per-client is 0.1, but PyTorch sees 0 GPUs here"),
        (["--ray-address", "here"], "it is neither HOST:PORT nor auto"),
        (["--ray-address", "127.0.0.1:1"], "no Ray cluster can be joined there"),
        (["--ray-address", "auto", "device=cuda"], "add --gpus-per-client 0.1"),
    ],
)
def test_what_is_not_there_is_said_before_anything_starts(monkeypatch, capsys, words, said):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_gpu_is_not_shared_among_clients_that_use_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"gpus-per-client is 0\.5, but device is cpu"):
        gpus_per_client("cpu", 2, 0.5)


def test_a_node_reads_the_data_and_says_its_versions(tmp_path):
    found = resources.versions_where_data_are("mnist-5k", "", 0, "", "")
    assert found["torch"] == torch.__version__.partition("+")[0]
    assert found["python"] == platform.python_version()
    with pytest.raises(OSError, match="cannot be read"):
        resources.versions_where_data_are("cifar100", str(tmp_path), 0, "", "")


def test_a_node_with_another_version_is_named():
    here = {"python": "3.11", "flwr": "1"}
    resources.check_versions("b", here, here)
    with pytest.raises(ValueError, match=r"node b .* has python 3\.9\.1, but here it is 3\.11"):
        resources.check_versions("b", {**here, "python": "3.9.1"}, here)


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
raylets = [one.process.pid for n in cluster.list_all_nodes() for one in n.all_processes["raylet"]]
print(cluster.address, *raylets, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[int]]]:
    """Yield the address and the raylets' process ids of a cluster of two nodes, one CPU each."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CLUSTER],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        try:
            address, *raylets = running.stdout.readline().split()
            yield address, [int(pid) for pid in raylets]
        finally:
            running.communicate(timeout=60)


def busy_workers(raylets: list[int], seconds: dict[int, float], done: threading.Event) -> None:
    """Keep, for each raylet, how long its clients' workers have computed."""
    while not done.wait(0.2):
        for pid in raylets:
            for child in psutil.Process(pid).children():
                try:
                    if child.cmdline()[:1] == ["ray::Worker"]:
                        used = child.cpu_times()
                        seconds[pid] = max(seconds.get(pid, 0), used.user)
                except psutil.Error:
                    continue


def fedkin(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fl_app.cli", "run", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.faults
def test_a_cluster_of_two_nodes_computes_what_one_machine_does(tmp_path, cluster):
    address, raylets = cluster
    seconds: dict[int, float] = {}
    done = threading.Event()
    watch = threading.Thread(target=busy_workers, args=(raylets, seconds, done))
    watch.start()
    try:
        there = fedkin(*RUN, f"output-dir={tmp_path / 'there'}", "--ray-address", address)
    finally:
        done.set()
        watch.join()
    assert there.returncode == 0, there.stdout + there.stderr
    assert set(seconds) == set(raylets)  # clients were on both
    assert min(seconds.values()) > 1
    run(tmp_path / "here", strategy="rcc-pfl", num_tasks=2, **ALL_STEPS)
    found = [
        without_seconds(json.loads((tmp_path / where / "summary.json").read_text()))
        for where in ("there", "here")
    ]
    assert found[0] == found[1]
    models = sorted(
        path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.safetensors")
    )
    assert len(models) >= 2
    for path in models:
        assert (tmp_path / "there" / path).read_bytes() == (tmp_path / "here" / path).read_bytes()
    # A node where something is missing is named before a client is asked.
    for words, said in (
        (("dataset=cifar100", f"data-dir={tmp_path}"), "cannot be read"),
        (
            ("--gpus-per-client", "0.5"),
            "none of the 2 nodes of the Ray cluster has a CPU and 0.5",
        ),
    ):
        refused = fedkin(*words, "--ray-address", address)
        assert refused.returncode == 1
        assert said in refused.stdout
