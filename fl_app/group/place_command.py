"""`fedkin place`: finds the cluster of a new client in the results of a run."""

import argparse
from pathlib import Path


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `place` to the command line."""
    command = commands.add_parser(
        "place",
        help="show to which cluster of a run a new client belongs, without a new run",
        description="Compare a folder of images, a table, or other samples of the run's kind, "
        "with the clusters of a run, by the eigenvectors in its results folder: no client is asked "
        "and nothing leaves this machine. Prints the cluster and its certainty. If the samples fit "
        "no cluster, the exit status is 1 (docs/grouping.md).",
    )
    command.add_argument(
        "results", type=Path, metavar="RESULTS", help="the results folder of a run"
    )
    data = command.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--data-path",
        type=Path,
        metavar="PATH",
        help="the folder of the new client's images, searched at any depth, or its table, a CSV or "
        "Parquet file, or a folder of the tables of several; labels are not looked at",
    )
    data.add_argument(
        "--data",
        default="",
        metavar="MODULE:NAME",
        help="the function that returns its samples, as a device's owner names it",
    )
    command.add_argument(
        "--own-code",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="the user-defined features of the run, whose code may be executed",
    )
    command.add_argument(
        "--strategy", help="the strategy of the clusters, if the run saved those of several"
    )
    command.add_argument("--seed", type=int, help="the seed of the clusters (default: the first)")
    command.set_defaults(call=_place)


def _place(options: argparse.Namespace) -> int:
    from fl_app.group.placement import place_clients  # noqa: PLC0415 - imports PyTorch

    return 0 if place_clients(options) else 1
