"""Facts about a data set before its files are read, without PyTorch."""

from collections.abc import Sequence

from fl_core.data.folders import list_site_folders, resolve_data_dir
from fl_core.data.settings import DATASETS, PLUS, SITES, SYNTHETIC, TABLES, DatasetInfo
from fl_core.user_code import is_import_path


def dataset_info(dataset: str) -> DatasetInfo | None:
    """Return a data set's shape and number of classes before its files are read, if known."""
    if dataset == SYNTHETIC:
        return DatasetInfo((1, 28, 28), 10)
    known = [DATASETS[part].known if part in DATASETS else None for part in dataset.split(PLUS)]
    parts = [one for one in known if one is not None]
    if len(parts) < len(known):
        return None
    check_one_shape(dataset, [one.sample_shape for one in parts])
    return DatasetInfo(parts[0].sample_shape, sum(one.num_classes for one in parts))


def check_one_shape(dataset: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse to join images of different shapes, by a ValueError."""
    if len(set(shapes)) > 1:
        described = " and ".join("×".join(map(str, shape)) for shape in shapes)
        raise ValueError(
            f'dataset is "{dataset}", which joins images of the shapes {described} (channels, '
            "height, width): join data sets of one shape."
        )


def num_labels(dataset: str) -> int | None:
    """Return how many labels tasks can be made of, if known before the files are read."""
    known = None if dataset == SYNTHETIC else dataset_info(dataset)
    if known is None:
        return None
    return known.num_classes * (DATASETS[dataset].groups_per_class if dataset in DATASETS else 1)


def num_sites(dataset: str, data_dir: str = "") -> int:
    """Return the number of clients that the data come with; 0 if it is free."""
    if dataset == TABLES:
        from fl_core.data.tables import list_site_tables  # noqa: PLC0415

        return len(list_site_tables(resolve_data_dir(data_dir)))
    if dataset == SITES:
        return len(list_site_folders(resolve_data_dir(data_dir)))
    if not is_import_path(dataset):
        return DATASETS[dataset].sites if dataset in DATASETS else 0
    from fl_core.data.user_data import read_user_data  # noqa: PLC0415

    given = read_user_data(dataset).given_partition
    return len(given.train) if given else 0
