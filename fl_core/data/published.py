"""Published data sets: read torchvision's files, or download them."""

import logging
import math
import tarfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from fl_core.data.image_files import checksum, list_images
from fl_core.data.image_folder import decode_cached, decode_images
from fl_core.data.samples import Split
from fl_core.data.settings import PUBLISHED, Published
from fl_core.text import error_line, one_line

logger = logging.getLogger(__name__)

CIFAR10_TAR = "cifar10-images.tar"
_CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_ADVICE = "You can use download=True to download it"  # torchvision's


def read_published(name: str, root: Path, cache: Path, download: bool) -> Split:
    """Read the files of one of `PUBLISHED` in `root`, or download them there."""
    tar = root / CIFAR10_TAR
    if name == "cifar10" and tar.is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _cifar10_from_images(tar, cache)
    published, problem = PUBLISHED[name], ""
    for downloads in (False, True)[: 1 + download]:
        try:
            if downloads:
                cache.mkdir(parents=True, exist_ok=True)
                with FileLock(cache / f"{name}.lock", mode=0o600):  # others may be downloading
                    published.open(root, train=True, download=True)
            return _read(published, root)
        except Exception as error:  # torchvision asserts and unpickles
            reason = one_line(error_line(error)).removesuffix(_ADVICE).rstrip(". ")
            problem = f"{reason}{', in spite of a download' * downloads}"
    raise FileNotFoundError(
        f"dataset {name} cannot be read from {root} ({problem}): put torchvision's files there, "
        "and remove damaged ones; set data-dir or FL_DATA_DIR to a folder that has them; or use "
        'dataset="mnist-5k", which needs no files.'
    )


def _read(published: Published, root: Path) -> Split:
    if published.idx:
        x, y, xt, yt = (read_idx(root / file) for file in published.idx)
        axes, names = (0, 2, 1) if published.transposed else (0, 1, 2), published.class_names
        return Split(x, y, xt, yt, names).mapped(
            lambda images: images.permute(axes).unsqueeze(1).contiguous(), Tensor.long
        )
    train, test = (published.open(root, train=train, download=False) for train in (True, False))
    parts = (train.data, train.targets, test.data, test.targets)
    x, y, xt, yt = map(torch.as_tensor, parts)
    return Split(x, y, xt, yt, tuple(train.classes)).mapped(
        lambda images: images.permute(0, 3, 1, 2).contiguous(), Tensor.long
    )


def read_idx(path: Path) -> Tensor:
    """Read a file in MNIST's format, IDX, of unsigned bytes; torchvision's import takes seconds."""
    content = np.fromfile(path, np.uint8)
    header = content[:4].tolist()
    if len(header) < 4 or header[:3] != [0, 0, 8]:  # the number of the type
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * header[3]
    shape = tuple(int(size) for size in content[4:start].view(">u4"))
    if len(shape) < header[3] or len(content) - start != math.prod(shape):
        raise ValueError(f"{path} is shorter or longer than its header says")
    return torch.from_numpy(content[start:].reshape(shape))


def _cifar10_from_images(tar: Path, cache: Path) -> Split:
    logger.info("CIFAR-10 is read from %s: its pixels went through JPEG once.", tar)
    unpack = partial(_unpacked, tar, cache)
    split = decode_cached(cache, str(tar.resolve()), checksum([tar]), unpack)
    if split.class_names != _CIFAR10_CLASSES or not len(split.test_samples):
        names = ", ".join(_CIFAR10_CLASSES)
        raise ValueError(f"{tar} is not CIFAR-10: it must hold train and test with {names}.")
    return split


def _unpacked(tar: Path, cache: Path) -> Split:
    with TemporaryDirectory(dir=cache) as folder:
        with tarfile.open(tar) as archive:
            archive.extractall(folder, filter="data")
        return decode_images(list_images(Path(folder)), Path(folder))
