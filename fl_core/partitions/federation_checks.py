"""What a simulated federation cannot be, as far as that is known before its images are read."""

from __future__ import annotations

from collections.abc import Sequence

from fl_core.data.known import check_no_pixels, known_of, num_labels
from fl_core.data.settings import NOBODY, SYNTHETIC, has_own_tasks
from fl_core.options import at_value
from fl_core.partitions.partition import check_labels, clients_of_tasks, default_tasks, parse_tasks
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import are_random, parse_counts


def check_federation(settings: FederationSettings) -> None:
    """Refuse a federation that cannot be, without reading its images.

    Raises
    ------
    ValueError
        If there cannot be so many newcomers, drifting or malicious clients, so many tasks, or so
        few clients for them, if tasks name a label that the data set has not, if there is noise
        where tasks have the same labels, or pixels are to be standardised.
    """
    check_counts(settings)
    check_noise(settings, settings.shift == "concept" or has_own_tasks(settings.dataset))
    if settings.standardise != NOBODY and settings.dataset != SYNTHETIC:
        check_no_pixels(settings.dataset, settings.standardise, known_of(settings.dataset) is None)
    labels = num_labels(settings.dataset)
    if labels is None or settings.shift == "concept" or are_random(settings.tasks):
        return
    if settings.tasks:
        tasks = parse_tasks(settings.tasks)
        check_labels(tasks, range(labels), "training")
    else:
        tasks = default_tasks(settings.dataset, settings.num_tasks, labels)
    check_wrong_labels(settings, tasks)
    clients_of_tasks(len(tasks), settings.num_clients, parse_counts(settings.clients_per_task))


def check_wrong_labels(settings: FederationSettings, tasks: Sequence[Sequence[int]]) -> None:
    """Refuse noise where a task has all labels of the others: none would be wrong. A ValueError."""
    labels = set().union(*tasks)
    whole = [number for number, task in enumerate(tasks) if labels <= set(task)]
    if settings.noise != "none" and whole:
        raise ValueError(
            f'noise is "{settings.noise}", but it mistakes a label for one of another task, and '
            f"task {whole[0]} has all labels: set noise to none, or choose other tasks."
        )


def check_noise(settings: FederationSettings, same_labels: bool) -> None:
    """Refuse noise, a label of another task, where all have the same labels, by a ValueError."""
    if same_labels and settings.noise != "none":
        raise ValueError(
            f'noise is "{settings.noise}", but it mistakes a label for one of another task, and '
            "here all tasks have the same labels: set noise to none."
        )


def check_number_to_predict(settings: FederationSettings, *, has_tasks: bool) -> None:
    """Refuse what takes labels for classes where they are numbers to predict.

    Raises
    ------
    ValueError
        If there is label noise, a shift of labels, or several tasks and nothing to make them of:
        the data have neither groups nor partitions of their own.
    """
    about = f"but {settings.dataset} predicts a number"
    for key, value, usual in (
        ("noise", settings.noise, "none"),
        ("shift", settings.shift, "label"),
    ):
        if value != usual:
            raise ValueError(f'{key} is "{value}", {about}, not a class: set {key} to {usual}.')
    if not has_tasks and (settings.num_tasks > 1 or settings.tasks):
        key = "tasks" if settings.tasks else "num-tasks"
        raise ValueError(
            f"{key} is {settings.tasks or settings.num_tasks}, {about}, and without classes there "
            "is one task: set num-tasks to 1 and leave tasks empty, or return Partitions, one for "
            "each client."
        )


# What decides who holds what, and the value that stands for not deciding it.
_DECIDED = {"tasks": "", "clients_per_task": "", "noise": "none"}


def check_held(settings: FederationSettings, num_clients: int, knows_tasks: bool) -> None:
    """Refuse what would spread data anew that come in partitions already made.

    Raises
    ------
    ValueError
        For the first such option, if there are not as many clients as partitions, or if clients
        whose tasks nobody knows are to exchange them.
    """
    if settings.num_clients != num_clients:
        raise ValueError(
            f"num-clients is {settings.num_clients}, but {settings.dataset} comes in {num_clients} "
            f"partitions: set num-clients to {num_clients}, and with flwr run num-supernodes, too."
        )
    absent = {**_DECIDED, **({} if knows_tasks else {"drift_clients": 0})}
    for name, value in absent.items():
        if getattr(settings, name) != value:
            raise ValueError(
                f"{name.replace('_', '-')} is {getattr(settings, name)}, but {settings.dataset} "
                "comes in partitions already made"
                f"{'' if name in _DECIDED else ', of unknown tasks'}: leave it {at_value(value)}."
            )


def num_malicious(settings: FederationSettings) -> int:
    """Return how many clients attack."""
    return round(settings.malicious * settings.num_clients)


def check_counts(settings: FederationSettings) -> None:
    """Refuse newcomers, drifting or malicious clients that so many clients cannot have.

    Raises
    ------
    ValueError
        For the first of them: what it is, and what is possible.
    """
    clients = settings.num_clients
    for key, count, since_key, since in (
        ("newcomers", settings.newcomers, "newcomer-round", settings.newcomer_round),
        ("drift-clients", settings.drift_clients, "drift-round", settings.drift_round),
    ):
        if count < 0:
            raise ValueError(f"{key} is {count}, but it must be 0 or more.")
        if count and since < 1:
            raise ValueError(
                f"{key} is {count}, but {since_key} is {since}: rounds count from 1, so set "
                f"{since_key} to 1 or more, or {key} to 0."
            )
    if settings.newcomers >= max(clients, 1):
        raise ValueError(
            f"newcomers is {settings.newcomers}, but there are {clients} clients and at least one "
            f"must be there from the start: choose {clients - 1} or fewer."
        )
    if settings.drift_clients > clients - settings.newcomers:
        raise ValueError(
            f"drift-clients is {settings.drift_clients}, but of {clients} clients only "
            f"{clients - settings.newcomers} are there from the start: choose no more than those."
        )
    share = settings.malicious
    if share > 0 and clients > 1 and not num_malicious(settings):
        raise ValueError(
            f"malicious is {share}, which of {clients} clients is nobody: choose at least "
            f"{1 / clients:.3g}."
        )
    # One client, too, which no share can be of.
    if not 0 <= share < 1 or (share > 0 and num_malicious(settings) >= clients - (clients == 1)):
        raise ValueError(
            f"malicious is {share}, but of {clients} clients at least one must be honest: choose a "
            "share from 0 to below 1 that leaves one, or attack=none."
        )
