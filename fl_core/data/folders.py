"""Folders of data: where they are, and the sites and tables in them."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fl_core.text import listed, printable, strip_and_compose

SITE_LAYOUT = "SITE/CLASS/*.png (or .jpg and so on), such as berlin/cat/1.png"
TABLE_ENDINGS = (".csv", ".parquet")

_SPLITS = ("train", "test", "val")  # of one data set, rather than sites
_HIDDEN = ("lost+found", "__MACOSX")  # of a disk, of a ZIP archive


def cache_dir() -> Path:
    """Return the folder for what can be made again: FL_CACHE_DIR, else the user's cache folder."""
    if given := os.environ.get("FL_CACHE_DIR"):
        return Path(given).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return caches.expanduser().absolute() / "fedkin"


def resolve_data_dir(data_dir: str) -> Path:
    """Return the folder of data sets: `data_dir`, else FL_DATA_DIR, else a folder of the cache."""
    given = data_dir or os.environ.get("FL_DATA_DIR")
    return Path(given).expanduser().absolute() if given else cache_dir() / "data"


def is_table(path: Path) -> bool:
    """Return whether a file is a table by its name; hidden ones are not."""
    return path.suffix.lower() in TABLE_ENDINGS and not path.name.startswith(".")


def folders_and_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders in a folder, and all else in it, both sorted, without hidden ones."""
    entries: dict[bool, list[Path]] = {True: [], False: []}
    with os.scandir(root) as scanned:
        for entry in scanned:
            if not entry.name.startswith(".") and entry.name not in _HIDDEN:
                entries[entry.is_dir()].append(root / entry.name)
    return sorted(entries[True]), sorted(entries[False])


def folders_in(root: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without hidden ones."""
    return folders_and_files(root)[0]


def ignored_note(root: Path, read: str, ignored: Sequence[Path]) -> list[str]:
    """Return a note that names the files and folders that are not read; nothing without any."""
    names = [printable(str(path.relative_to(root))) for path in ignored]
    return [f"in {root}, only {read} are read, not {listed(names, 5, ', ')}"] if names else []


def site_of(path: Path) -> str:
    """Return the name of the site of a folder or a table, without its ending."""
    return printable(strip_and_compose(path.stem if is_table(path) else path.name))


def check_site_names(root: Path, paths: Sequence[Path]) -> None:
    """Refuse two folders or tables of one site's name, by a ValueError."""
    for path, following in pairwise(sorted(paths, key=site_of)):
        if site_of(path) == site_of(following):
            raise ValueError(
                f"{root} has {path.name!r} and {following.name!r}, names of one site that differ "
                "in spaces, endings or the encoding of accents: rename or remove one."
            )


def list_site_folders(root: Path) -> list[Path]:
    """Return the folders in a folder that each hold the class folders of a site, sorted."""
    if not root.is_dir():
        raise ValueError(f"{root} is not a folder: set data-dir to a folder with {SITE_LAYOUT}.")
    folders = folders_in(root)
    splits = [path.name for path in folders if path.name.lower() in _SPLITS]
    if splits:
        raise ValueError(
            f"{root} has the folder {splits[0]}, but dataset=sites takes each folder for a site, "
            f"{SITE_LAYOUT}: set dataset=folder for images without sites, or rename it."
        )
    check_site_names(root, folders)
    empty = [path for path in folders if not folders_in(path)]
    if len(folders) < 2 or empty:
        what = f"{empty[0].name} has no folders" if empty else f"there are {len(folders)} sites"
        hint = ", or dataset=folder if its folders are classes" if folders == empty != [] else ""
        raise ValueError(
            f"in {root} {what}, but dataset=sites needs {SITE_LAYOUT}, of at least two sites: set "
            f"data-dir to such a folder{hint}."
        )
    return folders
