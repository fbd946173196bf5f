"""Files that are written completely or not at all, and read only if they are files."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Open a file, or what a link leads to, for reading; a pipe or a device is not waited for.

    Raises
    ------
    ValueError
        If it is not a file: `it is not a file`.
    OSError
        If it cannot be opened.
    """
    if path.is_file():  # even to open a device can do something
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # still
            return os.fdopen(handle, "rb")
        os.close(handle)
    raise ValueError("it is not a file")


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with the same ending, to write `path` by.

    Once the block has ended well, it is moved onto `path`; if the block raises, it is removed. The
    folder is made where it is missing. Nobody may read the file who may not read the folder; if
    `private`, only the owner, whatever the umask says.

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
    open_to = _made(path.parent)
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(8)}{path.suffix}")
    # Not by tempfile, whose files only their owner can read: to find out what open() would give,
    # one has to change the umask of the whole process, while another thread may do the same.
    mode = 0o600 if private else 0o600 | open_to & 0o666
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        mode = stat.S_IMODE(os.fstat(handle).st_mode)  # what the umask leaves of it
        os.close(handle)
    except OSError as error:
        error.filename = str(path)  # the other one is nobody's business
        raise
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors 0.8 puts a file of its own there, with mode 600
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # or a power cut could leave the new name with no content
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _made(folder: Path) -> int:
    """Make a folder where it is missing, as private as what it is in, and return its mode."""
    if not folder.exists():
        folder.mkdir(mode=_made(folder.parent) & 0o777 | 0o700, exist_ok=True)
    return folder.stat().st_mode


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # safetensors says it in words: `I/O error: No space left on device (os error 28)`.
    return any(f"(os error {number})" in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def program_path(name: str) -> str:
    """Return the path of a program installed beside this Python."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name
