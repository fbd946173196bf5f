"""Finished trainings in a folder, for the other simulations of a table or a sweep."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from pathlib import Path

from clients.settings import (
    AcceleratorSettings,
    AttackSettings,
    PrivacySettings,
    TrainingSettings,
)
from fl_app.config.run_config import Config
from fl_core.data.settings import FederationSettings
from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from fl_core.options import key_of
from strategies import Roster
from strategies.engine.training import Training
from strategies.reuse import Finished, Trainings

FOLDER = "FEDKIN_TRAININGS"
"""The environment variable that names the folder, where there is one."""

MOST_BYTES = 2**30
"""Of the models of a training; larger ones are only shared within a simulation."""

_OF_CLIENTS = (
    TrainingSettings,
    FederationSettings,
    AttackSettings,
    PrivacySettings,
    AcceleratorSettings,
)
SEEN = {"model"} | {key_of(one) for kind in _OF_CLIENTS for one in fields(kind)} - {"seed"}
"""The keys of what clients see when they train. All else that counts, a strategy itself knows: its
clusters, its parts, the seed and the rounds."""


class KeptTrainings(Trainings):
    """Those of this process, and those that others have left in a folder.

    Parameters
    ----------
    folder : Path
        For as long as the code does not change.
    config : Config
        Of this simulation: those with other data, or who train otherwise, find nothing of it.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        super().__init__()
        self._folder = folder
        said = {key: value for key, value in config.as_run_config().items() if key in SEEN}
        self._prefix = hashlib.sha256(repr(sorted(said.items())).encode()).hexdigest()

    def find(self, key: str) -> Finished | None:
        """Return the training that depended on the same, if there is one."""
        path = self._path(key)
        if (found := super().find(key)) is not None or not path.is_file():
            return found
        saved = load_checkpoint(path)
        training = Training.from_checkpoint(saved["training"], Roster(), saved["per-client"])
        super().keep(key, finished := Finished(saved["label"], training))
        return finished

    def keep(self, key: str, finished: Finished) -> None:
        """Let others find a training that has ended."""
        super().keep(key, finished)
        training = finished.training
        models = {id(model): model for model in training.models}.values()
        if sum(array.nbytes for model in models for array in model.values()) <= MOST_BYTES:
            saved = {"label": finished.label, "per-client": training.per_client}
            save_checkpoint(self._path(key), {**saved, "training": training.as_checkpoint()})

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(f"{self._prefix} {key}".encode()).hexdigest()
        return self._folder / f"{name}.safetensors"


def trainings_of(config: Config) -> Trainings | None:
    """Return where a run's strategies find each other's trainings; None if each is to train.

    Where clients compare strategies, each is: they score only what they train and test themselves.
    """
    if not config.reuse or config.validation_share:
        return None
    folder = os.environ.get(FOLDER)
    return KeptTrainings(Path(folder), config) if folder else Trainings()
