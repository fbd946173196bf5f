"""Where a client computes: on the CPU or on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clients.settings import AUTO, CPU, CUDA


def torch_device(name: str) -> torch.device:
    """Return the device of that name, with deterministic kernels; `AUTO`: a GPU if there is one."""
    if name == CPU or (name == AUTO and not torch.cuda.is_available()):
        return torch.device(CPU)
    if not torch.cuda.is_available():
        raise ValueError(
            f'device is "{CUDA}", but PyTorch sees no GPU here: give clients a share of one by '
            "fedkin run --gpus-per-client 0.1, install a build of PyTorch for your GPU, or set "
            f"device to {AUTO} or {CPU}."
        )
    # By default convolutions round to ten bits there.
    torch.backends.cudnn.allow_tf32 = False
    # cuBLAS reads it when it is first used, and without it adds up in any order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device(CUDA)


def gpu_name(name: str) -> str | None:
    """Return what the GPU of `torch_device(name)` is called; None if that is the CPU."""
    device = torch_device(name)
    return torch.cuda.get_device_name(device) if device.type == CUDA else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute on one thread for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
