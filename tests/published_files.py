"""Small files in the formats of published data sets and weights, where the real ones would lie."""

import gzip
import hashlib
import json
import struct
import tarfile
import zipfile
from importlib import import_module

import numpy as np
import torch

from tests.cifar_files import pixels, published_class

FEMNIST_PARTS = {"train": 20, "test": 2}
"""Images of each writer."""


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


def idx_names(prefix=("train", "t10k")):
    return [f"{p}-{kind}-ubyte" for p in prefix for kind in ("images-idx3", "labels-idx1")]


def write_fashion_mnist(root):
    for name in idx_names():
        array = pixels(20, 28, 28) if "images" in name else np.arange(20, dtype=np.uint8) % 10
        write_idx(root / "FashionMNIST" / "raw" / name, array)


def write_emnist(monkeypatch, root, per_class=1):
    """Write EMNIST's archive, of so many images of each class, and let torchvision expect it."""
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    labels = np.arange(47 * per_class, dtype=np.uint8) % 47
    with zipfile.ZipFile(raw / "gzip.zip", "w") as archive:
        for name in idx_names(("emnist-balanced-train", "emnist-balanced-test")):
            write_idx(root / "plain", pixels(len(labels), 28, 28) if "images" in name else labels)
            archive.writestr(f"gzip/{name}.gz", gzip.compress((root / "plain").read_bytes()))
    md5 = hashlib.md5((raw / "gzip.zip").read_bytes()).hexdigest()  # noqa: S324
    monkeypatch.setattr(published_class("EMNIST"), "md5", md5)


def pack_cifar(monkeypatch, kind, root):
    """Put the files that `write_cifar` wrote into their archive, which torchvision then expects."""
    kind = published_class(kind)
    folder, archive = root / kind.base_folder, root / kind.filename
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, kind.base_folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()  # noqa: S324
    monkeypatch.setattr(kind, "tgz_md5", md5)


def write_leaf(folder, name, data_of):
    """Write a file as LEAF's preprocess.sh does, of each writer's images, as shares, and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(data_of),
        "num_samples": [len(labels) for _, labels in data_of.values()],
        "user_data": {writer: {"x": x, "y": y} for writer, (x, y) in data_of.items()},
    }
    (folder / f"all_data_{name}.json").write_text(json.dumps(content), encoding="utf-8")


def write_femnist(root, writers):
    """Write the images of so many writers, in two files for training and two for testing."""
    for part, count in FEMNIST_PARTS.items():
        for shard in (0, 1):
            data = {
                f"f{writer:04}_00": (
                    np.round(pixels(count, 784, seed=writer) / 255, 4).tolist(),
                    [(writer + image) % 62 for image in range(count)],
                )
                for writer in range(shard, writers, 2)
            }
            folder = root / "femnist" / "data" / part
            write_leaf(folder, f"{shard}_niid_0_keep_0_{part}_9", data)


def write_resnet18(home):
    """Write random weights into torchvision's cache, which is in a folder; return their file."""
    path = home / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    path.parent.mkdir(parents=True)
    with torch.random.fork_rng():
        network = import_module("torchvision.models").resnet18(weights=None)
    torch.save(network.state_dict(), path)
    return path
