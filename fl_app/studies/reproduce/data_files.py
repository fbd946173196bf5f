"""The files that a cell's data and weights come from: which they are, and their checksums."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from clients.settings import AUTO, AUTOMATIC
from fl_app.config.checks import shares_eigenvectors
from fl_app.config.run_config import Config
from fl_core.data.datasets import load_dataset
from fl_core.data.folders import resolve_data_dir
from fl_core.data.known import known_of
from fl_core.data.published import CIFAR10_TAR
from fl_core.data.settings import PLUS
from fl_core.data.torchvision_files import PUBLISHED
from fl_core.text import one_line
from strategies.catalogue import parameters, system_of

FEMNIST, WEIGHTS = "femnist", "resnet18"
_MADE_OF = {"cifar20": ("cifar10", "cifar100"), "rotated-mnist": ("mnist",)}
_PARTS = ("train", "test")
_WORDS = {
    True: "as published",
    False: "not as published",
    None: "no published checksum to compare with",
}
_PAPERS = {
    "mnist": "MNIST (LeCun et al. 1998)",
    "fashion-mnist": "Fashion-MNIST (Xiao et al. 2017)",
    "cifar10": "CIFAR-10 (Krizhevsky 2009)",
    "cifar100": "CIFAR-100 (Krizhevsky 2009)",
    "emnist-balanced": "EMNIST (Cohen et al. 2017)",
}


@dataclass(frozen=True)
class DataFile:
    """A file that is read.

    Attributes
    ----------
    name : str
        Below the folder of its data set.
    size : int
        Bytes.
    sha256 : str
    published : bool, optional
        Whether it is the published one; None: there is no checksum to tell.
    """

    name: str
    size: int
    sha256: str
    published: bool | None

    def __str__(self) -> str:
        """Return it as `sha256sum` would, and what else is known of it."""
        known = _WORDS[self.published]
        return f"{self.sha256}  {self.name}  ({self.size / 1e6:.1f} MB, {known})"


def sources_of(config: Config) -> list[str]:
    """Return the published data sets, and weights, that a simulation reads; not the package's."""
    names = config.dataset.split(PLUS)
    if any("encoder" in parameters(system_of(name).clustering) for name in config.strategy):
        kind = known_of(config.dataset)
        channels = kind.image_shape[0] if kind else 1
        names.append(AUTOMATIC.get(channels, "") if config.encoder == AUTO else config.encoder)
    found = [part for name in names for part in _MADE_OF.get(name, (name,))]
    if shares_eigenvectors(config.strategy):
        found.append(config.features)
    known = {*PUBLISHED, FEMNIST, WEIGHTS}
    return [name for name in dict.fromkeys(found) if name in known]


def check_sources(user: str, names: Iterable[str]) -> None:
    """Read all data sets, or download them, so that no simulation finds one missing or damaged.

    Raises
    ------
    ValueError
        If one is not there, with what `user` needs and where it comes from, or is damaged.
    """
    for name in names:
        if name == WEIGHTS:  # which were read when the features were checked
            continue
        try:
            load_dataset(name)
        except OSError as error:
            root = resolve_data_dir("")
            raise ValueError(f"{user} needs {_wanted(name, root, error)}") from error


def _wanted(name: str, root: Path, error: OSError) -> str:
    there = "set FL_DATA_DIR to the folder that has it, and call the command again."
    if name == FEMNIST:
        return (
            f"LEAF's FEMNIST (Caldas et al. 2018), whose .json files are not in {root}/femnist/data"
            "/train and test: let LEAF's preprocess.sh make them there, each writer's images split "
            f"(-s niid -t sample), or {there}"
        )
    missing = [one for one in PUBLISHED[name].archives if not (root / one).is_file()]
    if not missing:
        return f"{_PAPERS[name]}, but what is there cannot be used: {one_line(str(error), 600)}"
    return (
        f"{_PAPERS[name]}, but {' and '.join(missing)}, which torchvision's {PUBLISHED[name].kind} "
        f"downloads, is not in {root}, and the download failed: put it there, or {there}"
    )


def files_of(name: str) -> tuple[DataFile, ...]:
    """Return the files of a data set, which `check_sources` has read; hashed once by a process."""
    return _files(name, folder_of(name))


def folder_of(name: str) -> Path:
    """Return the folder that the names of its files begin in."""
    return Path(torch.hub.get_dir()) / "checkpoints" if name == WEIGHTS else resolve_data_dir("")


@lru_cache
def _files(name: str, root: Path) -> tuple[DataFile, ...]:
    if name == FEMNIST:
        shards = (sorted((root / FEMNIST / "data" / part).glob("*.json")) for part in _PARTS)
        return tuple(_file(root, path) for part in shards for path in part)
    if name == WEIGHTS:  # named after the first digits of their SHA-256
        url = import_module("torchvision.models").ResNet18_Weights.IMAGENET1K_V1.url
        path = root / Path(url).name
        same = _sum(path, "sha256").startswith(path.stem.rpartition("-")[2])
        return (_file(root, path, same),)
    if idx := PUBLISHED[name].idx:
        return tuple(_file(root, root / file, _as_packed(name, root, file)) for file in idx)
    kind = _torchvision(name)
    if name == "cifar10" and not (root / kind.base_folder).is_dir():
        return (_file(root, root / CIFAR10_TAR),)
    sums = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    paths = ((root / kind.base_folder / file, md5) for file, md5 in sums)
    return tuple(_file(root, path, _sum(path, "md5") == md5) for path, md5 in paths)


def _as_packed(name: str, root: Path, file: str) -> bool | None:
    """Return whether a file is that in its archive, if the archive is torchvision's; else None."""
    archives = PUBLISHED[name].archives
    own = f"{file}.gz" in archives
    archive = root / (f"{file}.gz" if own else archives[0])
    if not archive.is_file():
        return None
    kind = _torchvision(name)
    if _sum(archive, "md5") != (dict(kind.resources)[archive.name] if own else kind.md5):
        return None
    with ExitStack() as stack:
        packed: Any = archive
        if not own:
            whole = stack.enter_context(ZipFile(archive))
            packed = stack.enter_context(whole.open(f"gzip/{Path(file).name}.gz"))
        unpacked = hashlib.file_digest(stack.enter_context(gzip.open(packed)), "sha256")
    return unpacked.hexdigest() == _sum(root / file, "sha256")


def _torchvision(name: str) -> Any:
    return getattr(import_module("torchvision.datasets"), PUBLISHED[name].kind)


def _sum(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _file(root: Path, path: Path, published: bool | None = None) -> DataFile:
    name = path.relative_to(root).as_posix()
    return DataFile(name, path.stat().st_size, _sum(path, "sha256"), published)


def record_of(files: Sequence[DataFile]) -> dict[str, Any]:
    """Return what is kept of a data set's files.

    Its `sha256` is that of the lines that `sha256sum` writes of all files, in this order.
    """
    lines = "".join(f"{one.sha256}  {one.name}\n" for one in files)
    known = {one.published for one in files}
    return {
        "files": len(files),
        "bytes": sum(one.size for one in files),
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "published": False if False in known else None if None in known else True,
    }


def records_of(config: Config) -> dict[str, dict[str, Any]]:
    """Return what is kept of the files that a simulation reads, by data set."""
    return {name: record_of(files_of(name)) for name in sources_of(config)}


def files_in_words(name: str, record: Mapping[str, Any]) -> str:
    """Describe what `record_of` returns."""
    return (
        f"{name}: {record['files']} file(s), {record['bytes'] / 1e6:.1f} MB, SHA-256 "
        f"{record['sha256']}, {_WORDS[record['published']]}"
    )
