"""List the image files of class folders."""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fl_core.data.folders import folders_and_files, ignored_note

ENDINGS = (
    *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)
LAYOUT = "train/CLASS/* or CLASS/* and, if there are test images, test/CLASS/*"

HELD_OUT = 0.2
"""The share of each class that tests where there is no test folder."""
_SPLITS = ("train", "test")

ClassFiles = dict[str, list[Path]]
"""The names of classes to their image files; both sorted."""


class ImageFiles(NamedTuple):
    """The image files of class folders; without a test folder, `test` is empty."""

    train: ClassFiles
    test: ClassFiles
    ignored: list[Path]  # neither read nor hidden

    def all_images(self) -> list[Path]:
        """Return the image files of all classes."""
        classes = [*self.train.values(), *self.test.values()]
        return [file for files in classes for file in files]

    def notes(self, root: Path) -> list[str]:
        """Return a note about what in `root` is not read; nothing if all is."""
        return ignored_note(root, "images in class folders", self.ignored)


def list_images(root: Path) -> ImageFiles:
    """List the images of a folder: those of classes in `train`, or else in the root, and in `test`.

    Hidden files and folders are ignored.
    """
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is not a folder: give one with {LAYOUT} (unpack an archive)."
        )
    folders, ignored = folders_and_files(root)
    for name in (path.name for path in folders):
        if name.lower() in _SPLITS and name not in _SPLITS:
            raise ValueError(f"{root} has the folder {name}: rename it to {name.lower()}.")
    train, test = (root / split for split in _SPLITS)
    if train in folders:
        ignored += [path for path in folders if path not in (train, test)]
        training = _class_files(train, root, ignored)
    else:
        training = _class_files(root, root, ignored)
    testing = _class_files(test, root, ignored) if test in folders else {}
    if untrained := sorted(testing.keys() - training.keys()):
        raise ValueError(
            f"{root} has test/{untrained[0]}, but no training images of that class: add some."
        )
    return ImageFiles(training, testing, ignored)


def _class_files(parent: Path, root: Path, ignored: list[Path]) -> ClassFiles:
    """Return the images of the class folders in `parent`; other files are added to `ignored`."""
    folders, files = folders_and_files(parent)
    if parent == root:
        folders = [path for path in folders if path.name not in _SPLITS]
    else:
        ignored += files
    if not folders:
        raise ValueError(f"{parent} has no class folders: give a folder with {LAYOUT}.")
    classes: ClassFiles = {}
    for folder in folders:
        inside, files = folders_and_files(folder)
        name = folder.relative_to(root)
        if inside:
            hint = "; for SITE/CLASS/*, set dataset=sites" if parent == root else ""
            raise ValueError(
                f"{name} in {root} has the folder {inside[0].name}, but a class folder must hold "
                f"images only: give a folder with {LAYOUT}{hint}."
            )
        classes[folder.name] = [path for path in files if _is_image(path.name)]
        if not classes[folder.name]:
            raise ValueError(
                f"{name} in {root} has no images, files ending in {' '.join(ENDINGS)}: add some, "
                "or remove it."
            )
        ignored += [path for path in files if not _is_image(path.name)]
    return classes


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def hold_out(files: ImageFiles) -> ImageFiles:
    """Move `HELD_OUT` of each class's training images to the test images, if there are none.

    Of two images or more, one is held out. The choice depends only on the names of the class and
    its files: files that are added later move few of the others.
    """
    if files.test:
        return files
    train: ClassFiles = {}
    test: ClassFiles = {}
    for name, paths in files.train.items():
        count = max(1, round(HELD_OUT * len(paths))) if len(paths) > 1 else 0
        by_hash = sorted(paths, key=_hash)
        train[name] = sorted(by_hash[count:])
        if count:
            test[name] = sorted(by_hash[:count])
    return ImageFiles(train, test, files.ignored)


def _hash(file: Path) -> bytes:
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
    """Return the image files below a folder, sorted, without hidden ones; or the one file.

    Links to folders are not followed.
    """
    if not root.exists():
        raise ValueError(f"{root} does not exist: give a folder of images, or one image.")
    if not root.is_dir():
        return [root]
    paths = []
    for folder, subfolders, names in os.walk(root, onerror=_raise):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        paths += [Path(folder, name) for name in names if _is_image(name)]
    if not paths:
        raise ValueError(f"{root} has no images, files that end in {' '.join(ENDINGS)}.")
    return sorted(paths)


def _raise(error: OSError) -> None:
    raise error
