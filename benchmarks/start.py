"""Seconds until all clients have answered, beside the least that Flower's start takes here.

`python -m benchmarks.start` starts two apps by turns in the same way, with 25 clients each: ours,
from `fedkin run` to the line that says that clients are ready, and one that does nothing but import
PyTorch at its clients and ask each once. What lies between is ours: options and their checks, the
images, and the rest of the app's imports.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fl_app.launch.superlink import private_superlink, run_app

CLIENTS = 25
_READY = "clients are ready"
_ANSWERED = "all have answered"
_PYPROJECT = """
[project]
name = "nothing"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "nothing.app:server"
clientapp = "nothing.app:client"
"""
_APP = f"""
import time

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.query()
def answer(message, context):
    import torch

    return Message(content=message.content, reply_to=message)


@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < {CLIENTS}:
        time.sleep(0.05)
    asked = RecordDict({{"question": ConfigRecord({{"number": 1}})}})
    list(grid.send_and_receive([Message(asked, node, "query") for node in nodes]))
    print("{_ANSWERED}", flush=True)
"""


def least_seconds(workers: int) -> float:
    """Return the seconds until the clients of an app that does nothing have answered.

    Raises
    ------
    RuntimeError
        If they have not.
    """
    with tempfile.TemporaryDirectory() as made:
        app, home = Path(made, "app"), Path(made, "flwr")
        (app / "nothing").mkdir(parents=True)
        home.mkdir()
        (app / "pyproject.toml").write_text(_PYPROJECT, encoding="utf-8")
        (app / "nothing" / "__init__.py").touch()
        (app / "nothing" / "app.py").write_text(_APP, encoding="utf-8")
        federation = f"num-supernodes={CLIENTS} client-resources-num-cpus=1"
        federation += f" init-args-num-cpus={workers}"
        said, answered = [], []

        def show(line: str) -> None:
            said.append(line)
            if _ANSWERED in line:
                answered.append(time.perf_counter())

        started = time.perf_counter()
        with private_superlink(home) as env:
            run_app(env, app, "--federation-config", federation, show=show)
    if not answered:
        raise RuntimeError(f"the app that does nothing failed:\n{''.join(said)}")
    return answered[0] - started


def our_seconds(workers: int) -> float:
    """Return the seconds from `fedkin run` to its clients being ready.

    Raises
    ------
    RuntimeError
        If they never are.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [f"num-clients={CLIENTS}", "strategy=single", "num-server-rounds=1"]
        words += [f"output-dir={folder}", "--workers", str(workers)]
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "fl_app.cli", "run", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            ready = 0.0
            for line in running.stdout or ():
                if _READY in line:
                    ready = time.perf_counter()
    if not ready:
        raise RuntimeError("fedkin run did not say that clients are ready: try it alone.")
    return ready - started


def main() -> None:
    """Time both in turn and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    workers = options.workers
    rows = [(least_seconds(workers), our_seconds(workers)) for _ in range(options.repeats)]
    print(f"\n{platform.machine()}, {workers} workers, {CLIENTS} clients")
    print("an app that does nothing   fedkin run")
    for least, ours in rows:
        print(f"{least:22.1f} s   {ours:8.1f} s")
    least, ours = (median(column) for column in zip(*rows, strict=True))
    print(f"median: {least:.1f} s and {ours:.1f} s, {ours - least:.1f} s of them ours")


if __name__ == "__main__":
    main()
