"""Published data sets: torchvision's files, read or downloaded."""

from __future__ import annotations

import logging
import tarfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from filelock import FileLock

from fl_core.data.idx import read_idx
from fl_core.data.image_files import checksum, listed_images
from fl_core.data.image_folder import Split, decode_images, decoded_once
from fl_core.data.torchvision_files import PUBLISHED, Published
from fl_core.text import error_line, one_line

logger = logging.getLogger(__name__)

CIFAR10_TAR = "cifar10-images.tar"
_ADVICE = "You can use download=True to download it"  # torchvision's
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def read_published(name: str, root: Path, cache: Path, download: bool) -> Split:
    """Read the files of one of `PUBLISHED` in `root`, or download them there.

    Raises
    ------
    OSError
        If the files are not there and cannot be downloaded, or are damaged.
    """
    tar = root / CIFAR10_TAR
    if name == "cifar10" and tar.is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _cifar10_from_images(tar, cache)
    published, problem = PUBLISHED[name], ""
    for downloads in (False, True)[: 1 + download]:
        try:
            if downloads:
                cache.mkdir(parents=True, exist_ok=True)
                with FileLock(cache / f"{name}.lock"):  # another process may be downloading
                    published.open(root, train=True, download=True)
            return _read(published, root)
        except Exception as error:  # torchvision asserts and unpickles
            why = one_line(error_line(error)).removesuffix(_ADVICE).rstrip(". ")
            problem = f"{why}{', in spite of a download' * downloads}"
    raise FileNotFoundError(
        f"dataset {name} cannot be read from {root} ({problem}): put torchvision's files there, "
        "and remove damaged ones; set data-dir or FL_DATA_DIR to a folder that has them; or use "
        'dataset="mnist-5k", which needs no files.'
    )


def _read(published: Published, root: Path) -> Split:
    if published.idx:
        train, train_labels, test, test_labels = (
            torch.from_numpy(read_idx(root / file)) for file in published.idx
        )
        images = [part.unsqueeze(1) for part in (train, test)]
        if published.transposed:
            images = [part.transpose(2, 3).contiguous() for part in images]
        return Split(
            *(images[0], train_labels.long(), images[1], test_labels.long()), published.class_names
        )
    parts = [published.open(root, train=train, download=False) for train in (True, False)]
    images = [torch.as_tensor(part.data).permute(0, 3, 1, 2).contiguous() for part in parts]
    labels = [torch.as_tensor(part.targets) for part in parts]
    return Split(images[0], labels[0], images[1], labels[1], tuple(parts[0].classes))


def _cifar10_from_images(tar: Path, cache: Path) -> Split:
    logger.info("CIFAR-10 is read from %s: its pixels went through JPEG once.", tar)
    read = decoded_once(cache, str(tar.resolve()), checksum([tar]), partial(_unpacked, tar, cache))
    if read.classes != _CIFAR10 or not len(read.test_samples):
        raise ValueError(
            f"{tar} is not CIFAR-10: it must hold train and test with the classes "
            f"{', '.join(_CIFAR10)}."
        )
    return read


def _unpacked(tar: Path, cache: Path) -> Split:
    with TemporaryDirectory(dir=cache) as folder:
        with tarfile.open(tar) as archive:
            archive.extractall(folder, filter="data")
        return decode_images(listed_images(Path(folder)), Path(folder))
