"""How a device's answer travels: packed, with a salt, and with how long the device took."""

from __future__ import annotations

import time

import psutil
from flwr.app import MetricRecord, RecordDict

from fl_app.grid.quorum import Took
from fl_core.wire.message_salt import Salt, without_salt
from fl_core.wire.packing import Packer, unpacked

_TOOK = "took"
_START_UP, _WORK = "start-up", "work"  # seconds
_LONGEST = 1e7


def time_since_start() -> float:
    """Return how many seconds ago this process began, or was forked."""
    return max(0.0, time.time() - psutil.Process().create_time())


def sealed(content: RecordDict, took: Took) -> RecordDict:
    """Return an answer as it travels.

    Without the salt, another device could keep it out of the SuperLink's store: all devices answer
    some queries alike (`fl_core.wire.message_salt`), and count the same batches.
    """
    said = MetricRecord({_START_UP: took.start_up, _WORK: took.work})
    return Salt().added_to(Packer().packed(RecordDict({**content, _TOOK: said})))


def opened(content: RecordDict) -> tuple[RecordDict, Took | None]:
    """Return an answer as it was, and how long the device says that it took, if it does.

    Raises
    ------
    ValueError
        If it cannot be unpacked.
    """
    found = unpacked(without_salt(content))
    rest = RecordDict({name: record for name, record in found.items() if name != _TOOK})
    said = found.metric_records.get(_TOOK, MetricRecord())
    start_up, work = said.get(_START_UP), said.get(_WORK)
    if not isinstance(start_up, float) or not isinstance(work, float):
        return rest, None
    took = Took(start_up, work)
    # A device may say anything.
    return rest, took if all(0 <= one < _LONGEST for one in took) else None
