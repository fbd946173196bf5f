"""Shares of GPUs for simulated clients, and the checks of a Ray cluster's nodes."""

import math
import platform
import socket
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from clients.settings import CPU, CUDA
from fl_app.config.run_config import Config
from fl_core.data.settings import SYNTHETIC
from fl_core.text import one_line

_RayNode = dict[str, Any]
_CONNECT_SECONDS = 5.0
_PATIENCE = 600.0  # seconds; a node may have to download the data


def gpus_per_client(device: str, workers: int, given: float | None) -> float:
    """Return the share of a GPU for each worker of this machine; by default, equal shares of all.

    A ValueError if a GPU is needed and there is none, or is given to clients that use the CPU.
    """
    import torch  # noqa: PLC0415

    from clients.accelerator import torch_device  # noqa: PLC0415

    _check_share(device, given)
    if device == CUDA:
        torch_device(device)  # an error if there is none
    there = torch.cuda.device_count()
    if given is not None and given > there:
        raise ValueError(
            f"gpus-per-client is {given}, but PyTorch sees {there} GPUs here: give each client a "
            "share of them, or 0."
        )
    if device == CPU or given is not None:
        return given or 0.0
    share = there / workers
    # Rounded down, so that as many fit as there are workers; above one, Ray takes whole ones only.
    return float(int(share)) if share > 1 else int(share * 10_000) / 10_000


def _check_share(device: str, given: float | None) -> None:
    if given is None:
        return
    if not math.isfinite(given) or given < 0 or (given > 1 and given != int(given)):
        raise ValueError(
            f"gpus-per-client is {given}, but must be a share from 0 to 1, or a whole number."
        )
    if given and device == CPU:
        raise ValueError(
            f"gpus-per-client is {given}, but device is {CPU}: set device to auto, or leave "
            "--gpus-per-client out."
        )
    if not given and device == CUDA:
        raise ValueError(
            f'gpus-per-client is {given}, but device is "{CUDA}": give each client a share, or set '
            "device to auto."
        )


def check_cluster(address: str, device: str, gpus: float | None) -> None:
    """Refuse a Ray cluster that no process answers for, or shares of GPUs that it cannot give.

    `address` is `HOST:PORT`, or "auto" for the cluster that was started on this machine; `gpus` is
    the share of a GPU for each worker.
    """
    _check_share(device, gpus)
    if device == CUDA and not gpus:
        raise ValueError(
            f'device is "{CUDA}", but on a cluster a worker has a GPU only with a share of it: '
            "add --gpus-per-client 0.1, for example."
        )
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        if not host or not port.isdecimal():
            raise ValueError("it is neither HOST:PORT nor auto")
        # Ray would retry forever.
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            pass
    except (OSError, ValueError) as error:
        raise ValueError(
            f"ray-address is {address}, but no Ray cluster can be joined there ({error}): start "
            "one by ray start --head and name it as HOST:PORT, or leave --ray-address out to "
            "simulate on this machine alone."
        ) from error


def check_nodes(config: Config, gpus: float) -> None:
    """Check every node of the Ray cluster that this process has joined, by a ValueError.

    Each reads the data set, which stays cached there for the clients.
    """
    import ray  # noqa: PLC0415

    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    used = [node for node in nodes if num_workers(node, gpus)]
    if not used:
        share = f" and {gpus} of a GPU" if gpus else ""
        raise ValueError(
            f"none of the {len(nodes)} nodes of the Ray cluster has a CPU{share} for a client: add "
            "nodes, or ask for less."
        )
    data = (config.dataset, config.data_dir, config.seed, config.label, config.target)
    here = versions_where_data_are(*data)
    for name, found in _ask_nodes(used, data):
        check_versions(name, found, here)


def num_workers(node: _RayNode, gpus: float) -> int:
    """Return how many workers of one CPU fit on a node, as Flower counts them."""
    has = node["Resources"]
    cpus = int(has.get("CPU", 0))
    return min(cpus, int(has.get("GPU", 0) / gpus)) if gpus else cpus


def _ask_nodes(
    nodes: Sequence[_RayNode], data: tuple[Any, ...]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the versions of each node, in the order of the nodes."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    remote = ray.remote(num_cpus=0)(versions_where_data_are)
    asked = [
        remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(*data)
        for node in nodes
    ]
    for node, answer in zip(nodes, asked, strict=True):
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            yield name, ray.get(answer, timeout=_PATIENCE)
        except ray.exceptions.RayError as error:
            raise ValueError(
                f"node {name} of the Ray cluster cannot import this app or read the data: "
                f"{one_line(str(getattr(error, 'cause', None) or error))}"
            ) from error


def versions_where_data_are(
    dataset: str, data_dir: str, seed: int, label: str, target: str
) -> dict[str, str]:
    """Return this node's versions by package, once it has read the data set."""
    from fl_core.data.datasets import load_dataset  # noqa: PLC0415

    if dataset != SYNTHETIC:  # which needs no files
        load_dataset(dataset, data_dir, seed=seed, label=label, target=target)
    packages = ("fedkin", "flwr", "torch", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def check_versions(name: str, found: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse a node of a cluster with other versions than this machine's, by a ValueError."""
    for package in here:
        if found[package] != here[package]:
            raise ValueError(
                f"node {name} of the Ray cluster has {package} {found[package]}, but here it is "
                f"{here[package]}: install the same on every node, in the environment that its "
                "ray start is of."
            )
