"""Read seglearn's Apple Watch recordings of shoulder exercises, of ten people and both arms.

Its file has pickled objects, which could run code: it is read only if its SHA-256 is the known one.
"""

from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset
from fl_core.data.settings import Source
from fl_core.data.user_data import ClientArrays, Partitions, dataset_of_partitions
from fl_core.extras import folder_of

EXERCISES = {
    "PEN": "pendulum",
    "ABD": "abduction",
    "FEL": "forward elevation",
    "IR": "internal rotation",
    "ER": "external rotation",
    "TRAP": "trapezius extension",
    "ROW": "upright row",
}
_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"


class Recording(NamedTuple):
    """One person's exercise with one arm, about twenty times, at 50 samples a second."""

    samples: NDArray[np.float32]  # (n, 6): acceleration on three axes in g, rotation in rad/s
    label: int  # the exercise, an index into `EXERCISES`
    site: tuple[int, int]  # the person, from 1, and the arm: 0 is the left one


def read_watch(source: Source) -> Dataset:
    """Read seglearn's recordings; a client is one arm of one person.

    Windows of `source.window` samples follow each other without overlap. Of each recording, the
    first `source.train_share` of the windows, at least one, train; the next one is left out.
    """
    path = folder_of("seglearn", 'dataset="watch"') / "data" / "watch_dataset.npy"
    recordings = _recordings(path)
    sites = sorted({one.site for one in recordings})
    clients = [
        _part([one for one in recordings if one.site == site], source.window, source.train_share)
        for site in sites
    ]
    names = [f"person {person}, {('left', 'right')[arm]} arm" for person, arm in sites]
    classes = tuple(EXERCISES.values())
    given = Partitions(clients, class_names=classes, names=names, is_in_time=True)
    return dataset_of_partitions(source.name, given)


@lru_cache(maxsize=1)  # one table has many shares
def _recordings(path: Path) -> list[Recording]:
    content = path.read_bytes()
    if (checksum := sha256(content).hexdigest()) != _SHA256:
        raise ValueError(
            f'dataset is "watch", but {path} has the SHA-256 {checksum[:12]}… and not '
            f"{_SHA256[:12]}…, that of seglearn 1.2.5, and such a file can run code: install "
            "seglearn==1.2.5 again."
        )
    data = np.load(BytesIO(content), allow_pickle=True).item()
    order = [list(EXERCISES).index(name) for name in data["y_labels"]]
    columns = zip(data["X"], data["y"], data["subject"], data["side"], strict=True)
    return [
        Recording(samples.astype(np.float32), order[int(label)], (int(person), int(arm)))
        for samples, label, person, arm in columns
    ]


def _part(recordings: list[Recording], window: int, share: float) -> ClientArrays:
    """Return one client's windows, (n, 6, window), in order of exercise and of time."""
    train, test = [], []
    for one in sorted(recordings, key=lambda one: one.label):
        count = len(one.samples) // window
        # NumPy's order of axes: window by window, time within, channel.
        windows = one.samples[: count * window].reshape(count, window, -1).transpose(0, 2, 1)
        first = min(max(1, round(share * count)), count - 2)
        train.append((windows[:first], np.full(first, one.label)))
        test.append((windows[first + 1 :], np.full(count - first - 1, one.label)))
    columns = (*zip(*train, strict=True), *zip(*test, strict=True))
    trained, labels, tested, truth = map(np.concatenate, columns)
    return trained, labels, tested, truth
