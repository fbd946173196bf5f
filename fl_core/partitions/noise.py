"""Label noise of RCC-PFL: some labels become one of another task.

Section III flips "for user k" into one label, drawn for each client; section II flips the labels
"of a given task" into "one specific noisy label of another task": the kinds with `PER_TASK`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.partitions.partition import Partition
from fl_core.partitions.settings import PER_TASK, FederationSettings

_STREAM = 0x4015E


def label_noise(
    labels: NDArray[np.int64], partition: Partition, client: int, settings: FederationSettings
) -> NDArray[np.int64]:
    """Return a client's labels, (n,), with noise of a kind of `NOISES`.

    The wrong label is drawn for the client, or for its task. Which samples have it is drawn for
    the client in either case.
    """
    seed, kind = settings.seed, settings.noise.removesuffix(PER_TASK)
    rng = np.random.default_rng([seed, client, _STREAM])
    task, unintended = partition.client_tasks[client], partition.unintended(client)
    if settings.noise != kind and unintended:
        of_task = np.random.default_rng([seed, int(task), _STREAM, 1])
        unintended = (int(of_task.choice(np.asarray(unintended))),)
    labels_of_task = partition.tasks[task]
    return add_label_noise(labels, labels_of_task, unintended, kind, settings.noise_rate, rng)


def add_label_noise(
    labels: NDArray[np.int64],
    task: Sequence[int],
    unintended: Sequence[int],
    kind: str,
    rate: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return one client's labels, (n,), with a share `rate` of them replaced by one wrong label.

    It is drawn uniformly from `unintended`, the labels of all other tasks. Samples are drawn
    without replacement among those with another label, so that exactly `round(rate * n)` labels
    change, or all of those: uniformly with `class-independent` noise; with `class-dependent`, from
    one random label of the client's `task`, the rest from a second one, and so on.
    """
    noisy = labels.copy()
    count = round(rate * len(labels))
    if kind == "none" or count == 0 or not len(unintended):
        return noisy
    wrong = rng.choice(np.asarray(unintended, dtype=np.int64))
    order = rng.permutation(len(labels))
    order = order[labels[order] != wrong]
    if kind == "class-dependent":
        # A stable sort by each label's random rank draws all of one label before the next; labels
        # that are not of the task come last.
        rank = np.full(int(max(labels.max(), *task)) + 1, len(task))
        rank[rng.permutation(np.asarray(task))] = np.arange(len(task))
        order = order[np.argsort(rank[labels[order]], kind="stable")]
    noisy[order[:count]] = wrong
    return noisy
