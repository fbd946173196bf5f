"""Where data sets are, what can be made again, and which files are tables."""

from __future__ import annotations

import os
from pathlib import Path

TABLE_ENDINGS = (".csv", ".parquet")


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
