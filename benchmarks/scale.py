"""What the pre-round of spectral clustering costs for K devices, at each end: docs/scale.md.

Bytes are of the records that are really sent; seconds and peak memory are of the functions that
clients and server really call, on random eigenvectors, since what is in them does not matter to
either. The network is not run: what it takes is bytes divided by its speed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from clients.attacks import random_basis
from clients.features import feature_dimension, feature_map
from clients.spectrum import RELEVANCES, USUAL_EIGENVECTORS, Spectrum, leading_spectrum
from fl_core import protocol
from fl_core.datasets import load_dataset
from fl_core.files import replacing
from strategies.grouping import agglomerate, average_relevance

DEVICES = (100, 1_000, 10_000)
IMAGES = 2_400  # MNIST's 60,000 over 25 clients
LARGEST_REQUEST = 2**31 - 1  # bytes: Flower's GRPC_MAX_MESSAGE_LENGTH
LINK, SERVER_LINK = 20e6, 1e9  # bits per second, of a device and of the server


def message_bytes(devices: int, num_eigenvectors: int, dimension: int) -> dict[str, int]:
    """Return the payload bytes of each message of the pre-round, for one device.

    As `protocol.payload_bytes` counts them: arrays with their headers of 128 bytes, and metrics;
    without Flower's envelope and the config record.
    """
    vectors = Array(np.zeros((dimension, num_eigenvectors), np.float32))
    index = MetricRecord({protocol.CLIENT_INDEX: 0})
    scores = MetricRecord({protocol.RELEVANCES: [0.0] * devices})
    own = ArrayRecord({protocol.EIGENVECTORS: vectors})
    up = {
        protocol.DESCRIBE: RecordDict({protocol.METRICS: index}),
        protocol.SPECTRUM: RecordDict({protocol.ARRAYS: own}),
        protocol.RELEVANCE: RecordDict({protocol.METRICS: scores}),
    }
    found = {name: protocol.payload_bytes(content) for name, content in up.items()}
    return {**found, "everybody": devices * found[protocol.SPECTRUM]}


def least(function: Callable[[], object], times: int) -> float:
    """Return the seconds of the fastest of several calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def peak(function: Callable[[], object]) -> int:
    """Return how many bytes a call needs at most on top of what is there already."""
    gc.collect()
    tracemalloc.start()
    function()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def own_spectrum(num_eigenvectors: int) -> tuple[Spectrum, float]:
    """Return the spectrum of 2,400 images of mnist-5k, and the seconds it took, features included.

    Without the process's first call, which builds a table.
    """
    images = load_dataset("mnist-5k").train_images[:IMAGES]
    features = feature_map("hog")

    def spectrum() -> Spectrum:
        return leading_spectrum(features(images).numpy(), num_eigenvectors)

    return spectrum(), least(spectrum, 20)


def everybody(devices: int, shape: tuple[int, int]) -> dict[str, Array]:
    """Return every device's eigenvectors as they are sent; a hundred different ones."""
    rng = np.random.default_rng(0)
    bases = [random_basis(shape, rng) for _ in range(100)]
    # Each device's bytes are its own, as they would be on arrival.
    return {str(device): Array(bases[device % 100]) for device in range(devices)}


def measure_client(devices: int, relevance: str, spectrum: Spectrum, times: int) -> dict[str, Any]:
    """Return seconds and peak bytes of a client's answer to everybody's eigenvectors."""
    dimension, count = spectrum.eigenvectors.shape
    sent = everybody(devices, (dimension, count))

    def answer() -> list[float]:
        vectors = [array.numpy() for array in sent.values()]
        return RELEVANCES[relevance](spectrum.gram, spectrum.eigenvalues, vectors)

    return {"client-seconds": least(answer, times), "client-peak-bytes": peak(answer)}


def measure_server(devices: int, times: int) -> dict[str, Any]:
    """Return seconds and peak bytes of what the server does with all scores.

    They arrive as lists of Python's numbers, a number and a reference to it for each score.
    """
    scores = np.random.default_rng(0).random((devices, devices)).tolist()
    held = devices**2 * (sys.getsizeof(0.5) + np.intp().nbytes)

    def group() -> NDArray[np.int64]:
        return agglomerate(average_relevance(np.array(scores, np.float64)), 10).labels

    return {"server-seconds": least(group, times), "server-peak-bytes": peak(group) + held}


def measure_sending(devices: int, times: int) -> dict[str, Any]:
    """Return what Flower's server side makes of one device's message with everybody's arrays.

    It names every array and every array's chunk by a hash, and all devices' names go to the
    SuperLink in one request. The arrays are short ones: the names do not depend on their length.

    Parameters
    ----------
    devices : int
        Whose arrays it holds.
    times : int
        How many messages are made, after the first, which alone computes the hashes.
    """
    arrays = ArrayRecord({str(i): Array(np.array([i], np.float32)) for i in range(devices)})

    def content() -> RecordDict:
        return RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: ConfigRecord({"seed": 0})})

    def name() -> None:
        one = content()
        get_all_nested_objects(one)
        get_object_tree(one)

    with no_object_id_recompute():
        size = get_object_tree(content()).ByteSize()
        objects = len(get_all_nested_objects(content()))
        seconds = least(name, times)
    return {"names-bytes": size, "objects": objects, "names-seconds": seconds}


def measure() -> dict[str, Any]:
    """Return everything measured, as docs/runs/measured/scale.json has it."""
    dimension = feature_dimension("hog", (1, 28, 28))
    spectra = {name: own_spectrum(count) for name, count in USUAL_EIGENVECTORS.items()}
    rows = []
    for devices in DEVICES:
        times = 20 if devices < max(DEVICES) else 3
        shared = {**measure_server(devices, times), **measure_sending(devices, times)}
        for relevance, count in USUAL_EIGENVECTORS.items():
            spectrum, seconds = spectra[relevance]
            row = {"devices": devices, "relevance": relevance, "spectrum-seconds": seconds}
            row |= {"bytes": message_bytes(devices, count, dimension)}
            row |= measure_client(devices, relevance, spectrum, times)
            rows.append({**row, **shared})
            print(f"{devices} devices, {relevance}: measured", flush=True)
    return {"dimension": dimension, "rows": rows}


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/scale.md in Markdown, by name."""
    return {
        "device": _table(
            f"devices|relevance|sends|receives|at {LINK / 1e6:g} Mbit/s|own spectrum"
            "|relevance of all|memory",
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
        "server": _table(
            f"devices|relevance|receives|sends|at {SERVER_LINK / 1e9:g} Gbit/s|keeps|grouping"
            "|memory",
            [
                (
                    *_head(row),
                    _amount(row["devices"] * sum(row["bytes"][name] for name in _ANSWERS)),
                    _amount(row["devices"] * row["bytes"]["everybody"]),
                    _duration(8 * row["devices"] * row["bytes"]["everybody"] / SERVER_LINK),
                    _amount(row["bytes"]["everybody"]),
                    _duration(row["server-seconds"]),
                    _amount(row["server-peak-bytes"]),
                )
                for row in measured["rows"]
            ],
        ),
        "flower": _table(
            "devices|objects for a device|for all|names in one request|naming them|allowed",
            [
                (
                    f"{row['devices']:,}",
                    f"{row['objects']:,}",
                    f"{row['devices'] * row['objects']:,}",
                    _amount(row["devices"] * row["names-bytes"]),
                    _duration(row["devices"] * row["names-seconds"]),
                    "yes" if row["devices"] * row["names-bytes"] <= LARGEST_REQUEST else "no",
                )
                for row in measured["rows"][:: len(USUAL_EIGENVECTORS)]
            ],
        ),
    }


def most_devices(measured: Mapping[str, Any]) -> int:
    """Return the number of devices whose names still fit into one request of Flower's."""
    row = measured["rows"][-1]
    return math.isqrt(LARGEST_REQUEST * row["devices"] // row["names-bytes"])


_ANSWERS = (protocol.SPECTRUM, protocol.RELEVANCE)


def _head(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"{row['devices']:,}", f"{row['relevance']}, k = {USUAL_EIGENVECTORS[row['relevance']]}"


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


def _table(titles: str, rows: Sequence[Sequence[str]]) -> str:
    heads = titles.split("|")
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure, write the result and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/runs/measured/scale.json"))
    options = parser.parse_args()
    threadpool_limits(1)
    result = measure()
    with replacing(options.output) as partial:
        partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for name, table in tables(result).items():
        print(f"\n{name}\n\n{table}")
    print(f"\nat most {most_devices(result):,} devices")


if __name__ == "__main__":
    main()
