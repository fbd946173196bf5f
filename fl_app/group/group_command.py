"""`fedkin group`: groups simulated clients without training."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fl_core.options import Scalar, key_values
from fl_core.text import whole_number

if TYPE_CHECKING:  # torch is imported where it is needed
    from fl_app.config.run_config import Config
    from strategies import ClusteredStrategy, Clusters

RESAMPLES = 50

_PRESETS: dict[str, Scalar] = {"strategy": "fedkin", "num-server-rounds": 0}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `group` to the command line."""
    group = commands.add_parser(
        "group",
        help="show which clients should train together, how certain that is and what it costs",
        description="Run only the pre-round, in this process, with simulated clients: "
        "dataset=sites and dataset=tables take a folder or a table of each client. Prints which "
        "clients should train together and which are in doubt, and writes grouping.json and "
        "pictures (docs/grouping.md).",
    )
    group.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="run-config keys, as in docs/options.md"
    )
    group.add_argument(
        "--resamples",
        type=whole_number(0),
        default=RESAMPLES,
        metavar="N",
        help=f"how often a fifth of the samples is left out to see what changes (default: "
        f"{RESAMPLES}; 0: not at all)",
    )
    group.set_defaults(call=_group)


def _group(options: argparse.Namespace) -> int:
    """Group the clients; return 1 if a strategy could not distinguish them."""
    from fl_app.config.run_config import parse_override  # noqa: PLC0415
    from fl_app.group.pre_round_grid import PreRoundGrid  # noqa: PLC0415
    from fl_app.group.resampling import with_resamples  # noqa: PLC0415
    from fl_app.plan import prepare  # noqa: PLC0415
    from fl_app.results.grouping_report import why_indistinguishable  # noqa: PLC0415
    from fl_app.run.experiment import run_experiment  # noqa: PLC0415
    from fl_app.simulation.simulated_clients import Simulation  # noqa: PLC0415

    given = dict(map(parse_override, options.overrides))
    if rounds := given.get("num-server-rounds", 0):
        raise ValueError(
            f"num-server-rounds is {rounds}, but fedkin group trains nothing: leave it out, or use "
            "fedkin run."
        )
    plan = prepare(given, presets=_PRESETS, workers=0)
    for sentence in plan.warnings:
        print("warning:", sentence, file=sys.stderr, flush=True)
    count = plan.config.simulated_clients
    config = replace(plan.config, num_clients=count, output_dir=str(plan.folder))
    grid, distinguished = PreRoundGrid(config), True

    def redraw(strategy: ClusteredStrategy, config: Config, seed: int) -> Clusters:
        nonlocal distinguished
        clusters = with_resamples(grid, strategy, config, options.resamples, seed)
        rule = getattr(strategy.clustering, "num_clusters", config.num_clusters)
        distinguished = distinguished and not why_indistinguishable(clusters, rule)
        return clusters

    command = _command(given, options.resamples)
    run_experiment(config, grid, Simulation, redraw=redraw, command=command)
    return 0 if distinguished else 1


def _command(given: Mapping[str, Any], resamples: int) -> str:
    words = key_values({key: value for key, value in given.items() if key != "output-dir"})
    words += ["--resamples", str(resamples)] if resamples != RESAMPLES else []
    return shlex.join(["fedkin", "group", *words])
