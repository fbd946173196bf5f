"""Small files of CIFAR-10's and CIFAR-100's format, which torchvision takes for the real ones."""

import hashlib
import pickle
from importlib import import_module

import numpy as np

from fl_core.data.datasets import CIFAR20_OTHERS

CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pickled(content, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return [path.name, hashlib.md5(path.read_bytes()).hexdigest()]  # noqa: S324


def published_class(kind):
    """Return torchvision's class; its import takes two seconds, which only those wait that ask."""
    return getattr(import_module("torchvision.datasets"), kind)


def write_cifar(monkeypatch, kind, root, key, classes, files, labels=range(10)):
    """Write small files of `kind`, an image a label, and let torchvision expect their checksums."""
    kind = published_class(kind)
    folder = root / kind.base_folder
    lists = {"train_list": [], "test_list": []}
    for seed, (name, which) in enumerate(files):
        data = {"data": pixels(len(labels), 3072, seed=seed), key: list(labels)}
        lists[which].append(pickled(data, folder / name))
    names = pickled({kind.meta["key"]: list(classes)}, folder / kind.meta["filename"])
    monkeypatch.setattr(kind, "train_list", lists["train_list"])
    monkeypatch.setattr(kind, "test_list", lists["test_list"])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": names[1]})


def write_cifar20(monkeypatch, root):
    """Write ten images of each; those of CIFAR-100 with label 0, 4 and 9 have CIFAR-20's classes.

    In CIFAR-20, these are the classes 19, 10 and 14.
    """
    files = [("data_batch_1", "train_list"), ("test_batch", "test_list")]
    write_cifar(monkeypatch, "CIFAR10", root, "labels", CIFAR10_CLASSES, files)
    classes = [f"class {i}" for i in range(93)] + list(CIFAR20_OTHERS[1:4] + CIFAR20_OTHERS[5:9])
    classes[0], classes[4], classes[9] = (CIFAR20_OTHERS[i] for i in (9, 0, 4))
    files = [("train", "train_list"), ("test", "test_list")]
    write_cifar(monkeypatch, "CIFAR100", root, "fine_labels", classes, files)
