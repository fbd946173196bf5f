"""Where the results of a run go, and what its files are called (docs/results.md has them all)."""

from __future__ import annotations

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
CHECKPOINTS = "checkpoints"
WHOLE = "[!.]*.safetensors"
"""Checkpoints but not what a killed process had begun to write."""


def of_run(kind: str, strategy: str, seed: int | str) -> str:
    """Return the stem of the file of a kind, such as `similarity`, of one strategy on one seed."""
    return f"{kind}-{strategy}-seed-{seed}"


def similarity_path(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return where the similarity matrix of a strategy's clients is."""
    return folder / f"{of_run('similarity', strategy, seed)}.npz"


def spectra_path(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return where the eigenvectors of a strategy's clients are."""
    return folder / f"{of_run('spectra', strategy, seed)}.safetensors"


def models_folder(folder: Path, strategy: str, seed: int | str) -> Path:
    """Return where the models of a strategy are."""
    return folder / MODELS / strategy / f"seed-{seed}"


def output_folder(output_dir: str, resume: str = "") -> Path:
    """Return the absolute output folder: the one given, else results/DATE-TIME right here.

    A run that is resumed goes on in its own folder.

    Raises
    ------
    ValueError
        If it holds results already, or there is nothing to resume.
    """
    if resume:
        folder = Path(resume).expanduser().absolute()
        if output_dir and Path(output_dir).expanduser().absolute() != folder:
            raise ValueError(
                f"output-dir is {output_dir}, but resume is {resume}, and a resumed run goes on in "
                "its own folder: leave output-dir out."
            )
        if not any(folder.glob(f"{CHECKPOINTS}/{WHOLE}")):
            raise ValueError(
                f"resume is {resume}, but there is no checkpoint in {folder / CHECKPOINTS}: name "
                "the results folder of a run with checkpoint-every, or start anew without resume."
            )
        return folder
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    folder = Path(output_dir or f"results/{stamp}").expanduser().absolute()
    # Of a first checkpoint that could not be written, the folder may be there.
    there = (SUMMARY, GROUPING, f"{CHECKPOINTS}/{WHOLE}")
    if any(path for name in there for path in folder.glob(name)):
        raise ValueError(
            f"output-dir is {folder}, which holds results already: name another folder, move them "
            "away, or go on with an interrupted run by resume."
        )
    return folder
