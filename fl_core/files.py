"""Write files completely or not at all, and read only regular files."""

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
    """Open a file, or the target of a link, for reading; a pipe or a device is a ValueError."""
    if path.is_file():  # opening a device can have effects
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # still
            return os.fdopen(handle, "rb")
        os.close(handle)
    raise ValueError("it is not a file")


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with the same ending, to write instead of `path`.

    After the block it is moved to `path`; if the block raises, it is removed. A missing folder is
    created. Who can read the folder can read the file; if `private`, only the owner.
    """
    open_to = _make_folder(path.parent)
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(8)}{path.suffix}")
    # Not by tempfile: only the owner can read its files. To find the usual mode, one has to change
    # the umask of the whole process, while another thread may do the same.
    mode = 0o600 if private else 0o600 | open_to & 0o666
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))
        mode = stat.S_IMODE(temporary.stat().st_mode)  # after the umask
        yield temporary
        temporary.chmod(mode)  # safetensors 0.8 replaces the file by one with mode 600
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # otherwise a power cut could leave an empty file
        temporary.replace(path)
    except Exception as error:
        if _is_full(error):
            raise OSError(
                f"{path} cannot be written, the disk is full: make room, and start again."
            ) from error
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> int:
    """Create a missing folder, as private as its parent, and return its mode."""
    if not folder.exists():
        folder.mkdir(mode=_make_folder(folder.parent) & 0o777 | 0o700, exist_ok=True)
    return folder.stat().st_mode


def _is_full(error: Exception) -> bool:
    # The text of safetensors is `I/O error: No space left on device (os error 28)`.
    numbers = (errno.ENOSPC, errno.EDQUOT)
    is_named = any(f"(os error {number})" in str(error) for number in numbers)
    return is_named or (isinstance(error, OSError) and error.errno in numbers)


def program_path(name: str) -> str:
    """Return the path of a program beside this Python, or its name if there is none."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name
