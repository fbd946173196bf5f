"""Read the rodents of the Portal project: weights and feet on 24 plots, by genus."""

import base64
import csv
import json
import lzma
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset
from fl_core.data.settings import Source
from fl_core.data.user_data import Partitions, dataset_of_partitions

GENERA = (
    *("Chaetodipus", "Dipodomys", "Neotoma", "Onychomys"),
    *("Perognathus", "Peromyscus", "Reithrodontomys"),
)
"""Those with at least 1,000 records; the other two have 253 together."""
TREATMENTS = {
    "control": (2, 4, 8, 11, 12, 14, 17, 22),
    "short-term kangaroo rat exclosure": (6, 13, 18, 20),
    "long-term kangaroo rat exclosure": (3, 15, 19, 21),
    "banner-tailed kangaroo rat exclosure": (1, 9),
    "rodent exclosure": (5, 7, 10, 16, 23, 24),
}
"""What was done to each plot, drawn at random by the project."""
_FILE = Path(__file__).parent / "files" / "portal-rodents.json"
_COLUMNS = ("weight [50 g]", "hind foot [30 mm]")
_SCALES = (50.0, 30.0)  # so that both are of order one and nothing is fitted to the data
_TESTED = 5  # of so many visits, the last one tests


def read_portal(source: Source) -> Dataset:
    """Read the rodents with a weight and a foot's length; a client is a plot, its task a treatment.

    The label is the genus, one of `GENERA`. Each fifth visit to the plots is for testing.
    """
    visits, plots, labels, samples = _records()
    is_test = visits % _TESTED == _TESTED - 1
    task_of = {plot: task for task, group in enumerate(TREATMENTS.values()) for plot in group}
    clients = []
    for plot in sorted(task_of):
        train, test = (plots == plot) & ~is_test, (plots == plot) & is_test
        clients.append((samples[train], labels[train], samples[test], labels[test]))
    words = list(TREATMENTS)
    given = Partitions(
        clients,
        tasks=[task_of[plot] for plot in sorted(task_of)],
        class_names=GENERA,
        names=[f"plot {plot}, {words[task_of[plot]]}" for plot in sorted(task_of)],
    )
    return replace(dataset_of_partitions(source.name, given), column_names=_COLUMNS)


@lru_cache(maxsize=1)
def _records() -> tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]
]:
    """Return each record's visit, from 0, plot, genus and numbers, (n, 2), in order of time."""
    # As text, since Flower's apps carry no other files.
    packed = json.loads(_FILE.read_text(encoding="utf-8"))["csv-xz-base85"]
    lines = lzma.decompress(base64.b85decode(packed)).decode().splitlines()
    rows = [row for row in csv.DictReader(lines) if row["genus"] in GENERA]
    months = np.array([12 * int(row["year"]) + int(row["month"]) for row in rows])
    visits = np.unique(months, return_inverse=True)[1]
    plots = np.array([int(row["plot"]) for row in rows])
    labels = np.array([GENERA.index(row["genus"]) for row in rows])
    numbers = [(float(row["weight"]), float(row["hindfoot_length"])) for row in rows]
    return visits, plots, labels, (np.array(numbers) / _SCALES).astype(np.float32)
