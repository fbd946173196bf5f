"""Pack messages into few objects with unforeseeable names.

Flower cuts a message into objects and sends each by several requests: a model of eight arrays takes
seventeen to a device and as many back. Packed, it is one object, and one more for each 5 MiB.

An object's name is the SHA-256 of its bytes, and one store has the objects of all. A device that
foresees an object could register its name with other contents, and the store would refuse the real
ones. So each object has a salt of 128 random bits.
"""

import secrets
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

SALT = "salt"
"""The entry of the salt in a record that is not packed."""
PACKED = "packed"
"""The only entry of a record with a piece of packed arrays."""
_PIECE = 5 * 2**20  # bytes, as in Flower: over a slow line, a request may take two minutes
_SALT_BYTES = 16
_LENGTH = 8  # bytes, before the list of arrays
_LONGEST_LIST = 2**20  # bytes: 10,000 arrays

# As Protobuf writes Flower's ConfigRecord of that name and bytes: each has a length after it.
_BEGINNINGS = (b"\x0a", b"\x0a%c%b\x12" % (len(PACKED), PACKED.encode("ascii")), b"\x32")
_LONGEST_HEAD = 64  # bytes

Record = ArrayRecord | ConfigRecord | MetricRecord


class _Part(BaseModel):
    """The entry of an array in the list before packed arrays, with Flower's attributes."""

    name: str
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    stype: str
    size: NonNegativeInt  # bytes


_PART_LIST_ADAPTER = TypeAdapter(list[_Part])


class Packer:
    """Packs contents that are sent together, with one salt: equal parts remain equal objects."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(_SALT_BYTES)
        # With the arrays, so that their ids are not used again.
        self._packed: dict[tuple[tuple[str, int], ...], tuple[list[Array], list[ConfigRecord]]] = {}

    def pack(self, content: RecordDict) -> RecordDict:
        """Return a content with each record of arrays as one or few records of bytes."""
        records: dict[str, Record] = {}
        for name, record in content.items():
            if isinstance(record, ArrayRecord):
                pieces = self._pieces(record)
                records |= {f"{name}/{number}": piece for number, piece in enumerate(pieces)}
            elif isinstance(record, ConfigRecord):
                records[name] = ConfigRecord({**record, SALT: self._salt.hex()})
            else:  # as numbers, which a metric can be
                numbers = [int.from_bytes(self._salt[i : i + 4]) for i in range(0, _SALT_BYTES, 4)]
                records[name] = MetricRecord({**record, SALT: numbers})
        return RecordDict(records)

    def _pieces(self, record: ArrayRecord) -> list[ConfigRecord]:
        key = tuple((name, id(array)) for name, array in record.items())
        if key not in self._packed:
            data = memoryview(_joined(record))
            pieces = [
                ConfigRecord({PACKED: self._salt + data[start : start + _PIECE]})
                for start in range(0, len(data), _PIECE)
            ]
            self._packed[key] = (list(record.values()), pieces)
        return self._packed[key][1]


def unpack_content(content: RecordDict) -> RecordDict:
    """Unpack a content; one that was not packed is returned unchanged."""
    records: dict[str, Record] = {}
    pieces: dict[str, dict[int, memoryview]] = {}
    for name, record in content.items():
        if isinstance(record, ConfigRecord) and list(record) == [PACKED]:
            whole, _, number = name.rpartition("/")
            piece = record[PACKED]
            if not isinstance(piece, bytes) or not (number.isascii() and number.isdigit()):
                raise ValueError("a piece of packed arrays has no number or is not bytes")
            pieces.setdefault(whole, {})[int(number)] = memoryview(piece)[_SALT_BYTES:]
        else:
            records[name] = record
            if isinstance(record, ConfigRecord | MetricRecord) and SALT in record:
                entries: dict[str, Any] = {k: v for k, v in record.items() if k != SALT}
                records[name] = type(record)(entries)
    for name, numbered in pieces.items():
        if sorted(numbered) != list(range(len(numbered))):
            raise ValueError("a piece of packed arrays is missing")
        records[name] = _split_arrays(b"".join(numbered[i] for i in range(len(numbered))))
    return RecordDict(records)


def is_piece(body: bytes) -> bool:
    """Return whether an object's body is one piece of packed arrays, which need no more memory."""
    head, at = bytes(body[:_LONGEST_HEAD]), 0
    for begin in _BEGINNINGS:
        if not head.startswith(begin, at):
            return False
        length, at = _varint(head, at + len(begin))
        if length != len(body) - at:
            return False
    return True


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return Protobuf's number at an offset, and the offset after it; −1 if it has no end."""
    number = 0
    for end, byte in enumerate(data[at:], at + 1):
        number |= (byte & 0x7F) << 7 * (end - at - 1)
        if byte < 0x80:  # the last of its bytes
            return number, end
    return -1, len(data)


def _joined(record: Mapping[str, Array]) -> bytes:
    parts = [
        _Part(name=name, dtype=a.dtype, shape=tuple(a.shape), stype=a.stype, size=len(a.data))
        for name, a in record.items()
    ]
    listed = _PART_LIST_ADAPTER.dump_json(parts)
    length = len(listed).to_bytes(_LENGTH, "little")
    return b"".join([length, listed, *(array.data for array in record.values())])


def _split_arrays(data: bytes) -> ArrayRecord:
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if start > min(len(data), _LENGTH + _LONGEST_LIST):
        raise ValueError("packed arrays do not begin with their list")
    try:
        parts = _PART_LIST_ADAPTER.validate_json(data[_LENGTH:start])
    except ValidationError as error:
        raise ValueError(f"packed arrays have a wrong list: {error.errors()[0]['msg']}") from None
    if start + sum(part.size for part in parts) != len(data):
        raise ValueError("packed arrays have another length than in their list")
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("two packed arrays have the same name")
    arrays = {}
    for part in parts:
        piece = data[start : start + part.size]
        arrays[part.name] = Array(dtype=part.dtype, shape=part.shape, stype=part.stype, data=piece)
        start += part.size
    return ArrayRecord(arrays)
