"""Read FEMNIST, handwritten characters by writer, from LEAF's JSON files (Caldas et al. 2018)."""

import json
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.settings import Source
from fl_core.files import open_file

CHARACTERS = tuple(digits + ascii_uppercase + ascii_lowercase)
_SIDE = 28  # pixels


def read_femnist(source: Source) -> Dataset:
    """Read LEAF's files in the data folder's `femnist/data`; its groups are writers."""
    data = source.root / "femnist" / "data"
    train, train_labels, train_groups, writers = _read_part(data / "train")
    test, test_labels, test_groups, others = _read_part(data / "test")
    if writers != others:
        raise ValueError(
            f"{data}/train and test have different writers: use LEAF's preprocess.sh -t sample."
        )
    groups = Groups(train_groups, test_groups, writers)
    return Dataset(source.name, train, train_labels, test, test_labels, CHARACTERS, groups)


def _read_part(folder: Path) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Return images, uint8 (n, 1, 28, 28), labels, the writer of each image, and their names."""
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
            written |= {writer: _of_writer(data) for writer, data in content.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{path} is not in LEAF's format: x, {_SIDE**2} numbers in [0, 1], and labels y."
            ) from error
    writers = tuple(sorted(written))
    images, labels = zip(*(written[writer] for writer in writers), strict=True)
    counts = torch.tensor(list(map(len, labels)))
    writer_of = torch.repeat_interleave(torch.arange(len(writers)), counts)
    return torch.cat(images), torch.cat(labels), writer_of, writers


def _of_writer(data: dict[str, Any]) -> tuple[Tensor, Tensor]:
    pixels = np.asarray(data["x"], np.float64).reshape(-1, 1, _SIDE, _SIDE)
    labels = np.asarray(data["y"], np.int64)
    if labels.shape != pixels.shape[:1] or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError
    return torch.from_numpy(np.round(255 * pixels).astype(np.uint8)), torch.from_numpy(labels)
