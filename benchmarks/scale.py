"""What do eigenvectors cost if all devices compare them? results/README.md has the tables.

Bytes of the records sent with `relevance-at=clients`, by `python -m benchmarks.scale`.
"""

import math

import numpy as np
from flwr.app import MetricRecord, RecordDict

from benchmarks.privacy import EIGENVECTORS
from benchmarks.writing import markdown
from fl_core.messages import protocol

DEVICES = (100, 1_000, 10_000)
DIMENSION = 324  # of HoG
LINK, SERVER_LINK = 20e6, 1e9  # bits per second, of a device and of the server


def message_bytes(devices: int, num_eigenvectors: int, dimension: int) -> dict[str, int]:
    """Return the payload bytes of each message of the pre-round, for one device."""

    def array(columns: int) -> RecordDict:
        vectors = {protocol.EIGENVECTORS: np.zeros((dimension, columns), np.float32)}
        return RecordDict({protocol.ARRAYS: protocol.to_record(vectors)})

    index = MetricRecord({protocol.CLIENT_INDEX: 0})
    scores = MetricRecord({protocol.RELEVANCES: [0.0] * devices})
    contents = {
        protocol.DESCRIBE: RecordDict({protocol.METRICS: index}),
        protocol.SPECTRUM: array(num_eigenvectors),
        protocol.RELEVANCE: RecordDict({protocol.METRICS: scores}),
        "relevance-query": array(devices * num_eigenvectors),
    }
    return {name: protocol.payload_bytes(content) for name, content in contents.items()}


def most_devices_within(relevance: str, seconds: float) -> int:
    """Return how many devices a server at 1 Gbit/s sends all eigenvectors to in a time."""
    for_one = EIGENVECTORS[relevance] * DIMENSION * np.float32().nbytes
    return math.isqrt(int(seconds * SERVER_LINK / 8 / for_one))


def tables() -> dict[str, str]:
    """Return what a device and what the server moves, in Markdown."""
    devices, server = [], []
    for count in DEVICES:
        for relevance, vectors in EIGENVECTORS.items():
            sizes = message_bytes(count, vectors, DIMENSION)
            answers = sizes[protocol.SPECTRUM] + sizes[protocol.RELEVANCE]
            received, head = sizes["relevance-query"], (f"{count:,}", f"{relevance}, k = {vectors}")
            sent = _amount(answers + sizes[protocol.DESCRIBE])
            devices.append((*head, sent, _amount(received), _duration(8 * received / LINK)))
            whole = count * received
            moved = (_amount(count * answers), _amount(whole), _duration(8 * whole / SERVER_LINK))
            server.append((*head, *moved))
    heads = ("devices", "relevance")
    return {
        "device": markdown((*heads, "sends", "receives", "at 20 Mbit/s"), devices),
        "server": markdown((*heads, "receives", "sends", "at 1 Gbit/s"), server),
    }


def _amount(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{_short(count)} {unit}"
        count /= 1000
    return f"{_short(count)} TB"


def _duration(seconds: float) -> str:
    for unit, length, least_shown in (("h", 3600, 7200), ("min", 60, 120), ("s", 1, 1)):
        if seconds >= least_shown:
            return f"{_short(seconds / length)} {unit}"
    return f"{_short(1000 * seconds)} ms"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


if __name__ == "__main__":
    print("\n\n".join(tables().values()))
