"""Where data sets are, what can be made again, and which files are tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fl_core.text import composed, listed, printable

SITE_LAYOUT = "SITE/CLASS/*.png (or .jpg and so on), such as berlin/cat/1.png"
TABLE_ENDINGS = (".csv", ".parquet")

_SPLITS = ("train", "test", "val")  # of one data set, rather than sites


def cache_dir() -> Path:
    """Return the folder for what can be made again: FL_CACHE_DIR, else the user's cache folder."""
    if own := os.environ.get("FL_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return caches.expanduser().absolute() / "fedkin"


def resolve_data_dir(data_dir: str) -> Path:
    """Return where data sets are: `data_dir`, else FL_DATA_DIR, else `data` in `cache_dir()`."""
    given = data_dir or os.environ.get("FL_DATA_DIR")
    return Path(given).expanduser().absolute() if given else cache_dir() / "data"


def is_table(path: Path) -> bool:
    """Return whether a file is a table by its name; hidden ones are none."""
    return path.suffix.lower() in TABLE_ENDINGS and not path.name.startswith(".")


def holds_tables(root: Path) -> bool:
    """Return whether a folder holds tables itself."""
    return root.is_dir() and any(map(is_table, root.iterdir()))


def folders_and_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders in a folder, and all else in it, both sorted, without hidden ones.

    What a disk or a ZIP archive has beside its data counts as hidden.
    """
    found: dict[bool, list[Path]] = {True: [], False: []}
    with os.scandir(root) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.name not in ("lost+found", "__MACOSX"):
                found[entry.is_dir()].append(root / entry.name)
    return sorted(found[True]), sorted(found[False])


def folders_in(root: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without hidden ones."""
    return folders_and_files(root)[0]


def ignored_note(root: Path, read: str, ignored: Sequence[Path]) -> list[str]:
    """Say which files and folders in a folder are not read; nothing if there are none."""
    names = [printable(str(path.relative_to(root))) for path in ignored]
    return [f"in {root}, only {read} are read, not {listed(names, 5, ', ')}"] if names else []


def site_of(path: Path) -> str:
    """Return the name of the site that has a folder, or a table: its own, without the ending."""
    return printable(composed(path.stem if is_table(path) else path.name))


def check_site_names(root: Path, paths: Sequence[Path]) -> None:
    """Refuse two folders or tables of one site's name, by a ValueError."""
    for path, following in pairwise(sorted(paths, key=site_of)):
        if site_of(path) == site_of(following):
            raise ValueError(
                f"{root} holds {path.name!r} and {following.name!r}, which are one site's name but "
                "for spaces, endings or the way of storing accents: rename or remove one."
            )


def site_folders(root: Path) -> list[Path]:
    """Return the folders in a folder that each hold the class folders of a site, sorted.

    Raises
    ------
    ValueError
        If there is no such folder, they are fewer than two, two have the same site's name, one
        holds no folders, or is train or test.
    OSError
        If a folder cannot be read.
    """
    if not root.is_dir():
        raise ValueError(
            f"{root} is no folder: set data-dir to one that holds {SITE_LAYOUT}, two sites at "
            "least."
        )
    found = folders_in(root)
    splits = [path.name for path in found if path.name.lower() in _SPLITS]
    if splits:
        raise ValueError(
            f"{root} holds the folder {splits[0]}, but dataset=sites takes each for a site, "
            f"{SITE_LAYOUT}: set dataset=folder for images that are not of sites, or rename it."
        )
    check_site_names(root, found)
    empty = [path for path in found if not folders_in(path)]
    if len(found) < 2 or empty:
        what = f"{empty[0].name} has no folders" if empty else f"there are {len(found)} sites"
        hint = ", or dataset=folder if its folders are classes" if found == empty != [] else ""
        raise ValueError(
            f"in {root} {what}, but dataset=sites wants {SITE_LAYOUT}, two sites at least: name "
            f"such a folder by data-dir{hint}."
        )
    return found
