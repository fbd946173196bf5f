"""The notebooks of `examples/`: each is run from its first cell to its last."""

import re

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tests.notebooks import NOTEBOOKS, ROOT, executed, shown

pytestmark = pytest.mark.slow


@pytest.mark.faults
def test_first_steps(tmp_path):
    text = shown(executed(NOTEBOOKS / "first-steps.ipynb", tmp_path))
    assert re.search(r"Results\(rcc-pfl, single, local in \S*results/", text)
    accuracies = dict(re.findall(r"^(rcc-pfl|single|local) +(0\.\d+)", text, re.M))
    assert float(accuracies["rcc-pfl"]) > max(float(accuracies[n]) for n in ("single", "local"))
    assert "[0, " in text  # which clients are in a cluster


@pytest.mark.faults
def test_own_strategy(tmp_path):
    text = shown(executed(NOTEBOOKS / "own-strategy.ipynb", tmp_path))
    aris = dict(re.findall(r"^(\S+) +0\.\d+ +(\d\.\d+)$", text, re.M))
    own = {"bias:BiasClustering": "1.0", "bias:BiasClustering+median": "1.0"}
    assert aris == {**own, "rcc-pfl": "1.0", "single": "0.0"}


def test_the_clustering_is_the_examples():
    notebook = nbformat.read(NOTEBOOKS / "own-strategy.ipynb", as_version=4)
    code = next(cell.source for cell in notebook.cells if cell.source.startswith("%%writefile"))
    example = (ROOT / "examples/own_strategy/bias_app/bias.py").read_text(encoding="utf-8")
    assert code.partition("\n")[2] == example.rstrip("\n")


def test_what_is_committed_shows_no_output():
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_a_cell_that_raises_is_seen(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(notebook, tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        executed(tmp_path / "wrong.ipynb", tmp_path)
