"""How a device's answer travels: packed, with a salt, and with how long the device took."""

from __future__ import annotations

import time

import psutil
from flwr.app import MetricRecord, RecordDict

from fl_app.grid.quorum import Took
from fl_core.wire import protocol
from fl_core.wire.packing import Packer, unpacked

_TOOK = "took"  # seconds
_LONGEST = 1e7


def time_since_start() -> float:
    """Return how many seconds ago this process began, or was forked."""
    return max(0.0, time.time() - psutil.Process().create_time())


def sealed(content: RecordDict, took: Took) -> RecordDict:
    """Return an answer as it travels."""
    said = {**content.metric_records.get(protocol.METRICS, {}), _TOOK: [*took]}
    return Packer().packed(RecordDict({**content, protocol.METRICS: MetricRecord(said)}))


def opened(content: RecordDict) -> tuple[RecordDict, Took | None]:
    """Return an answer as it was, and how long the device says that it took, if it does.

    Raises
    ------
    ValueError
        If it cannot be unpacked.
    """
    found = unpacked(content)
    metrics = found.metric_records.get(protocol.METRICS, MetricRecord())
    said = metrics.pop(_TOOK, None)
    if said is not None and not metrics:
        del found[protocol.METRICS]
    # A device may say anything.
    if not isinstance(said, list) or len(said) != len(Took._fields):
        return found, None
    is_time = all(isinstance(one, float) and 0 <= one < _LONGEST for one in said)
    return found, Took(*said) if is_time else None
