"""The complete app of docs/own-app.md: `examples/own_app`, run by the command that it prints."""

import re
from pathlib import Path

import pytest

from tests.example_runs import EXAMPLES, ROOT, commands_of, run_example

PAGE = (ROOT / "docs/own-app.md").read_text(encoding="utf-8")
APP = EXAMPLES / "own_app"


def files_of(folder: Path) -> dict[str, str]:
    """Return the text of an app's files, by their path in its folder."""
    paths = (path for path in folder.rglob("*") if path.suffix in {".py", ".toml"})
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths}


def test_the_page_shows_the_files_and_the_command():
    blocks = re.findall(r"```(?:toml|python)\n(# (\S+)\n.*?)```", PAGE, re.DOTALL)
    assert {name: text for text, name in blocks} == files_of(APP)
    (command,) = re.findall(r"```sh\n(.*?)\n```", PAGE, re.DOTALL)
    assert command == commands_of(APP / "README.md")


def numbers(said: str, name: str) -> list[float]:
    """Return what the log says of a mean over the clients, round by round."""
    return [
        float(re.search(rf"'{name}': ([0-9.]+|nan)", line)[1])
        for line in said.splitlines()
        if "Aggregated MetricRecord" in line and f"'{name}': " in line and "accuracy" in line
    ]


@pytest.mark.slow
def test_the_app_groups_its_clients_and_learns(tmp_path):
    said = run_example("own_app", tmp_path)
    assert "clusters {0: 0, 1: 1, 2: 0, 3: 1}" in said, said
    assert "models ['0', '1']" in said
    accuracies, losses = numbers(said, "accuracy"), numbers(said, "loss")
    assert len(accuracies) == len(losses) == 3
    assert accuracies[0] < accuracies[-1]
    assert accuracies[-1] > 0.95
    assert losses == sorted(losses, reverse=True)
