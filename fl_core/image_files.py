"""Which image files lie in class folders, on disk or in a tar archive."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from io import BytesIO
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO, NamedTuple

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LAYOUT = "train/CLASS/* and, if there are test images, test/CLASS/*"


class ImageFile(NamedTuple):
    """An image that is not opened yet.

    Attributes
    ----------
    path : str
        `train/CLASS/FILE` or `test/CLASS/FILE`.
    open : callable
        Returns the encoded bytes as a stream; may be called in any thread.
    """

    path: str
    open: Callable[[], BinaryIO]


Splits = dict[str, dict[str, list[ImageFile]]]
"""`train` and perhaps `test`, to class names, to the files; both sorted."""


class _Entry(NamedTuple):
    """A file or folder of any kind; `parts` of its path start with `train` or `test`."""

    parts: tuple[str, ...]
    is_dir: bool
    open: Callable[[], BinaryIO]


@contextmanager
def listed_images(root: Path) -> Iterator[Splits]:
    """List the images of a folder or archive; they can be opened inside the block.

    Hidden files and folders are passed over, and so are files without an image's ending.

    Parameters
    ----------
    root : Path
        The folder that holds `train`, or a .tar or .tar.gz file with such a folder at any depth.

    Yields
    ------
    Splits
        With at least one training image for every class, and one test image for every class that
        has a test folder.

    Raises
    ------
    ValueError
        If there is no training folder, a class has no images or none for training, images lie
        deeper than the class folders, or a file is no archive.
    OSError
        If the folder or file cannot be read.
    """
    if root.is_file():
        with _opened_tar(root) as tar:
            yield _arranged(_tar_entries(tar), root)
    else:
        yield _arranged(_folder_entries(root), root)


def fingerprint(root: Path) -> str:
    """Return a hash of the images' paths, sizes and times, or of the archive's size and time.

    Raises
    ------
    ValueError, OSError
        As `listed_images`, for a folder.
    """
    digest = blake2b(digest_size=16)
    for path in [""] if root.is_file() else _folder_paths(root):
        # pathlib would take most of the time for tens of thousands of files.
        status = os.stat(f"{root}/{path}" if path else root)  # noqa: PTH116
        digest.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _folder_paths(root: Path) -> list[str]:
    with listed_images(root) as splits:
        return [f.path for classes in splits.values() for files in classes.values() for f in files]


def _folder_entries(root: Path) -> Iterator[_Entry]:
    """Yield class folders and what lies directly in them; links are followed."""
    for split in ("train", "test"):
        if (root / split).is_dir():
            yield _Entry((split,), True, BytesIO)
            for folder in (root / split).iterdir():
                if folder.is_dir():
                    yield _Entry((split, folder.name), True, BytesIO)
                    yield from _class_entries(folder, (split, folder.name))


def _class_entries(folder: Path, parts: tuple[str, ...]) -> Iterator[_Entry]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield _Entry((*parts, entry.name), entry.is_dir(), partial(_opened_file, entry.path))


def _opened_file(path: str) -> BinaryIO:
    return Path(path).open("rb")


@contextmanager
def _opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for access in any order."""
    with ExitStack() as stack:
        try:
            try:
                tar = stack.enter_context(tarfile.open(path, "r:"))
            except tarfile.ReadError:
                # A compressed file would start from its beginning again with each step back.
                plain = stack.enter_context(tempfile.TemporaryFile())
                with gzip.open(path) as compressed:
                    shutil.copyfileobj(compressed, plain)
                plain.seek(0)
                tar = stack.enter_context(tarfile.open(fileobj=plain, mode="r:"))
            yield tar
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path} cannot be read as .tar or .tar.gz: {error}.") from error


def _tar_entries(tar: tarfile.TarFile) -> Iterator[_Entry]:
    """Yield the members of the folder that holds the highest `train`."""
    members = [(PurePosixPath(m.name).parts, m) for m in tar if not m.isdev()]
    roots = [parts[: parts.index("train")] for parts, _ in members if "train" in parts]
    if not roots:
        return
    root = min(roots, key=len)
    lock = Lock()
    for parts, member in members:
        if parts[: len(root)] == root:
            read = partial(_opened_member, tar, member, lock)
            yield _Entry(parts[len(root) :], member.isdir(), read)


def _opened_member(tar: tarfile.TarFile, member: tarfile.TarInfo, lock: Lock) -> BinaryIO:
    with lock:  # members share one file position
        stream = tar.extractfile(member)
        return BytesIO(stream.read() if stream else b"")


def _arranged(entries: Iterable[_Entry], root: Path) -> Splits:
    """Sort what is listed into splits and classes, and check that each class has its images."""
    splits: Splits = {}
    for entry in sorted(entries, key=lambda entry: entry.parts):
        parts, depth = entry.parts, len(entry.parts)
        path = "/".join(parts)
        if parts[:1] not in {("train",), ("test",)} or "/." in path:
            continue
        classes = splits.setdefault(parts[0], {})
        if depth == 1 or (depth == 2 and not entry.is_dir):
            continue  # the split itself, or a file beside its class folders
        files = classes.setdefault(parts[1], [])
        if depth > 3 or (depth == 3 and entry.is_dir):
            raise ValueError(
                f"{parts[0]}/{parts[1]} in {root} holds the folder {parts[2]}: images must lie in "
                "the class folders themselves."
            )
        if depth == 3 and parts[2].lower().endswith(ENDINGS):
            files.append(ImageFile(path, entry.open))
    _check_classes(splits, root)
    return splits


def _check_classes(splits: Splits, root: Path) -> None:
    if "train" not in splits:
        raise ValueError(f"{root} holds no folder train: {LAYOUT} is wanted.")
    for split, classes in splits.items():
        if not classes:
            raise ValueError(f"{split} in {root} has no class folders: {LAYOUT} is wanted.")
        for name, files in classes.items():
            if not files:
                raise ValueError(
                    f"{split}/{name} in {root} has no images, files that end in "
                    f"{' '.join(ENDINGS)}: fill it or remove it."
                )
    strangers = sorted(splits.get("test", {}).keys() - splits["train"].keys())
    if strangers:
        raise ValueError(
            f"test/{strangers[0]} in {root} has no counterpart in train: every class needs "
            "training images."
        )
