"""Processes that end with the one that started them, however that one ends."""

import ctypes
import logging
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def configure_logging() -> None:
    """Print log lines on stderr with times."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("fedkin.node").setLevel(logging.INFO)


def can_fork_safely() -> bool:
    """Return whether this system forks, and ends a child with its parent."""
    return sys.platform == "linux"


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Have this process sent the signal `number` once its parent, with this id, has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        signal.raise_signal(number)
