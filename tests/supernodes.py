"""Processes that look like SuperNodes from outside, and do nothing."""

import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def supernode(node_config, program="/opt/fedkin/bin/flower-supernode"):
    """Run a process with a SuperNode's command line."""
    command = [sys.executable, "-IS", "-c", "print(flush=True); input()", program]
    command += ["--superlink", "fl.example.org:9092", "--node-config", node_config]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
