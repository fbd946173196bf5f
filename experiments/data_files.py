"""The files of a cell's data and weights, and their checksums."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from clients.settings import AUTO, automatic_source
from fl_app.config.rules import shares_eigenvectors
from fl_app.config.run_config import Config
from fl_core.data.dataset_info import dataset_info
from fl_core.data.datasets import load_dataset
from fl_core.data.folders import resolve_data_dir
from fl_core.data.published import CIFAR10_TAR
from fl_core.data.settings import PLUS
from strategies.catalogue import parameters, system_of

FEMNIST, WEIGHTS = "femnist", "resnet18"
_MADE_OF = {"cifar20": ("cifar10", "cifar100"), "rotated-mnist": ("mnist",)}


def _idx(folder: str, train: str, test: str) -> tuple[str, ...]:
    parts = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return tuple(f"{folder}/raw/{which}-{part}" for which in (train, test) for part in parts)


_FILES = {
    "mnist": _idx("MNIST", "train", "t10k"),
    "fashion-mnist": _idx("FashionMNIST", "train", "t10k"),
    "emnist-balanced": _idx("EMNIST", "emnist-balanced-train", "emnist-balanced-test"),
    "cifar10": tuple(
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta")
    ),
    "cifar100": tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta")),
}


def sources_of(config: Config) -> list[str]:
    """Return the published data sets and weights that a simulation reads from files."""
    names = config.dataset.split(PLUS)
    if any("encoder" in parameters(system_of(name).clustering) for name in config.strategy):
        kind = dataset_info(config.dataset)
        channels = kind.sample_shape[0] if kind else 1
        automatic = config.encoder == AUTO
        names.append(automatic_source(config.dataset, channels) if automatic else config.encoder)
    found = [part for name in names for part in _MADE_OF.get(name, (name,))]
    if shares_eigenvectors(config.strategy):
        found.append(config.features)
    return [name for name in dict.fromkeys(found) if name in {*_FILES, FEMNIST, WEIGHTS}]


def check_sources(user: str, names: Iterable[str]) -> None:
    """Read all data sets, or download them, so that no simulation finds one missing or damaged."""
    for name in names:
        if name == WEIGHTS:  # which were read when the features were checked
            continue
        try:
            load_dataset(name)
        except OSError as error:
            raise ValueError(f"{user} needs {name}: {error}") from error


def records_of(config: Config) -> dict[str, dict[str, Any]]:
    """Return the records of the files that a simulation reads, by data set.

    Its `sha256` is that of the lines that `sha256sum` writes of all files.
    """
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    roots = {
        name: folder if name == WEIGHTS else resolve_data_dir("") for name in sources_of(config)
    }
    return {name: _record(name, root) for name, root in roots.items()}


@lru_cache
def _record(name: str, root: Path) -> dict[str, Any]:
    paths = _paths(name, root)
    lines, size = "", 0
    for path in paths:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines += f"{digest}  {path.relative_to(root).as_posix()}\n"
        size += path.stat().st_size
    whole = hashlib.sha256(lines.encode()).hexdigest()
    return {"files": len(paths), "bytes": size, "sha256": whole}


def _paths(name: str, root: Path) -> list[Path]:
    if name == FEMNIST:
        parts = (root / FEMNIST / "data" / part for part in ("train", "test"))
        return [path for part in parts for path in sorted(part.glob("*.json"))]
    if name == WEIGHTS:
        weights = import_module("torchvision.models").ResNet18_Weights.IMAGENET1K_V1
        return [root / Path(weights.url).name]
    paths = [root / file for file in _FILES[name]]
    return [root / CIFAR10_TAR] if name == "cifar10" and not paths[0].is_file() else paths


def files_in_words(name: str, record: Mapping[str, Any]) -> str:
    """Describe a record of `records_of`."""
    size = record["bytes"] / 1e6
    return f"{name}: {record['files']} file(s), {size:.1f} MB, SHA-256 {record['sha256']}"
