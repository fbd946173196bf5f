"""Runs the notebooks of `examples/`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples/notebooks"


def executed(path: Path, folder: Path) -> Any:
    """Run a notebook in a folder, and return it with what it shows.

    A cell that raises does so here, as CellExecutionError.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ["IPYTHONDIR"] = str(folder / ".ipython")  # nobody's own settings
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=300, startup_timeout=180, resources=resources)
    client.execute()
    return notebook


def shown(notebook: Any) -> str:
    """Return all that the cells of an executed notebook print or return, as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)
