"""The tables of docs/measured/scale.md, and how many devices follow from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

from benchmarks.privacy import EIGENVECTORS
from benchmarks.writing import markdown
from fl_core.wire import protocol

LARGEST_REQUEST = 2**31 - 1  # bytes: Flower's GRPC_MAX_MESSAGE_LENGTH
LINK, SERVER_LINK = 20e6, 1e9  # bits per second, of a device and of the server
_ANSWERS = (protocol.SPECTRUM, protocol.RELEVANCE)


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/measured/scale.md in Markdown, by name."""
    return {
        "device": markdown(
            f"devices|relevance|sends|receives|at {LINK / 1e6:g} Mbit/s|own spectrum"
            "|relevance of all|memory".split("|"),
            [
                (
                    *_head(row),
                    _amount(sum(row["bytes"][name] for name in ("describe", *_ANSWERS))),
                    _amount(row["bytes"]["everybody"]),
                    _duration(8 * row["bytes"]["everybody"] / LINK),
                    _duration(row["spectrum-seconds"]),
                    _duration(row["client-seconds"]),
                    _amount(row["client-peak-bytes"] + row["bytes"]["everybody"]),
                )
                for row in measured["rows"]
            ],
        ),
        "server": markdown(
            f"devices|relevance|receives|sends|at {SERVER_LINK / 1e9:g} Gbit/s|SuperLink keeps"
            "|making messages|grouping|memory".split("|"),
            [
                (
                    *_head(row),
                    _amount(row["devices"] * sum(row["bytes"][name] for name in _ANSWERS)),
                    _amount(row["devices"] * row["bytes"]["everybody"]),
                    _duration(8 * row["devices"] * row["bytes"]["everybody"] / SERVER_LINK),
                    _amount(row["bytes"]["everybody"]),
                    _duration(row["asking-seconds"]),
                    _duration(row["server-seconds"]),
                    _amount(max(row["server-peak-bytes"], row["sending-peak-bytes"])),
                )
                for row in measured["rows"]
            ],
        ),
        "flower": markdown(
            (
                *("devices", "relevance", "objects for a device", "for all", "pushed"),
                *("names in one request", "naming them", "SuperLink's part", "allowed"),
            ),
            [
                (
                    *_head(row),
                    f"{row['objects']:,}",
                    f"{row['devices'] * row['objects']:,}",
                    f"{row['objects-of-all']:,}",
                    _amount(row["request-bytes"]),
                    _duration(row["naming-seconds"]),
                    _duration(row["registering-seconds"]),
                    "yes" if row["request-bytes"] <= LARGEST_REQUEST else "no",
                )
                for row in measured["rows"]
            ],
        ),
    }


def most_devices_named(measured: Mapping[str, Any], relevance: str) -> int:
    """Return the number of devices whose names still fit into one request of Flower's.

    A device's names are a message and one name for each chunk of everybody's eigenvectors; both are
    taken from the smallest and the largest measurement.
    """
    first, *_, last = (row for row in measured["rows"] if row["relevance"] == relevance)
    smaller, larger = (row["request-bytes"] / row["devices"] for row in (first, last))
    name: float = (larger - smaller) / (last["objects"] - first["objects"])
    rest = smaller - first["objects"] * name
    others = first["objects"] - _chunks(first)
    slope = name * last["bytes"]["everybody"] / last["devices"] / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
    # slope·K² + fixed·K = the largest request
    fixed = rest + others * name
    return int((math.sqrt(fixed**2 + 4 * slope * LARGEST_REQUEST) - fixed) / (2 * slope))


def most_devices_within(measured: Mapping[str, Any], relevance: str, seconds: float) -> int:
    """Return how many devices a server at 1 Gbit/s sends everybody's eigenvectors to in a time."""
    row = next(row for row in reversed(measured["rows"]) if row["relevance"] == relevance)
    for_one: float = row["bytes"]["everybody"] / row["devices"]
    return math.isqrt(int(seconds * SERVER_LINK / 8 / for_one))


def _chunks(row: Mapping[str, Any]) -> int:
    everybody: int = row["bytes"]["everybody"]
    return math.ceil(everybody / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE)


def _head(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"{row['devices']:,}", f"{row['relevance']}, k = {EIGENVECTORS[row['relevance']]}"


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
