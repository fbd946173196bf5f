"""Runs the notebooks of `examples/`: `python -m tests.notebooks` keeps what they show in them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples/notebooks"


def executed(path: Path, folder: Path) -> Any:
    """Run a notebook in a folder, and return it with what it shows.

    The folder is left out of it. A cell that raises does so here, as CellExecutionError.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ["IPYTHONDIR"] = str(folder / ".ipython")  # nobody's own settings
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=300, startup_timeout=180, resources=resources)
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output["data"][kind] = text.replace(f"{folder}/", "")
    return notebook


def shown(notebook: Any) -> str:
    """Return all that the cells of an executed notebook print or return, as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def main() -> int:
    """Run all notebooks and write them."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder).resolve())
        nbformat.write(notebook, path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
