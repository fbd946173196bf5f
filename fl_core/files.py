"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with the same ending, to write `path` by.

    Once the block has ended well, it is moved onto `path`; if the block raises, it is removed. The
    folder is made where it is missing. If `private`, only the owner may read the file, whatever the
    umask says.

    Raises
    ------
    OSError
        If it cannot be written; where the disk is full, with the path and what to do.
    """
    try:
        with _replacing(path, private) as temporary:
            yield temporary
    except Exception as error:
        if not _is_full(error):
            raise
        raise OSError(
            f"{path} cannot be written, the disk is full: make room, and go on with what is there "
            "(a run with checkpoints by resume).",
        ) from error


@contextmanager
def _replacing(path: Path, private: bool) -> Iterator[Path]:
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


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # safetensors says it in words: `I/O error: No space left on device (os error 28)`.
    return any(f"(os error {number})" in str(error) for number in (errno.ENOSPC, errno.EDQUOT))
