"""Which image files lie in class folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fl_core.data.folders import folders_and_files, ignored_note

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LAYOUT = "train/CLASS/* or CLASS/* and, if there are test images, test/CLASS/*"

HELD_OUT = 0.2
"""The share of each class that tests where there is no test folder."""
_SPLITS = ("train", "test")

ClassFiles = dict[str, list[Path]]
"""The names of classes to their image files; both sorted."""


class ImageFiles(NamedTuple):
    """The files of a data set of class folders.

    Attributes
    ----------
    train : ClassFiles
        At least one image for every class.
    test : ClassFiles
        Empty where there is no test folder; otherwise one image at least for every class in it.
    ignored : list of Path
        Files and folders that are not read, hidden ones excepted.
    """

    train: ClassFiles
    test: ClassFiles
    ignored: list[Path]

    def all_images(self) -> list[Path]:
        """Return the image files of all classes."""
        return [file for part in (self.train, self.test) for own in part.values() for file in own]

    def notes(self, root: Path) -> list[str]:
        """Say what in `root` is not read; nothing if all is."""
        return ignored_note(root, "images in class folders", self.ignored)


def listed_images(root: Path) -> ImageFiles:
    """List the images of a folder.

    The class folders lie in `train` or, where there is no `train`, in the root itself. Those of
    the test images lie in `test`, which is never a class. Hidden files and folders are ignored.

    Raises
    ------
    ValueError
        If there are no class folders, a class has no images or none for training, a class folder
        holds a folder, or `train` or `test` is written in capitals.
    OSError
        If the folder is not there or cannot be read.
    """
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is no folder: one with {LAYOUT} is expected (unpack an archive)."
        )
    folders, ignored = folders_and_files(root)
    for name in (path.name for path in folders):
        if name.lower() in _SPLITS and name not in _SPLITS:
            raise ValueError(
                f"{root} holds the folder {name}, but {name.lower()} has to be written in small "
                "letters: rename it."
            )
    train, test = (root / split for split in _SPLITS)
    if train in folders:
        ignored += [path for path in folders if path not in (train, test)]
        training = _class_files(train, root, ignored)
    else:
        training = _class_files(root, root, ignored)
    testing = _class_files(test, root, ignored) if test in folders else {}
    untrained = sorted(testing.keys() - training.keys())
    if untrained:
        raise ValueError(
            f"test/{untrained[0]} in {root} has no counterpart among the training classes: every "
            "class needs training images."
        )
    return ImageFiles(training, testing, ignored)


def _class_files(parent: Path, root: Path, ignored: list[Path]) -> ClassFiles:
    """Return the images of the class folders in `parent`; other files are added to `ignored`."""
    folders, beside = folders_and_files(parent)
    if parent == root:
        folders = [path for path in folders if path.name not in _SPLITS]
    else:
        ignored += beside
    if not folders:
        raise ValueError(f"{parent} has no class folders: {LAYOUT} is expected.")
    found: ClassFiles = {}
    for folder in folders:
        inside, files = folders_and_files(folder)
        name = folder.relative_to(root)
        if inside:
            hint = "; a simulation reads SITE/CLASS/* by dataset=sites" if parent == root else ""
            raise ValueError(
                f"{name} in {root} holds the folder {inside[0].name}, but images must lie in the "
                f"class folders themselves: {LAYOUT} is expected{hint}."
            )
        found[folder.name] = [path for path in files if _is_image(path.name)]
        if not found[folder.name]:
            raise ValueError(
                f"{name} in {root} has no images, files that end in {' '.join(ENDINGS)}: fill it "
                "or remove it."
            )
        ignored += [path for path in files if not _is_image(path.name)]
    return found


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def hold_out(files: ImageFiles) -> ImageFiles:
    """Make test images of `HELD_OUT` of each class's training images, where there are none.

    At least one image of each class is held out; a class's only image stays for training. The
    choice depends on nothing but the names of the class and its files, so that it is the same in
    every run. Where files are added later, few of the others change sides.
    """
    if files.test:
        return files
    train: ClassFiles = {}
    test: ClassFiles = {}
    for name, own in files.train.items():
        count = max(1, round(HELD_OUT * len(own))) if len(own) > 1 else 0
        chosen = set(sorted(own, key=_rank)[:count])
        train[name] = [file for file in own if file not in chosen]
        if chosen:
            test[name] = [file for file in own if file in chosen]
    return ImageFiles(train, test, files.ignored)


def _rank(file: Path) -> bytes:
    """Return a number like a random one, of `CLASS/FILE`."""
    name = f"{file.parent.name}/{file.name}"
    return blake2b(os.fsencode(name), digest_size=16).digest()


def checksum(files: Iterable[Path]) -> str:
    """Return a hash of files' paths, sizes and times."""
    digest = blake2b(digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(os.fsencode(file) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def find_images(root: Path) -> list[Path]:
    """Return the image files below a folder, sorted, hidden ones left out; or the one file.

    Links to folders are not followed.

    Raises
    ------
    ValueError
        If there are none, or there is no such folder.
    OSError
        If a folder in it cannot be read.
    """
    if not root.exists():
        raise ValueError(f"there is no {root}: name a folder of images, or one image.")
    if not root.is_dir():
        return [root]
    found = []
    for folder, subfolders, names in os.walk(root, onerror=_raise):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if _is_image(name)]
    if not found:
        raise ValueError(f"{root} holds no images, files that end in {' '.join(ENDINGS)}.")
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
