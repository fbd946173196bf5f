"""What a simulation is asked before anything starts: a wrong word costs no waiting.

In phases, the cheapest first: its values, beside what `parse_config` refuses; the place of its
results; the machine; the data; and what is built for them, models and strategies. No images of the
package's data sets are read for that: the server asks the same once more when it has them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_app.config.allowed_code import named_at_clients
from fl_app.config.rules import check_num_clusters
from fl_app.config.run_config import Config
from fl_app.config.tuning import num_trainings
from fl_app.results.layout import output_folder
from fl_app.run.tracking import check_tracker
from fl_app.simulation.resources import gpus_per_client
from fl_core.data.folders import resolve_data_dir
from fl_core.data.image_files import listed_images
from fl_core.data.known import known_of, sites_of
from fl_core.data.settings import OWN_IMAGES, SYNTHETIC
from fl_core.options import Refusals, key_values
from fl_core.partitions.federation_checks import check_federation
from fl_core.text import error_line, printable
from fl_core.user_code import is_own, load_own

if TYPE_CHECKING:  # PyTorch takes seconds: it is imported where it is needed
    from fl_core.partitions.federation import Federation

_ROOM = 100e6  # bytes that results, logs and Flower's database need at least
_OF_THE_PACKAGE = ("mnist-5k", SYNTHETIC)


def check_run(
    config: Config,
    folder: Path | None = None,
    *,
    workers: int = 1,
    gpus: float | None = None,
    elsewhere: bool = False,
) -> tuple[Path, float]:
    """Refuse a simulation that cannot be, or that this machine cannot run.

    Parameters
    ----------
    folder : Path, optional
        Where several simulations go; by default the configuration says where its own results go.
    workers : int
        Ray's.
    gpus : float, optional
        The share of a GPU that each of them is given.
    elsewhere : bool
        Whether they are on other machines, which are not asked here.

    Returns
    -------
    Path
        Where its results go.
    float
        The share of a GPU that each worker has.

    Raises
    ------
    ValueError
        If values do not go together, results cannot be written, the machine lacks a GPU, data are
        not there or cannot be spread over the clients, or what is built for them cannot be.
    MissingExtraError
        If a package is not installed that the tracker or a strategy needs.
    OSError
        If weights of features cannot be had.
    """
    check_values(config)
    folder = check_place(config, folder)
    check_tracker(config.track)
    share = 0.0 if elsewhere else gpus_per_client(config.device, workers, gpus)
    if is_own(config.dataset):
        check_own_data(config)
    else:
        check_parts(config, check_data(config))
    return folder, share


def check_trains(config: Config) -> None:
    """Refuse a run without rounds, which leaves no summary, by a ValueError."""
    if not config.num_server_rounds:
        raise ValueError(
            "num-server-rounds is 0, which only groups clients: choose at least 1, or use fedkin "
            "group."
        )


def check_values(config: Config) -> None:
    """Refuse numbers of clients, tasks and clusters that cannot be, by a ValueError."""
    if config.dataset == OWN_IMAGES:
        raise ValueError(
            f'dataset is "{OWN_IMAGES}", the images of real devices, but fedkin run simulates: '
            "choose a data set, such as `folder` for one with images of your own, or see "
            "docs/devices.md."
        )
    clients, wrong = config.simulated_clients, Refusals()
    with wrong:
        check_federation(config.federation_settings(clients, config.seed))
    with wrong:
        if isinstance(config.num_clusters, int):
            check_num_clusters(config.strategy, config.num_clusters, clients - config.newcomers)
    wrong.refuse()


def check_place(config: Config, folder: Path | None = None) -> Path:
    """Return where results go, if they and temporary files can be written; else a ValueError."""
    folder = folder or output_folder(config.output_dir, config.resume)
    _check_room("output-dir", folder)
    named = os.environ.get("TMPDIR")
    if named and not Path(named).is_dir():  # Python passes it over in silence, others fail at it
        raise ValueError(
            f"the variable TMPDIR is {named}, which is no folder: make it, or unset the variable."
        )
    _check_room("the variable TMPDIR", Path(named or tempfile.gettempdir()).absolute())
    return folder


def check_own_data(config: Config) -> None:
    """Refuse what is wrong with user-defined data, and, all at once, what does not suit them.

    They are read, and spread over the clients.

    Raises
    ------
    ValueError
        If anything is wrong.
    """
    from fl_app.config.data_checks import check_fits  # noqa: PLC0415
    from fl_core.data.user_data import DATASET, read_own, read_twice  # noqa: PLC0415
    from fl_core.partitions.federation import spread  # noqa: PLC0415

    wrong, federation = Refusals(), None
    dataset = read_twice(DATASET, config.dataset, read_own, "every worker")
    with wrong:
        settings = config.federation_settings(config.simulated_clients, config.seed)
        federation = spread(settings, dataset)
    with wrong:
        check_fits(config, dataset, federation)
    wrong.refuse()


def check_data(config: Config) -> Federation | None:
    """Refuse data that are not there, or not laid out as they must be.

    Those that come with clients are read, and spread over them; of others nothing is returned.

    Raises
    ------
    ValueError
        If there is no such folder, a class without images, or tables are wrong.
    """
    try:
        if sites_of(config.dataset, config.data_dir):
            from fl_core.partitions.federation import simulate_federation  # noqa: PLC0415

            clients = config.simulated_clients
            return simulate_federation(config.federation_settings(clients, config.seed))
        if config.dataset == "folder":
            listed_images(resolve_data_dir(config.data_dir))
            return None
    except OSError as error:
        raise ValueError(error_line(error)) from error
    named = config.data_dir or os.environ.get("FL_DATA_DIR")
    if (
        named
        and config.dataset not in _OF_THE_PACKAGE
        and not resolve_data_dir(config.data_dir).is_dir()
    ):
        key = "data-dir" if config.data_dir else "the variable FL_DATA_DIR"
        raise ValueError(
            f"{key} is {named}, which is no folder: name the one that holds the data sets' files, "
            "or make it, and what can be downloaded will be."
        )
    return None


def check_parts(config: Config, federation: Federation | None) -> None:
    """Refuse a model, features and strategies that do not suit the data, as `check_fits` does.

    Of data that are not read, random samples of their shape are tried; where not even that is
    known, functions of one's own are only looked up.
    """
    from fl_app.config.data_checks import check_fits  # noqa: PLC0415

    kind = federation.dataset if federation else known_of(config.dataset)
    if kind is not None:
        check_fits(config, kind, federation)
        return
    for key, path in named_at_clients(config).items():
        load_own(key, path)


def _check_room(key: str, folder: Path) -> None:
    """Refuse a folder that is a file, cannot be made or written to, or has no room left.

    One whose name is not printable text cannot be told to Flower.
    """
    if (shown := printable(str(folder))) != str(folder):
        raise ValueError(f"{key} is {shown}, but must be printable text: name another folder.")
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
    """Describe in lines of text what would run with the options `given` beside the defaults."""
    last = config.seed + config.repeats - 1
    seeds = f"seeds {config.seed} to {last}" if config.repeats > 1 else f"seed {config.seed}"
    count = num_trainings(config.tune, config.strategy) * config.repeats
    rounds = config.num_server_rounds
    work = f"{count} {'training' if count == 1 else 'trainings'} of {rounds} rounds"
    lines = [
        f"strategies: {', '.join(config.strategy)}",
        f"{seeds}: {work if rounds else 'clients are grouped, nothing is trained'}",
        f"{config.simulated_clients} clients, data set {config.dataset}, model {config.model}",
        f"results would go to {folder}",
    ]
    if given:
        lines.append("given: " + " ".join(key_values(given)))
    return "\n".join(lines)
