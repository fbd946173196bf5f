"""Pipes that nobody writes to."""

import os
import threading
from contextlib import contextmanager


@contextmanager
def not_waited_for(pipe, seconds=3):
    """Fail if somebody waits for `pipe` in the block, and let go of them after some seconds."""
    waited = []

    def let_go():
        try:
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody waits
            return
        waited.append(pipe)

    timer = threading.Timer(seconds, let_go)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        assert not waited
