"""What `fedkin run` finds out before it starts anything: a wrong word costs no waiting."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fl_app.config.checks import shares_eigenvectors
from fl_app.config.fits import check_num_eigenvectors, check_objectives
from fl_app.config.own_code import check_own_code
from fl_app.config.run_config import Config
from fl_core.data.folders import resolve_data_dir
from fl_core.data.image_files import check_layout
from fl_core.data.settings import OWN_IMAGES, SYNTHETIC, known_of
from fl_core.federation.federation_checks import check_federation
from fl_core.own_code import is_own
from strategies.catalogue import system_of

PAPER_CLIENTS = 25
"""How many clients are simulated where nobody says."""

_ROOM = 100e6  # bytes that results, logs and Flower's database need at least
_OF_THE_PACKAGE = ("mnist-5k", SYNTHETIC)


def check_run(config: Config, folder: Path) -> None:
    """Refuse a simulation that cannot be, as far as no image of the package is read for that.

    Parameters
    ----------
    folder : Path
        Where its results go.

    Raises
    ------
    ValueError
        If it is one for devices, if tasks or clients cannot be as the configuration says, or if
        there is no folder with data, or one without classes, or none that results can be written
        to, or there are more clusters than clients, more eigenvectors than features, no such layers
        as stay private, or code of one's own is wrong.
    """
    if config.dataset == OWN_IMAGES:
        raise ValueError(
            f'dataset is "{OWN_IMAGES}", the images of real devices, but fedkin run simulates: '
            "choose a data set, such as `folder` for one with images of your own, or see "
            "docs/devices.md."
        )
    clients = config.num_clients or PAPER_CLIENTS
    check_federation(config.federation_settings(clients, config.seed))
    if isinstance(config.num_clusters, int):
        check_num_clusters(config, config.num_clusters, clients - config.newcomers)
    known = known_of(config.dataset)
    if shares_eigenvectors(config.strategy) and known is not None:
        check_num_eigenvectors(config, known)
    _check_data(config)
    check_own_code(config, clients)
    if known is not None:
        check_objectives(config, known)
    _check_room("output-dir", folder)
    _check_temporary()


def check_num_clusters(config: Config, wanted: int, num_clients: int) -> None:
    """Refuse more clusters than there are clients at the start, by a ValueError."""
    exact = any(system_of(name).clustering.exact_number for name in config.strategy)
    if wanted > num_clients and exact:
        raise ValueError(
            f"num-clusters is {wanted}, but there are {num_clients} clients"
            f"{' at the start' if config.newcomers else ''}: choose 1 to {num_clients}."
        )


def _check_data(config: Config) -> None:
    if config.dataset == "folder":
        try:
            check_layout(resolve_data_dir(config.data_dir))
        except OSError as error:
            raise ValueError(str(error)) from error
        return
    named = config.data_dir or os.environ.get("FL_DATA_DIR")
    if not named or config.dataset in _OF_THE_PACKAGE or is_own(config.dataset):
        return
    if not resolve_data_dir(config.data_dir).is_dir():
        key = "data-dir" if config.data_dir else "the variable FL_DATA_DIR"
        raise ValueError(
            f"{key} is {named}, which is no folder: name the one that holds the data sets' files, "
            "or make it, and what can be downloaded will be."
        )


def _check_temporary() -> None:
    """Refuse a TMPDIR that cannot be used: Python passes it over in silence, others fail at it."""
    named = os.environ.get("TMPDIR")
    if named and not Path(named).is_dir():
        raise ValueError(
            f"the variable TMPDIR is {named}, which is no folder: make it, or unset the variable."
        )
    _check_room("the variable TMPDIR", Path(named or tempfile.gettempdir()).absolute())


def _check_room(key: str, folder: Path) -> None:
    """Refuse a folder that is a file, cannot be made or written to, or has no room left."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"{key} is {folder}, but {there} is a file: name another folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(
            f"{key} is {folder}, but you may not write to {there}: name another folder, or have it "
            "made writable for you."
        )
    if (free := shutil.disk_usage(there).free) < _ROOM:
        raise ValueError(
            f"{key} is {folder}, where {free / 1e6:.0f} MB are free, but a run needs "
            f"{_ROOM / 1e6:.0f} MB: make room, or name a folder on another disk."
        )


def planned(config: Config, given: Mapping[str, Any], folder: Path) -> str:
    """Return what would run with the options `given` beside the defaults, in lines of text."""
    last = config.seed + config.repeats - 1
    seeds = f"seeds {config.seed} to {last}" if config.repeats > 1 else f"seed {config.seed}"
    count = len(config.strategy) * config.repeats
    rounds = config.num_server_rounds
    work = f"{count} {'training' if count == 1 else 'trainings'} of {rounds} rounds"
    lines = [
        f"strategies: {', '.join(config.strategy)}",
        f"{seeds}: {work if rounds else 'clients are grouped, nothing is trained'}",
        f"{config.num_clients or PAPER_CLIENTS} clients, data set {config.dataset}, model "
        f"{config.model}",
        f"results would go to {folder}",
    ]
    if given:
        lines.append("not at their defaults: " + " ".join(f"{k}={v}" for k, v in given.items()))
    return "\n".join(lines)
