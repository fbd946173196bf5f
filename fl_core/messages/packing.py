"""Messages of few objects, whose names nobody can foresee.

Flower cuts a message into objects and sends each by requests of its own: of arrays alone, two for
each and one for their record, so a model of eight takes seventeen requests to a device and as many
back. Packed, it is one object, and one more for each 5 MiB.

Each object is called by the SHA-256 of its bytes, and kept in one store for all. Whoever knows
beforehand what somebody will send can register that name with other contents, and the store then
refuses the real ones: a device knows the model that it has just tested, and all devices answer some
queries alike. So each object has a salt: nobody foresees 128 random bits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

SALT = "salt"
"""The name of the salt in a record that is not packed."""
PACKED = "packed"
"""The one name in a record that holds a piece of packed arrays."""
_PIECE = 5 * 2**20  # bytes, as Flower has it: over a slow line, a request may take two minutes
_SALT_BYTES = 16
_LENGTH = 8  # bytes, before the list of arrays
_LONGEST_LIST = 2**20  # bytes: 10,000 arrays

# As Protobuf writes Flower's ConfigRecord of that name and bytes: each has a length after it.
_BEGINNINGS = (b"\x0a", b"\x0a%c%b\x12" % (len(PACKED), PACKED.encode("ascii")), b"\x32")
_LONGEST_HEAD = 64  # bytes

Record = ArrayRecord | ConfigRecord | MetricRecord


class _Part(BaseModel):
    """An array among others, as it is listed before them.

    Attributes
    ----------
    name, dtype, shape, stype : str, str, tuple of int, str
        As Flower has them.
    size : int
        Bytes of its data.
    """

    name: str
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    stype: str
    size: NonNegativeInt


_PARTS = TypeAdapter(list[_Part])


class Packer:
    """Packs contents that are sent together, with one salt: what they share, they still share."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(_SALT_BYTES)
        # With the arrays themselves, since only then their ids stay their own.
        self._made: dict[tuple[tuple[str, int], ...], tuple[list[Array], list[ConfigRecord]]] = {}

    def packed(self, content: RecordDict) -> RecordDict:
        """Return a content in which each record of arrays is one, or few, of bytes."""
        records: dict[str, Record] = {}
        for name, record in content.items():
            if isinstance(record, ArrayRecord):
                pieces = self._pieces(record)
                records |= {f"{name}/{number}": piece for number, piece in enumerate(pieces)}
            elif isinstance(record, ConfigRecord):
                records[name] = ConfigRecord({**record, SALT: self._salt.hex()})
            else:  # as numbers that a metric can hold
                numbers = [int.from_bytes(self._salt[i : i + 4]) for i in range(0, _SALT_BYTES, 4)]
                records[name] = MetricRecord({**record, SALT: numbers})
        return RecordDict(records)

    def _pieces(self, record: ArrayRecord) -> list[ConfigRecord]:
        key = tuple((name, id(array)) for name, array in record.items())
        if key not in self._made:
            data = memoryview(_joined(record))
            pieces = [
                ConfigRecord({PACKED: self._salt + data[start : start + _PIECE]})
                for start in range(0, len(data), _PIECE)
            ]
            self._made[key] = (list(record.values()), pieces)
        return self._made[key][1]


def unpacked(content: RecordDict) -> RecordDict:
    """Return a content as it was before it was packed; one that was not, stays as it is.

    Raises
    ------
    ValueError
        If something that is called packed is not what `Packer` makes.
    """
    records: dict[str, Record] = {}
    pieces: dict[str, dict[int, memoryview]] = {}
    for name, record in content.items():
        if isinstance(record, ConfigRecord) and list(record) == [PACKED]:
            whole, _, number = name.rpartition("/")
            piece = record[PACKED]
            if not isinstance(piece, bytes) or not (number.isascii() and number.isdigit()):
                raise ValueError("a piece of packed arrays has no number, or is not of bytes")
            pieces.setdefault(whole, {})[int(number)] = memoryview(piece)[_SALT_BYTES:]
        elif isinstance(record, ConfigRecord):
            records[name] = ConfigRecord({k: v for k, v in record.items() if k != SALT})
        elif isinstance(record, MetricRecord):
            records[name] = MetricRecord({k: v for k, v in record.items() if k != SALT})
        else:
            records[name] = record
    for name, numbered in pieces.items():
        if sorted(numbered) != list(range(len(numbered))):
            raise ValueError("a piece of packed arrays is missing")
        records[name] = _taken_apart(b"".join(numbered[i] for i in range(len(numbered))))
    return RecordDict(records)


def is_piece(body: bytes) -> bool:
    """Return whether an object's body is a record of one piece of packed arrays, and nothing else.

    To read such a record takes no more room than its bytes, to read one of many small values many
    times as much: so it is told by how it begins, and by lengths that leave no room for more.
    """
    head, at = bytes(body[:_LONGEST_HEAD]), 0
    for begin in _BEGINNINGS:
        if not head.startswith(begin, at):
            return False
        length, at = _varint(head, at + len(begin))
        if length != len(body) - at:
            return False
    return True


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that Protobuf has written there, and where it ends; −1 if it does not."""
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
    listed = _PARTS.dump_json(parts)
    length = len(listed).to_bytes(_LENGTH, "little")
    return b"".join([length, listed, *(array.data for array in record.values())])


def _taken_apart(data: bytes) -> ArrayRecord:
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if start > min(len(data), _LENGTH + _LONGEST_LIST):
        raise ValueError("packed arrays do not begin with a list of them")
    try:
        parts = _PARTS.validate_json(data[_LENGTH:start])
    except ValidationError as error:
        raise ValueError(
            f"the list of packed arrays is wrong: {error.errors()[0]['msg']}"
        ) from None
    if start + sum(part.size for part in parts) != len(data):
        raise ValueError("packed arrays are not as long as their list says")
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("two packed arrays have one name")
    arrays = {}
    for part in parts:
        arrays[part.name] = Array(
            dtype=part.dtype,
            shape=part.shape,
            stype=part.stype,
            data=data[start : start + part.size],
        )
        start += part.size
    return ArrayRecord(arrays)
