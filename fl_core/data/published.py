"""Published data sets: torchvision's files, read or downloaded.

torchvision itself is asked for downloads, and for the pickled files of CIFAR.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from filelock import FileLock

from fl_core.data.idx import read_idx
from fl_core.data.image_files import checksum, listed_images
from fl_core.data.image_folder import LabelledImages, decode_images, decoded_once
from fl_core.data.torchvision_files import PUBLISHED
from fl_core.text import one_line

logger = logging.getLogger(__name__)

CIFAR10_TAR = "cifar10-images.tar"
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def read_published(name: str, root: Path, cache: Path, download: bool) -> LabelledImages:
    """Read the files of one of `PUBLISHED` in `root`, or download them there.

    Raises
    ------
    OSError
        If the files are not there and cannot be downloaded.
    """
    tar = root / CIFAR10_TAR
    if name == "cifar10" and tar.is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _cifar10_from_images(tar, cache)
    tried = f"dataset {name} cannot be read from {root}"
    try:
        return _read(name, root)
    except Exception as error:  # torchvision asserts and unpickles: damage shows as any exception
        tried += f" ({_in_words(error)})"
    if download:
        try:
            return _download(name, root, cache)
        except (OSError, RuntimeError, HTTPException) as error:
            tried += f" and could not be downloaded there ({_in_words(error)})"
    raise FileNotFoundError(
        f"{tried}: put torchvision's files there, set data-dir or FL_DATA_DIR to a folder that "
        'has them, or use dataset="mnist-5k", which needs no files.'
    )


def _in_words(error: Exception) -> str:
    text = one_line(str(error)).removesuffix("You can use download=True to download it")
    return text.rstrip(". ") or type(error).__name__


def _read(name: str, root: Path) -> LabelledImages:
    """Read torchvision's files without a download."""
    published = PUBLISHED[name]
    if published.idx:
        if absent := [file for file in published.idx if not (root / file).is_file()]:
            raise FileNotFoundError(f"there is no {absent[0]}")
        train, train_labels, test, test_labels = (
            torch.from_numpy(read_idx(root / file)) for file in published.idx
        )
        images = [part.unsqueeze(1) for part in (train, test)]
        if published.transposed:
            images = [part.transpose(2, 3).contiguous() for part in images]
        return LabelledImages(
            *(images[0], train_labels.long(), images[1], test_labels.long()), published.class_names
        )
    parts = [published.open(root, train=train, download=False) for train in (True, False)]
    images = [torch.as_tensor(part.data).permute(0, 3, 1, 2).contiguous() for part in parts]
    labels = [torch.as_tensor(part.targets) for part in parts]
    return LabelledImages(
        images[0], labels[0], images[1], labels[1], published.class_names or tuple(parts[0].classes)
    )


def _cifar10_from_images(tar: Path, cache: Path) -> LabelledImages:
    logger.info("CIFAR-10 is read from %s: its pixels went through JPEG once.", tar)
    read = decoded_once(cache, str(tar.resolve()), checksum([tar]), partial(_unpacked, tar, cache))
    if read.classes != _CIFAR10 or not len(read.test_images):
        raise ValueError(
            f"{tar} is not CIFAR-10: it must hold train and test with the classes "
            f"{', '.join(_CIFAR10)}."
        )
    return read


def _unpacked(tar: Path, cache: Path) -> LabelledImages:
    with TemporaryDirectory(dir=cache) as folder:
        with tarfile.open(tar) as archive:
            archive.extractall(folder, filter="data")
        return decode_images(listed_images(Path(folder)), Path(folder))


def _download(name: str, root: Path, cache: Path) -> LabelledImages:
    """Fetch the files, whole ones only, while other processes wait for it."""
    published = PUBLISHED[name]
    root.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        with suppress(Exception):
            return _read(name, root)  # another process fetched it just now
        # torchvision takes any MNIST file that exists for a whole one, so it works elsewhere.
        with TemporaryDirectory(dir=root, prefix=".download-") as folder:
            stage = Path(folder)
            for archive in published.archives:
                if (root / archive).is_file():
                    (stage / archive).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(root / archive, stage / archive)
            published.open(stage, train=True, download=True)
            for file in sorted(path for path in stage.rglob("*") if path.is_file()):
                target = root / file.relative_to(stage)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
        return _read(name, root)
