"""Run a simulation: in this process, or with Ray's workers in a process that ends with this one.

`python -m fl_app.launch` is that process: it reads what to run from its input.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from logging.handlers import QueueHandler
from queue import SimpleQueue

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from threadpoolctl import threadpool_limits

from fl_app.config.allowed_code import ALLOWED_CODE, client_code_paths
from fl_app.config.run_config import DEFAULTS, parse_config
from fl_app.run.experiment import run_experiment
from fl_app.simulation.in_process_grid import InProcessGrid, answer
from fl_app.simulation.ray_grid import RayGrid
from fl_app.simulation.resources import check_nodes
from fl_app.simulation.simulated_clients import Simulation
from fl_core.options import Scalar
from fl_core.text import error_line

FAILURES = (ValueError, OSError, RuntimeError, ImportError)
"""What a run raises with a sentence for its user."""

_STOP_SECONDS = 30.0  # for Ray, before its processes are killed

_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's advice about a variable that this app does not use.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# For a private Ray; a running cluster has its settings already.
_PRIVATE_RAY = {
    # Models of up to 4 MB travel inside Ray's calls instead of through its object store.
    "RAY_max_direct_call_object_size": "4000000",
    "RAY_task_rpc_inlined_bytes_limit": "100000000",
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


def run_here(
    options: Mapping[str, Scalar], spread: Callable[[InProcessGrid], Grid] = lambda nodes: nodes
) -> None:
    """Run a simulation whose clients answer in this process, or where `spread` lets them."""
    from clients.accelerator import one_thread  # noqa: PLC0415 - it imports PyTorch
    from fl_app.client_app import app  # noqa: PLC0415

    run_config = {**DEFAULTS, **options}
    config = parse_config(run_config)
    count = config.simulated_clients
    # The user's own processes may run the user's code.
    shared = {"num-partitions": count, ALLOWED_CODE: ",".join(client_code_paths(config))}
    nodes = [{"partition-id": client, **shared} for client in range(count)]
    # One thread, as Ray's workers have: sums of several threads may differ in the last bit.
    with one_thread(), threadpool_limits(1):
        run_experiment(config, spread(InProcessGrid(app, nodes, run_config)), Simulation)


class Worker:
    """Answers messages of any client, one after the other, in a process of Ray's."""

    def __init__(self) -> None:
        from fl_app.client_app import app  # noqa: PLC0415 - in the worker's process

        self._app, self._records = app, SimpleQueue[logging.LogRecord]()
        logging.root.addHandler(QueueHandler(self._records))
        logging.root.setLevel(logging.INFO)

    def answer(
        self, message: Message, context: Context
    ) -> tuple[Message, RecordDict, list[logging.LogRecord]]:
        """Return the answer to a message, the node's state after it, and what was logged."""
        found = answer(self._app, message, context)
        return found, context.state, [self._records.get() for _ in range(self._records.qsize())]


def run_on_ray(
    options: Mapping[str, Scalar],
    show: Callable[[str], None],
    *,
    workers: int,
    gpus: float,
    address: str = "",
) -> bool:
    """Run a simulation on a private Ray or a cluster, and return whether it succeeded.

    `show` is called with each line of its log. All processes end with this call.
    """
    env = {**os.environ, **_RAY_SETTINGS, "PYTHONUNBUFFERED": "1"}
    if not address:
        # The token is on no command line and in no file.
        env |= {**_PRIVATE_RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        env |= {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
    given = {"options": dict(options), "workers": workers, "gpus": gpus, "address": address}
    # -P: a module in the working folder may have the name of one of ours.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "fl_app.launch"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches only this process, which then stops it in order
    ) as process:
        try:
            with suppress(BrokenPipeError):  # then its log says why it has ended
                print(json.dumps(given), file=process.stdin, flush=True)
            for line in process.stdout or ():
                show(line)
        finally:
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_STOP_SECONDS)  # closes its input: it ends
            finally:  # at a second Ctrl-C, too
                with suppress(OSError):  # Ray's agents outlive it for a while if it was killed
                    os.killpg(process.pid, signal.SIGKILL)
    return process.returncode == 0


def main() -> int:
    """Run the simulation that the input's first line describes; stop at the end of the input."""
    import ray  # noqa: PLC0415 - of the extra simulation

    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    address, gpus = given["address"], given["gpus"]
    resources = {} if address else {"num_cpus": given["workers"], "include_dashboard": False}
    try:
        config = parse_config({**DEFAULTS, **given["options"]})
        ray.init(address or "local", **resources, logging_level=logging.ERROR)
        if address:
            check_nodes(config, gpus)
        run_here(given["options"], lambda nodes: RayGrid(nodes, Worker, config.min_answers, gpus))
    except (*FAILURES, ray.exceptions.RayError) as error:
        print("error:", error_line(error).replace("\n", " "), flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        ray.shutdown()
    return 0


def _stop_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_STOP_SECONDS)
    os.killpg(0, signal.SIGKILL)  # this process and Ray's, where the signal was ignored


if __name__ == "__main__":
    sys.exit(main())
