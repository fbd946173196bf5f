"""What it costs a round that somebody watches: `python -m benchmarks.watching`.

The server's own part is played: each round trains and tests all clients, whose answers come one by
one, and their names are known. Milliseconds are those by which a round is longer: for the status,
which another thread writes, of the thread that runs the rounds; for trackers, by the clock.
docs/watching.md has the table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.writing import RESULTS, write
from fl_app.config.run_config import parse_config
from fl_app.launch.flower_app import installed_app, read_defaults
from fl_app.live.status import Status
from fl_app.live.trackers import TRACKER_OF
from fl_app.live.tracking import round_values
from strategies import Roster, RoundReport

COUNTS = (25, 1_000, 10_000)
_ROUNDS, _CLUSTERS = 30, 3


def _report(clients: int, server_round: int) -> RoundReport:
    accuracies = {client: 0.5 + client / (2 * clients) for client in range(clients)}
    clusters = {client: client % _CLUSTERS for client in range(clients)}
    return RoundReport(
        *(server_round, _ROUNDS),
        train_loss=0.5,
        scores={"accuracy": accuracies, "loss": dict(accuracies)},
        clusters=clusters,
        bytes=1_000_000,
    )


def status_costs(clients: int) -> tuple[float, int]:
    """Return the milliseconds by which a round is longer, and the bytes of the largest file."""
    nodes = {client: 2**60 + client for client in range(clients)}
    names = {client: f"hospital-{client}.example.org" for client in range(clients)}
    roster = Roster(nodes=nodes, names=names)
    roster.look(nodes.values())
    with tempfile.TemporaryDirectory() as folder:
        status = Status()
        status.write_to(Path(folder))
        costs, largest = [], 0
        with status.running():
            status.watch(lambda: roster)
            status.begin_run("rcc-pfl", 0, 0, _ROUNDS)
            for server_round in range(1, _ROUNDS + 1):
                report, spent = _report(clients, server_round), 0.0
                for kind in ("train", "evaluate"):
                    asked = [
                        Message(RecordDict(), dst_node_id=node, message_type=kind)
                        for node in nodes.values()
                    ]
                    replies = [Message(RecordDict(), reply_to=message) for message in asked]
                    started = time.thread_time()
                    status.asked(asked, (), 3600.0)
                    spent += time.thread_time() - started
                    largest = max(largest, len(json.dumps(status.content())))
                    started = time.thread_time()
                    for reply in replies:
                        status.heard([reply])
                    status.over(())
                    spent += time.thread_time() - started
                started = time.thread_time()
                status.after_round(report, roster, 0, 0.0)
                costs.append(spent + time.thread_time() - started)
        return 1e3 * median(costs), largest


def tracker_costs(name: str, clients: int) -> float:
    """Return the milliseconds that a tracker takes for a round, with its server on this disk."""
    os.environ["WANDB_MODE"] = "offline"
    config = parse_config(read_defaults(installed_app()))
    # W&B's own process may still be writing when the run is over.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tracker = TRACKER_OF[name]("run", Path(folder), config.as_run_config())
        costs = []
        for server_round in range(1, _ROUNDS + 1):
            report = _report(clients, server_round)
            started = time.perf_counter()
            tracker.log(round_values(report, 1.0, None), server_round)
            costs.append(time.perf_counter() - started)
        tracker.close()
    return 1e3 * median(costs)


def measure(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each number of clients."""
    rows = []
    for clients in counts:
        milliseconds, size = status_costs(clients)
        costs = {name: round(tracker_costs(name, clients), 2) for name in TRACKER_OF}
        rows.append(
            {"clients": clients, "status": round(milliseconds, 2), "bytes": size, "track": costs}
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as Markdown."""
    heads = " | ".join(f"`{name}`" for name in TRACKER_OF)
    lines = [
        f"| clients | `status.json` | its size | {heads} |",
        f"| {' | '.join(['---:'] * (3 + len(TRACKER_OF)))} |",
    ]
    for row in rows:
        costs = (f"{row['track'][name]:.1f} ms" for name in TRACKER_OF)
        lines.append(
            f"| {row['clients']:,} | {row['status']:.1f} ms | {row['bytes'] / 1e3:.1f} kB | "
            f"{' | '.join(costs)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write the numbers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "watching.json.xz")
    options = parser.parse_args()
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    rows = measure(COUNTS)
    write({"rows": rows}, options.output)
    print(table(rows), end="")


if __name__ == "__main__":
    main()
