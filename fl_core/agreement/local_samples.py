"""Samples that a device has of its own, by a function: what it tells of them, how they are read."""

from __future__ import annotations

from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.local_images import relabelled
from fl_core.data.dataset import Dataset
from fl_core.data.image_folder import Split
from fl_core.data.user_data import read_own_part
from fl_core.text import composed

DATA = "data"
"""In a device's `--node-config`: the import path of the function that returns its samples."""


def survey_samples(path: str) -> Survey:
    """Call a device's function, and return what the device tells of its samples.

    Raises
    ------
    ValueError
        As `read_own_part` and `survey_of`.
    """
    return survey_of(read_own_part(DATA, path))


def survey_of(data: Dataset) -> Survey:
    """Describe samples that `read_own_part` read, for a message's config record.

    Raises
    ------
    ValueError
        If class names or the shape are not what a survey may say.
    """
    try:
        names = tuple(sorted(map(composed, data.class_names)))
        return Survey(names, data.image_shape, data.is_float, data.is_regression)
    except ValueError as error:
        raise ValueError(f'{DATA} is "{data.name}", which cannot be used: {error}') from error


def read_own_samples(path: str, agreement: Agreement) -> Split:
    """Call a device's function; labels are indices into the agreed classes.

    Raises
    ------
    ValueError
        As `read_own_part`, or if the samples or a class are not as agreed.
    """
    data = read_own_part(DATA, path)
    if (found := str(survey_of(data))) != (agreed := str(agreement)):
        raise ValueError(
            f'{DATA} is "{path}", whose samples are {found}, but {agreed} was agreed: convert '
            "them, or leave this device out."
        )
    labelled = _labelled(data)
    if data.is_regression:
        return labelled
    return relabelled(labelled, agreement, f'what {DATA}="{path}" returns')


def _labelled(data: Dataset) -> Split:
    return Split(
        data.train_samples,
        data.train_labels,
        data.test_samples,
        data.test_labels,
        data.class_names,
    )
