"""Random additions to messages, after which nobody can foresee what their parts are called.

Flower cuts a message into objects, calls each by the SHA-256 of its bytes, and keeps them in one
store for all. Whoever knows beforehand what somebody will send can register that name with other
contents, and the store then refuses the real ones: a device knows the model that it has just
tested, and all devices answer some queries alike. Nobody foresees 128 random bits.
"""

from __future__ import annotations

import secrets

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

KEY = "salt"
_MAGIC = b"\x93NUMPY\x01\x00"
_LENGTH = 2  # bytes, after the magic string
_COMMENT = b" # "


class Salt:
    """One random addition, for messages that are sent together: what they share, they still share.

    Attributes
    ----------
    text : str
        At least 128 random bits. Its length is random, too: of an array that is sent in several
        pieces, the later ones shift by it.
    """

    def __init__(self) -> None:
        self.text = secrets.token_hex(16 + secrets.randbelow(100))
        # Its first 128 bits as numbers that a metric can hold.
        self._numbers = [int(self.text[start : start + 8], 16) for start in range(0, 32, 8)]
        # With the original, since only then its id stays its own.
        self._made: dict[int, tuple[Array, Array]] = {}

    def added_to(self, content: RecordDict) -> RecordDict:
        """Return a copy of a message's content, each record and array of which holds the salt."""
        records: dict[str, ArrayRecord | ConfigRecord | MetricRecord] = {}
        for name, record in content.items():
            if isinstance(record, ConfigRecord):
                records[name] = ConfigRecord({**record, KEY: self.text})
            elif isinstance(record, MetricRecord):
                records[name] = MetricRecord({**record, KEY: self._numbers})
            else:
                records[name] = ArrayRecord({key: self._once(a) for key, a in record.items()})
        return RecordDict(records)

    def _once(self, array: Array) -> Array:
        if id(array) not in self._made:
            self._made[id(array)] = (array, array_with_comment(array, self.text))
        return self._made[id(array)][1]


def without_salt(content: RecordDict) -> RecordDict:
    """Return a content as it was before it got a salt.

    Raises
    ------
    ValueError
        If an array with a comment is not an array.
    """
    records: dict[str, ArrayRecord | ConfigRecord | MetricRecord] = {}
    for name, record in content.items():
        if isinstance(record, ConfigRecord):
            records[name] = ConfigRecord({k: v for k, v in record.items() if k != KEY})
        elif isinstance(record, MetricRecord):
            records[name] = MetricRecord({k: v for k, v in record.items() if k != KEY})
        else:
            records[name] = ArrayRecord(
                {k: Array(v.numpy()) if _COMMENT in _header(v) else v for k, v in record.items()}
            )
    return RecordDict(records)


def array_with_comment(array: Array, comment: str) -> Array:
    """Return an array of the same numbers and other bytes.

    What NumPy writes before the numbers is a line of Python, in which a comment may stand.

    Examples
    --------
    >>> import numpy as np
    >>> array_with_comment(Array(np.array([1.5, 2.5])), "0f1e").numpy()
    array([1.5, 2.5])
    """
    old = _header(array)
    if not old:
        return array
    header = old.rstrip() + _COMMENT + f"{comment}\n".encode("ascii")
    length = len(header).to_bytes(_LENGTH, "little")
    numbers = memoryview(array.data)[len(_MAGIC) + _LENGTH + len(old) :]
    data = b"".join([_MAGIC, length, header, numbers])
    return Array(dtype=array.dtype, shape=array.shape, stype=array.stype, data=data)


def _header(array: Array) -> bytes:
    """Return the line that NumPy writes before an array's numbers; empty if there is none."""
    start = len(_MAGIC) + _LENGTH
    if not array.data.startswith(_MAGIC):
        return b""
    return array.data[start : start + int.from_bytes(array.data[len(_MAGIC) : start], "little")]
