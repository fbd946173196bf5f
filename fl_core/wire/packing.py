"""Many arrays in one, so that a message is few objects.

Flower sends each array of a message as two objects, each with requests of its own: a model of eight
arrays takes some twenty to a device, and as many back. Packed, it is two, and one more for each
5 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

PACKED = "packed arrays"
"""The one name in a record whose arrays are packed."""
_LENGTH = 8  # bytes, before the list of arrays
_LONGEST_LIST = 2**20  # bytes: 10,000 arrays


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
    """Packs contents that are sent together: what they share, they still share."""

    def __init__(self) -> None:
        # With the arrays themselves, since only then their ids stay their own.
        self._made: dict[tuple[tuple[str, int], ...], tuple[list[Array], ArrayRecord]] = {}

    def packed(self, content: RecordDict) -> RecordDict:
        """Return a content in which each record of several arrays is one of a single array."""
        return RecordDict(
            {
                name: self._once(record)
                if isinstance(record, ArrayRecord) and len(record) > 1
                else record
                for name, record in content.items()
            }
        )

    def _once(self, record: ArrayRecord) -> ArrayRecord:
        key = tuple((name, id(array)) for name, array in record.items())
        if key not in self._made:
            self._made[key] = (list(record.values()), _one_array(record))
        return self._made[key][1]


def unpacked(content: RecordDict) -> RecordDict:
    """Return a content as it was before it was packed; one that was not, stays as it is.

    Raises
    ------
    ValueError
        If something that is called packed is not what `Packer` makes.
    """
    records: dict[str, ArrayRecord | ConfigRecord | MetricRecord] = {}
    for name, record in content.items():
        if isinstance(record, ArrayRecord) and list(record) == [PACKED]:
            records[name] = _several_arrays(record[PACKED])
        else:
            records[name] = record
    return RecordDict(records)


def _one_array(record: Mapping[str, Array]) -> ArrayRecord:
    parts = [
        _Part(name=name, dtype=a.dtype, shape=tuple(a.shape), stype=a.stype, size=len(a.data))
        for name, a in record.items()
    ]
    listed = _PARTS.dump_json(parts)
    length = len(listed).to_bytes(_LENGTH, "little")
    data = b"".join([length, listed, *(array.data for array in record.values())])
    return ArrayRecord({PACKED: Array(np.frombuffer(data, np.uint8))})


def _several_arrays(packed: Array) -> ArrayRecord:
    data = packed.numpy().tobytes()
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
