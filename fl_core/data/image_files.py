"""Which image files lie in class folders, on disk or in a tar archive."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from io import BytesIO
from itertools import takewhile
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO, NamedTuple

from fl_core.data.folders import holds_tables, is_passed_over
from fl_core.files import open_file

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LAYOUT = "train/CLASS/* or CLASS/* and, if there are test images, test/CLASS/*"

_SPLITS = ("train", "test")
_LARGEST = 400_000_000  # bytes: four for each pixel of the largest image that is decoded
_READ_AT_ONCE = 50_000_000  # bytes of an archive that are unpacked in a second


class ImageFile(NamedTuple):
    """An image that is not opened yet.

    Attributes
    ----------
    path : str
        `CLASS/FILE`, `train/CLASS/FILE` or `test/CLASS/FILE`, as it lies below the root.
    open : callable
        Returns the encoded bytes as a stream; may be called in any thread.
    """

    path: str
    open: Callable[[], BinaryIO]


Splits = dict[str, dict[str, list[ImageFile]]]
"""`train` and perhaps `test`, to class names, to the files; both sorted."""


class _Entry(NamedTuple):
    """A file or folder of any kind; `parts` are of its path below the root."""

    parts: tuple[str, ...]
    is_dir: bool
    open: Callable[[], BinaryIO]


@contextmanager
def listed_images(root: Path) -> Iterator[Splits]:
    """List the images of a folder or archive; they can be opened inside the block.

    The class folders lie in `train` or, where there is no `train`, in the root itself. Those of
    the test images lie in `test`, which is never a class in the root. Hidden files and folders are
    passed over, and so are files without an image's ending and, beside `train`, other folders.

    Parameters
    ----------
    root : Path
        The folder that holds `train` or the class folders, or a .tar file with such a folder at any
        depth.

    Yields
    ------
    Splits
        With at least one training image for every class, and one test image for every class that
        has a test folder.

    Raises
    ------
    ValueError
        If there are no class folders, a class has no images or none for training, images lie
        deeper than the class folders, `train` or `test` is written in capitals, or a file is not an
        archive.
    OSError
        If the folder or file is not there or cannot be read.
    """
    with ExitStack() as stack:
        with _named(root):
            is_tar = root.is_file()
            entries = (
                _tar_entries(stack.enter_context(_opened_tar(root)))
                if is_tar
                else _folder_entries(root)
            )
            splits = _arranged(entries, root)
        yield splits


def check_layout(root: Path) -> None:
    """Refuse a data set's folder or archive as `listed_images` would, as far as is known at once.

    Of a folder, that is all but what lies in a class behind its first image, so that it may hold
    millions of them; of an archive of more than 50 MB, only whether it is one.

    Raises
    ------
    ValueError
        As `listed_images`.
    OSError
        If the folder or file is not there or cannot be read.
    """
    if not root.exists():
        raise FileNotFoundError(
            f'the folder {root} of dataset "folder" does not exist: set data-dir or FL_DATA_DIR '
            f"to one with {LAYOUT}."
        )
    with _named(root):
        if not root.is_file():
            _arranged(_folder_entries(root, first_only=True), root)
            return
        if root.stat().st_size <= _READ_AT_ONCE:
            with listed_images(root):
                return
        with _opened_tar(root):
            pass


@contextmanager
def _named(root: Path) -> Iterator[None]:
    """Say of what cannot be read what was expected."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{error.filename or root} cannot be read ({error.strerror or error}): a folder or "
            f".tar file with {LAYOUT} is expected."
        ) from error


def hold_out(splits: Splits, share: float) -> Splits:
    """Make test images of a share of each class's training images, where there are none.

    The choice depends on nothing but the names of the class and its files, so that it is the same
    in every run. Where files are added later, few of the others change sides.

    Parameters
    ----------
    splits : Splits
        Given back as they are, if they have test images or no class has two images.
    share : float
        Of each class, rounded to whole images, one at least. A class's only image is kept for
        training.
    """
    if "test" in splits:
        return splits
    train: dict[str, list[ImageFile]] = {}
    test: dict[str, list[ImageFile]] = {}
    for name, files in splits["train"].items():
        count = max(1, round(share * len(files))) if len(files) > 1 else 0
        chosen = {file.path for file in sorted(files, key=_rank)[:count]}
        train[name] = [file for file in files if file.path not in chosen]
        if chosen:
            test[name] = [file for file in files if file.path in chosen]
    return {"train": train, "test": test} if test else splits


def _rank(file: ImageFile) -> bytes:
    """Return a number like a random one, of `CLASS/FILE`."""
    name = "/".join(file.path.split("/")[-2:])
    return blake2b(os.fsencode(name), digest_size=16).digest()


def checksum(root: Path) -> str:
    """Return a hash of the images' paths, sizes and times, or of the archive's size and time.

    Raises
    ------
    ValueError, OSError
        As `listed_images`, for a folder.
    """
    paths = [""]
    if not root.is_file():
        with listed_images(root) as splits:
            folders = [files for classes in splits.values() for files in classes.values()]
        paths = [file.path for files in folders for file in files]
    digest = blake2b(digest_size=16)
    for path in paths:
        try:
            # pathlib would take most of the time for tens of thousands of files.
            status = os.stat(f"{root}/{path}" if path else root)  # noqa: PTH116
            found = f"{status.st_size}\0{status.st_mtime_ns}"
        except FileNotFoundError:  # a link to nothing, which is named when it is read
            found = "nothing"
        digest.update(os.fsencode(path) + f"\0{found}\0".encode())
    return digest.hexdigest()


def _folder_entries(root: Path, *, first_only: bool = False) -> Iterator[_Entry]:
    """Yield splits, class folders and what lies directly in them; links are followed.

    If `first_only`, what lies in a class folder behind its first image is left out.
    """
    for split in _SPLITS:
        if (root / split).is_dir():
            yield _Entry((split,), True, BytesIO)
            yield from _classes_entries(root / split, (split,), first_only)
    if not (root / "train").is_dir():
        yield from _classes_entries(root, (), first_only)
        return
    for path in root.iterdir():  # what is passed over, but for being named
        if path.name.lower() in _SPLITS and path.name not in _SPLITS and path.is_dir():
            yield _Entry((path.name,), True, BytesIO)


def _classes_entries(parent: Path, parts: tuple[str, ...], first_only: bool) -> Iterator[_Entry]:
    with os.scandir(parent) as folders:
        for folder in folders:
            is_split = not parts and folder.name == "test"
            if folder.is_dir() and not is_split and not is_passed_over(folder.name):
                inside = (*parts, folder.name)
                yield _Entry(inside, True, BytesIO)
                yield from _class_entries(folder.path, inside, first_only)


def _class_entries(folder: str, parts: tuple[str, ...], first_only: bool) -> Iterator[_Entry]:
    with os.scandir(folder) as entries:
        for entry in entries:
            is_dir = entry.is_dir()
            # A pipe is passed over; a link that leads to none of them is named later.
            if is_dir or entry.is_file() or entry.is_symlink():
                yield _Entry((*parts, entry.name), is_dir, partial(open_file, Path(entry.path)))
                if first_only and not is_dir and _is_image(entry.name):
                    return


@contextmanager
def _opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for access in any order: a compressed one would begin anew with each step."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except tarfile.TarError as error:
        raise ValueError(
            f"{path} cannot be read as .tar ({error}): a folder or .tar file with {LAYOUT} is "
            "expected, so unpack one that is compressed."
        ) from error


def _tar_entries(tar: tarfile.TarFile) -> Iterator[_Entry]:
    """Yield the members of the folder that holds the highest `train`, or else the classes."""
    # Of what was added again, the last one counts, as wherever an archive is unpacked.
    members = {PurePosixPath(m.name).parts: m for m in tar if not m.isdev()}
    root = _tar_root([parts for parts, member in members.items() if not member.isdir()])
    lock = Lock()
    for parts, member in members.items():
        if parts[: len(root)] == root:
            read = partial(_opened_member, tar, member, lock)
            yield _Entry(parts[len(root) :], member.isdir(), read)


def _tar_root(files: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return where the highest `train` lies, or else the deepest folder above all classes."""
    roots = [parts[: parts.index("train")] for parts in files if "train" in parts[:-1]]
    if roots:
        return min(roots, key=len)
    folders = {parts[:-1] for parts in files if parts and _is_image(parts[-1])}
    # An image beside class folders makes no class of what holds them.
    higher = {parts[:depth] for parts in folders for depth in range(len(parts))}
    above = [parts[:-1] for parts in folders - higher]
    same = takewhile(lambda level: len(set(level)) == 1, zip(*above, strict=False))
    root = tuple(level[0] for level in same)
    return root[:-1] if root[-1:] == ("test",) else root


def _opened_member(tar: tarfile.TarFile, member: tarfile.TarInfo, lock: Lock) -> BinaryIO:
    with lock:  # members share one file position
        stream = tar.extractfile(member)
        if stream is None:
            return BytesIO()
        # Of the file that a link leads to. A sparse one may claim any size.
        size = stream.seek(0, os.SEEK_END)
        if size > _LARGEST:
            raise ValueError(f"it has {size / 1e6:,.0f} MB, more than an image can")
        stream.seek(0)
        return BytesIO(stream.read())


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def _arranged(entries: Iterable[_Entry], root: Path) -> Splits:
    """Sort what is listed into splits and classes, and check that each class has its images."""
    visible = [entry for entry in entries if "/." not in "/" + "/".join(entry.parts)]
    _check_splits(visible, root)
    with_train = any(entry.parts[:1] == ("train",) for entry in visible)
    splits: Splits = {}
    for entry in sorted(visible, key=lambda entry: entry.parts):
        split, below = _placed(entry.parts, with_train)
        if split is None:
            continue
        classes = splits.setdefault(split, {})
        if not below or (len(below) == 1 and not entry.is_dir):
            continue  # the split itself, or a file beside its class folders
        files = classes.setdefault(below[0], [])
        if len(below) > 2 or (len(below) == 2 and entry.is_dir):
            folder = "/".join(entry.parts[: len(entry.parts) - len(below) + 1])
            hint = "" if with_train else "; a simulation reads SITE/CLASS/* by dataset=sites"
            raise ValueError(
                f"{folder} in {root} holds the folder {below[1]}, but images must lie in the class "
                f"folders themselves: {LAYOUT} is expected{hint}."
            )
        if len(below) == 2 and _is_image(below[1]):
            files.append(ImageFile("/".join(entry.parts), entry.open))
    _check_classes(splits, root, "train/" if with_train else "")
    return splits


def _check_splits(entries: Iterable[_Entry], root: Path) -> None:
    """Refuse `Train` and `Test`, which would be a class or nothing."""
    folders = {e.parts[0] for e in entries if e.parts and (e.is_dir or len(e.parts) > 1)}
    for name in sorted(folders):
        if name.lower() in _SPLITS and name not in _SPLITS:
            raise ValueError(
                f"{root} holds the folder {name}, but {name.lower()} has to be written in small "
                "letters: rename it."
            )


def _placed(parts: tuple[str, ...], with_train: bool) -> tuple[str | None, tuple[str, ...]]:
    """Return a path's split, None for neither, and the rest of the path, from its class on."""
    if parts[:1] == ("test",) or (with_train and parts[:1] == ("train",)):
        return parts[0], parts[1:]
    return ("train", parts) if parts and not with_train else (None, parts)


def _check_classes(splits: Splits, root: Path, train: str) -> None:
    """Check that classes have images; `train` is what the training classes' paths begin with."""
    for split in ("train", *splits):
        where = f"{root} has" if split == "train" and not train else f"{split} in {root} has"
        if not splits.get(split):
            if holds_tables(root):
                raise ValueError(
                    f"{root} has no class folders, but tables: a simulation reads them by "
                    "dataset=tables, one for each site, and a device has the path of one."
                )
            raise ValueError(f"{where} no class folders: {LAYOUT} is expected.")
    for split, classes in splits.items():
        prefix = train if split == "train" else "test/"
        for name, files in classes.items():
            if not files:
                raise ValueError(
                    f"{prefix}{name} in {root} has no images, files that end in "
                    f"{' '.join(ENDINGS)}: fill it or remove it."
                )
    untrained = sorted(splits.get("test", {}).keys() - splits["train"].keys())
    if untrained:
        raise ValueError(
            f"test/{untrained[0]} in {root} has no counterpart among the training classes: every "
            "class needs training images."
        )


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
