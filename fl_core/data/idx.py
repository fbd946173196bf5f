"""MNIST's file format, IDX: a header of a few bytes, then numbers of one byte.

torchvision reads it, too, but takes seconds to be imported: half of what a simulated client's
process needs to start.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTES = 8  # the type's number


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array in a file of unsigned bytes.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If it is of another format or type, or cut short.
    """
    content = np.fromfile(path, np.uint8)
    header = content[:4].tolist()
    if len(header) < 4 or header[:3] != [0, 0, _UNSIGNED_BYTES]:
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * header[3]
    shape = tuple(int(size) for size in content[4:start].view(">u4"))
    if len(shape) < header[3] or len(content) - start != math.prod(shape):
        raise ValueError(f"{path} is cut short, or longer than it says")
    return content[start:].reshape(shape)
