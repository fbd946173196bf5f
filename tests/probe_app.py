"""A small Flower app that asks all nodes and says what it hears through our grid."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl_core.files import program_path
from tests.device_processes import Federation, Program, running

_PYPROJECT = """
[project]
name = "probe"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "nobody"
fab-include = ["probe_server.py", "probe_client.py"]

[tool.flwr.app.components]
serverapp = "probe_server:app"
clientapp = "probe_client:app"

[tool.flwr.app.config]
nodes = 2
rounds = 2
timeout = 20.0
said = ""
"""

_SERVER = '''
import json
import resource
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from fl_app.devices.grid import DeviceGrid

app = ServerApp()
model = ArrayRecord([np.arange(1000.0)])


@app.main()
def main(grid, context):
    """Ask all nodes the same, so many times, and say what they answered."""
    config, grid = context.run_config, DeviceGrid(grid)
    while len(nodes := sorted(grid.get_node_ids())) < config["nodes"]:
        time.sleep(0.1)
    for number in range(1, config["rounds"] + 1):
        content = RecordDict({"arrays": model, "config": ConfigRecord({"round": number})})
        asked = [
            Message(content, dst_node_id=node, message_type="query.ask", ttl=config["timeout"])
            for node in nodes
        ]
        answers = {}
        for reply in grid.send_and_receive(asked, timeout=config["timeout"]):
            node = str(reply.metadata.src_node_id)
            if reply.has_error():
                answers[node] = reply.error.reason
            else:
                (record,) = reply.content.array_records.values()
                answers[node] = record["a"].numpy().tolist()
        said = {"round": number, "answers": answers}
        said["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        with open(config["said"], "a", encoding="utf-8") as file:
            print(json.dumps(said), file=file)
'''

_CLIENT = '''
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("ask")
def answer(message, context):
    """Answer with as many arrays, and bytes in each, as the device's owner says."""
    count, size = context.node_config["arrays"], context.node_config["bytes"]
    drawn = np.random.default_rng(0)
    arrays = {str(i): Array(drawn.integers(0, 256, size, np.uint8)) for i in range(count)}
    return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)
'''


@dataclass(frozen=True)
class Probe:
    """The running probe app.

    Attributes
    ----------
    program : Program
        `flwr run`, whose log ends when the SuperLink cannot read its database for a moment.
    said : Path
        Where the ServerApp writes what it hears: a line of JSON for each round.
    """

    program: Program
    said: Path

    def answers(self, number: int, timeout: float = 90.0) -> dict[str, Any]:
        """Return what the ServerApp answers in a round, once it has ended.

        That is `answers`, by node id numbers or a reason, and `megabytes`, the most it has held.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            text = self.said.read_text("utf-8") if self.said.exists() else ""
            lines = text.split("\n")[:-1]  # the last one may still be written
            if len(lines) >= number:
                answer: dict[str, Any] = json.loads(lines[number - 1])
                return answer
            time.sleep(0.1)
        raise AssertionError(f"round {number} did not end:\n{self.program.text}")


@contextmanager
def probing(devices: Federation, folder: Path, **config: Any) -> Iterator[Probe]:
    """Run the probe app, and show its log, for the length of the block.

    Parameters
    ----------
    devices : Federation
        Where it runs.
    folder : Path
        For its files; its own.
    **config : int or float
        `nodes` to wait for, `rounds`, and `timeout` in seconds.
    """
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PYPROJECT, encoding="utf-8")
    (folder / "probe_server.py").write_text(_SERVER, encoding="utf-8")
    (folder / "probe_client.py").write_text(_CLIENT, encoding="utf-8")
    config["said"] = str(folder / "said.jsonl")
    given = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    words = [program_path("flwr"), "run", str(folder), "devices", "--stream"]
    words += ["--run-config", given]
    with running("probe", words, folder / "home", env=devices.env) as program:
        yield Probe(program, Path(config["said"]))
