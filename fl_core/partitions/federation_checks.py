"""Refuse a simulated federation that is impossible, as far as that is known before reading data."""

from fl_core.data.dataset_info import dataset_info, num_labels
from fl_core.data.samples import GivenPartition, check_no_pixels
from fl_core.data.settings import NOT_STANDARDISED, SYNTHETIC, has_group_tasks
from fl_core.options import at_value
from fl_core.partitions.partition import check_labels, clients_of_tasks
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import Tasks, are_random, default_tasks, parse_tasks


def check_federation(settings: FederationSettings) -> None:
    """Refuse an impossible federation, without reading its samples."""
    check_counts(settings)
    if settings.shift == "concept" or has_group_tasks(settings.dataset):
        check_noise(settings)
    if settings.standardise != NOT_STANDARDISED and settings.dataset != SYNTHETIC:
        check_no_pixels(
            settings.dataset, settings.standardise, dataset_info(settings.dataset) is None
        )
    if settings.shift == "concept":
        check_shift(settings, has_tasks=has_group_tasks(settings.dataset))
    labels = num_labels(settings.dataset)
    if labels is None or settings.shift == "concept" or are_random(settings.tasks):
        return
    tasks = tasks_of(settings, labels)
    check_labels(tasks, range(labels), "training")
    check_noise(settings, tasks)
    clients_of_tasks(len(tasks), settings)


def tasks_of(settings: FederationSettings, num_labels: int) -> Tasks:
    """Return the tasks that options name, or else the usual ones."""
    if settings.tasks:
        return parse_tasks(settings.tasks)
    return default_tasks(settings.dataset, settings.num_tasks, num_labels)


def check_shift(settings: FederationSettings, *, has_tasks: bool) -> None:
    """Refuse a shift of concepts of data that have other tasks."""
    if has_tasks:
        raise ValueError(
            f'shift is "concept", but {settings.dataset} has tasks that are no labels: choose '
            "another data set."
        )


def check_noise(settings: FederationSettings, tasks: Tasks = ((),)) -> None:
    """Refuse label noise where a task has the labels of all others: no label would be wrong."""
    labels = set().union(*tasks)
    whole = [number for number, task in enumerate(tasks) if labels <= set(task)]
    if settings.noise != "none" and whole:
        which = f"task {whole[0]} has all labels" if labels else "all tasks have the same labels"
        raise ValueError(
            f'noise is "{settings.noise}", which replaces a label by one of another task, but '
            f"{which}: set noise to none, or choose other tasks."
        )


def check_number_to_predict(settings: FederationSettings, *, has_tasks: bool) -> None:
    """Refuse label noise, a shift of labels, and several tasks of labels that are numbers."""
    reason = f"but {settings.dataset} predicts a number"
    for key, usual in (("noise", "none"), ("shift", "label")):
        if (value := getattr(settings, key)) != usual:
            raise ValueError(f'{key} is "{value}", {reason}, not a class: set {key} to {usual}.')
    if not has_tasks and (settings.num_tasks > 1 or settings.tasks):
        key = "tasks" if settings.tasks else "num-tasks"
        raise ValueError(
            f"{key} is {settings.tasks or settings.num_tasks}, {reason}, and without classes there "
            "is one task: set num-tasks to 1 and leave tasks empty, or return Partitions, one for "
            "each client."
        )


def check_given(settings: FederationSettings, given: GivenPartition) -> None:
    """Refuse options that would change the partition that data come in."""
    num_clients = len(given.train)
    if settings.num_clients != num_clients:
        raise ValueError(
            f"num-clients is {settings.num_clients}, but {settings.dataset} comes in {num_clients} "
            f"partitions: set num-clients to {num_clients}, and with flwr run num-supernodes, too."
        )
    unused: dict[str, object] = {"tasks": "", "clients_per_task": "", "noise": "none"}
    if given.tasks is None:  # clients of unknown tasks cannot exchange them
        unused["drift_clients"] = 0
    for name, value in unused.items():
        if getattr(settings, name) != value:
            raise ValueError(
                f"{name.replace('_', '-')} is {getattr(settings, name)}, but {settings.dataset} "
                f"comes in partitions: leave it {at_value(value)}."
            )


def num_malicious(settings: FederationSettings) -> int:
    """Return how many clients attack."""
    return round(settings.malicious * settings.num_clients)


def check_counts(settings: FederationSettings) -> None:
    """Refuse more newcomers, drifting or malicious clients than so many clients can have."""
    clients, late = settings.num_clients, settings.newcomers
    if late >= max(clients, 1):
        raise ValueError(
            f"newcomers is {late}, but there are {clients} clients: choose at most {clients - 1}."
        )
    if settings.drift_clients > clients - late:
        raise ValueError(
            f"drift-clients is {settings.drift_clients}, but of {clients} clients only "
            f"{clients - late} are there from the start: choose no more than those."
        )
    share = settings.malicious
    if share > 0 and clients > 1 and not num_malicious(settings):
        least = f"choose at least {1 / clients:.3g}"
        raise ValueError(f"malicious is {share}, less than one of {clients} clients: {least}.")
    # A single client cannot be malicious.
    if not 0 <= share < 1 or (share > 0 and num_malicious(settings) >= clients - (clients == 1)):
        raise ValueError(
            f"malicious is {share}, but of {clients} clients at least one must be honest: choose a "
            "share from 0 to below 1 that leaves one, or attack=none."
        )
