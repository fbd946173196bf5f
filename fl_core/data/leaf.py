"""LEAF's FEMNIST: handwritten characters by writer, in LEAF's JSON files (Caldas et al. 2018)."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.settings import Source
from fl_core.files import open_file

CHARACTERS = tuple(digits + ascii_uppercase + ascii_lowercase)
_SIDE = 28  # pixels


class WrittenImages(NamedTuple):
    """Images of characters, and who wrote them.

    Attributes
    ----------
    images : Tensor, uint8, shape (n, 1, 28, 28)
        255 is the paper, as in LEAF.
    labels : Tensor, int64, shape (n,)
        Indices into `CHARACTERS`.
    writer_of : Tensor, int64, shape (n,)
        Indices into `writers`.
    writers : tuple of str
        LEAF's users, sorted.
    """

    images: Tensor
    labels: Tensor
    writer_of: Tensor
    writers: tuple[str, ...]


def read_femnist(source: Source) -> Dataset:
    """Read LEAF's files in the data folder's `femnist/data`; its groups are writers.

    Raises
    ------
    ValueError
        If a file is not in LEAF's format, or the writers of training and test images differ.
    FileNotFoundError
        If there is none.
    """
    data = source.root / "femnist" / "data"
    train, test = (_read_part(data / part) for part in ("train", "test"))
    if train.writers != test.writers:
        raise ValueError(
            f"the writers in {data}/train are not those in test: let LEAF split each "
            "writer's images (preprocess.sh -t sample)."
        )
    return Dataset(
        source.name,
        *(train.images, train.labels, test.images, test.labels, CHARACTERS),
        Groups(train.writer_of, test.writer_of, train.writers),
    )


def _read_part(folder: Path) -> WrittenImages:
    """Read all .json files of one of LEAF's folders, `train` or `test`.

    Raises
    ------
    ValueError
        If a file is not in LEAF's format.
    FileNotFoundError
        If there is none.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f'dataset is "femnist", but {folder} has no .json files: set data-dir or FL_DATA_DIR '
            "to LEAF's data folder, where its preprocess.sh has made femnist/data/train and test."
        )
    written: dict[str, tuple[Tensor, Tensor]] = {}
    for path in files:
        try:
            with open_file(path) as file:
                content = json.load(file)["user_data"]
            written |= {writer: _of_writer(own) for writer, own in content.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{path} is not in LEAF's format: user_data must have, for each user, x, lists of "
                f"{_SIDE**2} numbers from 0 to 1, and as many labels y."
            ) from error
    writers = tuple(sorted(written))
    images, labels = zip(*(written[writer] for writer in writers), strict=True)
    counts = torch.tensor([len(own) for own in labels])
    return WrittenImages(
        torch.cat(images),
        torch.cat(labels),
        torch.repeat_interleave(torch.arange(len(writers)), counts),
        writers,
    )


def _of_writer(own: dict[str, Any]) -> tuple[Tensor, Tensor]:
    pixels = np.asarray(own["x"], np.float64).reshape(-1, 1, _SIDE, _SIDE)
    labels = np.asarray(own["y"], np.int64)
    if labels.shape != pixels.shape[:1] or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError
    return torch.from_numpy(np.round(255 * pixels).astype(np.uint8)), torch.from_numpy(labels)
