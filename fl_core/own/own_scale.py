"""One scale for devices' samples: each one's own, or one for all of what each of them tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.data.image_folder import LabelledImages
from fl_core.data.known import check_no_pixels
from fl_core.data.scaling import Scaling, Tally, moments, tally, target_moments, together
from fl_core.data.settings import ALL_SITES, SITE
from fl_core.data.standardise import note_of_constant, told_constant


def own_tally(read: LabelledImages, training: NDArray[np.bool_]) -> Tally:
    """Return what a device's training samples come to; a number to predict is the last column.

    `training` says which of those that do not test train.
    """
    found = tally(read.train_images[training])
    if read.train_labels.dtype != torch.float32:
        return found
    number = tally(read.train_labels[training][:, None])
    return Tally(
        found.num_rows,
        np.append(found.mean, number.mean),
        np.append(found.deviation, number.deviation),
        np.append(found.is_flag, number.is_flag),
    )


def common_scaling(
    tallies: Sequence[Tally], names: Sequence[str], *, is_regression: bool
) -> tuple[Scaling, list[str]]:
    """Return the scale of all devices' samples together, and a note on constant columns.

    Parameters
    ----------
    tallies : sequence of Tally
        As each device's `own_tally`.
    names : sequence of str
        The columns', or none.
    is_regression : bool
        Whether the last column is a number to predict.
    """
    found = together(tallies)
    number = None
    if is_regression:
        number = found[0][-1:], found[1][-1:], found[2][-1:]
        found = found[0][:-1], found[1][:-1], found[2][:-1]
    notes = note_of_constant(told_constant(found, ALL_SITES), names, ALL_SITES)
    return Scaling.of(found, number), notes


def standardised_alone(
    read: LabelledImages, training: NDArray[np.bool_], names: Sequence[str] = ()
) -> tuple[LabelledImages, Scaling, list[str]]:
    """Return a device's samples, standardised by its own training rows (`standardise=site`).

    `training` says which of those that do not test they are. Their scale comes with them, and a
    note on constant columns, which may have `names`.

    Raises
    ------
    ValueError
        If they are pixels.
    """
    check_no_pixels("a device", SITE, read.train_images.dtype == torch.float32)
    found = moments(read.train_images[training])
    scaling = Scaling.of(found, target_moments(read.train_labels[training]))
    notes = note_of_constant(told_constant(found, SITE), names, SITE)
    return on_scale(read, scaling), scaling, notes


def on_scale(read: LabelledImages, scaling: Scaling) -> LabelledImages:
    """Return a device's samples, and numbers to predict, on a scale."""
    return read._replace(
        train_images=scaling.samples(read.train_images),
        train_labels=scaling.targets(read.train_labels),
        test_images=scaling.samples(read.test_images),
        test_labels=scaling.targets(read.test_labels),
    )
