"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`, moved onto `path` once the block has ended well.

    Parameters
    ----------
    path : Path
        The file to write; its folder is made where it is missing.
    private : bool
        Whether only its owner may read it, whatever the umask says.

    Yields
    ------
    Path
        Where to write, with the same ending. It is removed if the block raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if not private:
            # mkstemp makes files that only their owner can read; give what open() would.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # or a power cut could leave the new name with no content
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
