"""Checks of a simulation before anything starts.

In phases, the cheapest first: values; the results folder; the data; models and strategies.
The package's data sets are not read for it: the server checks again when it has them.
"""

import os
from pathlib import Path

from fl_app.config.allowed_code import client_code_paths
from fl_app.config.rules import check_num_clusters
from fl_app.config.run_config import Config
from fl_core.data.dataset_info import dataset_info, num_sites
from fl_core.data.folders import resolve_data_dir
from fl_core.data.image_files import list_images
from fl_core.data.samples import SampleKind
from fl_core.data.settings import REAL_DEVICES, SYNTHETIC
from fl_core.options import Refusals
from fl_core.partitions.federation_checks import check_federation
from fl_core.text import printable
from fl_core.user_code import is_import_path, load_user_code

_OF_THE_PACKAGE = ("mnist-5k", SYNTHETIC)


def check_simulation(config: Config, folder: Path) -> None:
    """Refuse a simulation that cannot run, or write to this folder."""
    # PyTorch takes seconds: values are checked before.
    _check_values(config)
    from fl_app.run.tracking import check_tracker  # noqa: PLC0415

    _check_folder(folder)
    check_tracker(config.track)
    _check_data(config)


def check_has_rounds(config: Config) -> None:
    """Refuse a run without rounds, which leaves no summary, by a ValueError."""
    if not config.num_server_rounds:
        raise ValueError(
            "num-server-rounds is 0, which only groups clients: choose at least 1, or use fedkin "
            "group."
        )


def _check_folder(folder: Path) -> None:
    """Refuse a folder of results that cannot be written, by a ValueError."""
    if (shown := printable(str(folder))) != str(folder):  # Flower cannot pass it on
        raise ValueError(f"output-dir is {shown}, but must be printable text: give another folder.")
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"output-dir is {folder}, but {there} is a file: give another folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(
            f"output-dir is {folder}, but you may not write to {there}: give another folder, or "
            "have it made writable for you."
        )


def _check_values(config: Config) -> None:
    """Refuse impossible numbers of clients, tasks and clusters, by a ValueError."""
    if config.dataset == REAL_DEVICES:
        raise ValueError(
            f'dataset is "{REAL_DEVICES}", the images of real devices, but fedkin run simulates: '
            "choose a data set, such as `folder` for a folder of images, or see docs/devices.md."
        )
    clients, wrong = config.simulated_clients, Refusals()
    with wrong:
        check_federation(config.federation_settings(clients, config.seed))
    with wrong:
        if isinstance(config.num_clusters, int):
            check_num_clusters(config.strategy, config.num_clusters, clients - config.newcomers)
    wrong.refuse()


def _check_data(config: Config) -> None:
    """Refuse missing data, and models, features and strategies that do not suit the data.

    User-defined data, and data sets with a partition, are read and spread over the clients. For
    others, random samples of their shape are tried; if the shape is unknown, user-defined functions
    are only imported.
    """
    # PyTorch takes seconds.
    from fl_app.config.data_checks import check_samples  # noqa: PLC0415
    from fl_core.data.user_data import DATASET, read_repeatable, read_user_data  # noqa: PLC0415
    from fl_core.partitions.federation import simulate_federation, spread  # noqa: PLC0415

    settings = config.federation_settings(config.simulated_clients, config.seed)
    wrong, federation = Refusals(), None
    kind: SampleKind | None = dataset_info(config.dataset)
    if is_import_path(config.dataset):
        kind = dataset = read_repeatable(DATASET, config.dataset, read_user_data, "every worker")
        with wrong:
            federation = spread(settings, dataset)
    elif num_sites(config.dataset, config.data_dir):
        federation = simulate_federation(settings)
        kind = federation.dataset
    elif config.dataset == "folder":
        list_images(resolve_data_dir(config.data_dir))
    elif config.dataset not in _OF_THE_PACKAGE:
        _check_data_folder(config.data_dir)
    with wrong:
        if kind is not None:
            check_samples(config, kind, federation)
        else:
            for path, key in client_code_paths(config).items():
                load_user_code(key, path)
    wrong.refuse()


def _check_data_folder(data_dir: str) -> None:
    named = data_dir or os.environ.get("FL_DATA_DIR")
    if named and not resolve_data_dir(data_dir).is_dir():
        key = "data-dir" if data_dir else "the variable FL_DATA_DIR"
        raise ValueError(
            f"{key} is {named}, which is not a folder: give the folder with the data sets' "
            "files, or create it for downloads."
        )
