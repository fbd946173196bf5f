"""What is known of a data set before its files are read, so that a wrong option is refused early.

It is read without PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

from fl_core.data.folders import resolve_data_dir, site_folders
from fl_core.data.settings import DATASETS, PLUS, SITES, SYNTHETIC, TABLES, Known
from fl_core.user_code import is_own


def known_of(dataset: str) -> Known | None:
    """Return a data set's facts before its files are read, or None if there are none.

    Raises
    ------
    ValueError
        If it joins images of different shapes.
    """
    if dataset == SYNTHETIC:
        return Known((1, 28, 28), 10)
    found = [DATASETS[part].known for part in dataset.split(PLUS) if part in DATASETS]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(dataset.split(PLUS)):
        return None
    check_one_shape(dataset, [one.image_shape for one in known])
    return Known(known[0].image_shape, sum(one.num_classes for one in known))


def check_one_shape(dataset: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse to join images of different shapes, by a ValueError."""
    if len(set(shapes)) > 1:
        described = " and ".join("×".join(map(str, shape)) for shape in shapes)
        raise ValueError(
            f'dataset is "{dataset}", but images must have one shape, and these are {described} '
            "(channels, height, width)."
        )


def num_labels(dataset: str) -> int | None:
    """Return how many labels tasks can be made of, where it is known before the files are read."""
    known = None if dataset == SYNTHETIC else known_of(dataset)
    if known is None:
        return None
    entry = DATASETS.get(dataset)
    return known.num_classes * (entry.groups_per_class if entry else 1)


def sites_of(dataset: str, data_dir: str = "") -> int:
    """Return with how many clients the data come, 0 if that is left open.

    Raises
    ------
    ValueError
        If a function of one's own, which is called for that, cannot be called or returns no data,
        or there are no tables, or no folders of sites.
    """
    if dataset == TABLES:
        from fl_core.data.tables import table_files  # noqa: PLC0415

        return len(table_files(resolve_data_dir(data_dir)))
    if dataset == SITES:
        return len(site_folders(resolve_data_dir(data_dir)))
    if not is_own(dataset):
        return DATASETS[dataset].sites if dataset in DATASETS else 0
    from fl_core.data.user_data import read_own  # noqa: PLC0415

    held = read_own(dataset).given_partition
    return len(held.train) if held else 0


def check_no_pixels(dataset: str, whose: str, is_float: bool) -> None:
    """Refuse to standardise pixels, by a ValueError; of data not read yet, `is_float` is True."""
    if not is_float:
        raise ValueError(
            f'standardise is "{whose}", but the samples of {dataset} are pixels, which become '
            "numbers from 0 to 1: leave it at none."
        )
