"""The folder and the file names of a run's results (docs/results.md)."""

import csv
import hashlib
import re
from datetime import datetime
from pathlib import Path

SUMMARY = "summary.json"
METRICS = "metrics.csv"
CLIENTS = "clients.csv"
VERDICTS = "verdicts.csv"
GROUPING = "grouping.json"
REPORT = "report.html"
MODELS = "models"
SWEEP = "sweep.csv"
CELLS = "cells"
LOG = "log.txt"
CHECKPOINTS = "checkpoints"
WHOLE = "[!.]*.safetensors"
"""Complete checkpoints; a killed process leaves files that begin with a dot."""


_LONGEST_NAME = 80


def file_name(text: str) -> str:
    """Return a text as a part of a path: of others than plain names, with a hash of the text.

    Examples
    --------
    >>> file_name("rcc-pfl"), file_name("my:Ocfl+mean"), file_name("..")
    ('rcc-pfl', 'my_Ocfl_mean-7ad1d5b7', '-5ec1f7e7')
    """
    safe = re.sub(r"[^\w.,=-]", "_", text)
    if safe == text and len(text) <= _LONGEST_NAME and not text.startswith("."):
        return text
    return f"{safe.lstrip('.')[:_LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def run_file_stem(kind: str, strategy: str, seed: int | str) -> str:
    """Return the stem of a file of one strategy on one seed, of a kind such as `similarity`."""
    return f"{kind}-{file_name(strategy)}-seed-{seed}"


def similarity_path(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return the path of the similarity matrix of a strategy's clients."""
    return folder / f"{run_file_stem('similarity', strategy, seed)}.npz"


def spectra_path(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return the path of the eigenvectors of a strategy's clients."""
    return folder / f"{run_file_stem('spectra', strategy, seed)}.safetensors"


def models_folder(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return the folder of a strategy's models."""
    return folder / MODELS / file_name(strategy) / f"seed-{seed}"


def cell_folders(folder: Path) -> list[Path]:
    """Return the results folders of a sweep that have ended; of a run, its own."""
    if not (folder / SWEEP).is_file():
        return [folder]
    with (folder / SWEEP).open(encoding="utf-8", newline="") as file:
        cells = dict.fromkeys(row["cell"] for row in csv.DictReader(file))
    return [folder / CELLS / cell for cell in cells if Path(cell).name == cell]


def output_folder(output_dir: str, resume: str = "") -> Path:
    """Return the absolute output folder: `resume`, `output_dir`, or results/DATE-TIME."""
    if resume:
        folder = Path(resume).expanduser().absolute()
        if output_dir and Path(output_dir).expanduser().absolute() != folder:
            raise ValueError(
                f"output-dir is {output_dir}, but resume is {resume}, and a resumed run continues "
                "in the folder of its checkpoint: leave output-dir out."
            )
        if not any(folder.glob(f"{CHECKPOINTS}/{WHOLE}")):
            raise ValueError(
                f"resume is {resume}, but there is no checkpoint in {folder / CHECKPOINTS}: name "
                "the results of a run with checkpoint-every, or start a new run without resume."
            )
        return folder
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    folder = Path(output_dir or f"results/{stamp}").expanduser().absolute()
    # Of a first checkpoint that could not be written, the folder may be there.
    there = (SUMMARY, GROUPING, f"{CHECKPOINTS}/{WHOLE}")
    if any(path for name in there for path in folder.glob(name)):
        raise ValueError(
            f"output-dir is {folder}, which has results already: give another folder, move them "
            "away, or continue an interrupted run by resume."
        )
    return folder
