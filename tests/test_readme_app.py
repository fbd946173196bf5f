"""The README's complete app, file by file and command by command."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app.simulate import free_ports, program_path, stop_family

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("## A strategy in your own Flower app") :].partition("\n## From")[0]


def write_app(folder: Path) -> None:
    """Write each block of the section into the file that its first line names."""
    blocks = re.findall(r"```(?:toml|python)\n(# (\S+)\n.*?)```", SECTION, re.DOTALL)
    assert [name for _, name in blocks] == [
        "pyproject.toml",
        "my_app/client.py",
        "my_app/server.py",
    ]
    for text, name in blocks:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def command() -> list[str]:
    """Return the section's only command."""
    (line,) = re.findall(r"```sh\n(flwr run .*?)\n```", SECTION, re.DOTALL)
    _, *words = shlex.split(line)
    return [program_path("flwr"), *words]


def numbers(said: str, name: str) -> list[float]:
    """Return what the log says of a mean over the clients, round by round."""
    return [
        float(re.search(rf"'{name}': ([0-9.]+|nan)", line)[1])
        for line in said.splitlines()
        if "Aggregated MetricRecord" in line and f"'{name}': " in line and "accuracy" in line
    ]


def test_the_app_groups_its_clients_and_learns(tmp_path):
    app, home = tmp_path / "app", tmp_path / "flwr"
    app.mkdir()
    home.mkdir()
    write_app(app)
    http_port, control_port = free_ports(2)
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("FLWR_", "RAY_"))},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        # A SuperLink for this test alone; nothing that helps the app.
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http_port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control_port),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    with subprocess.Popen(
        command(), cwd=app, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=180)
        finally:
            stop_family(running, home)
    assert "clusters {0: 0, 1: 1, 2: 0, 3: 1}" in said, said
    assert "models ['0', '1']" in said
    accuracies, losses = numbers(said, "accuracy"), numbers(said, "loss")
    assert len(accuracies) == len(losses) == 3
    assert accuracies[0] < accuracies[-1]
    assert accuracies[-1] > 0.95
    assert losses == sorted(losses, reverse=True)
