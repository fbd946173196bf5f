"""The command that groups clients without training: simulated ones, or folders of images."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_core.data.folders import folders_in, holds_tables, is_table
from fl_core.options import key_values
from fl_core.text import NAMEABLE, given_name, printable, whole_number

if TYPE_CHECKING:  # torch is imported where it is needed
    from fl_app.config.run_config import Config
    from fl_app.group.in_process import PreRoundGrid
    from strategies import ClusteredStrategy, Clusters, SpectralClustering
    from strategies.clusterings.relevance_groups import RelevanceGroups

RESAMPLES = 50

_USUAL = {"strategy": "rcc-pfl"}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `group` to the command line."""
    group = commands.add_parser(
        "group",
        help="say who should train with whom, how sure that is and what it costs, without training",
        description="Run only the pre-round, in this process: simulated clients, as options say, "
        "or folders of images, one for each client. Prints who should train with whom and who is "
        "in doubt, and writes grouping.json and pictures (docs/grouping.md).",
    )
    group.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="run-config keys, as in docs/options.md"
    )
    group.add_argument(
        "--folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="the images of each client, in class folders, or its CSV or Parquet file; or one "
        "folder that holds such folders",
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
    from fl_app.config.allowed_code import OWN_CODE, named_at_clients  # noqa: PLC0415
    from fl_app.config.run_config import DEFAULTS, parse_config, parse_override  # noqa: PLC0415
    from fl_app.config.unused_options import without_effect  # noqa: PLC0415
    from fl_app.devices.devices_run import Devices  # noqa: PLC0415
    from fl_app.group.in_process import PreRoundGrid  # noqa: PLC0415
    from fl_app.plan import prepare  # noqa: PLC0415
    from fl_app.results.grouping_report import untold  # noqa: PLC0415
    from fl_app.run.experiment import run_experiment  # noqa: PLC0415
    from fl_app.simulation.preflight import check_place  # noqa: PLC0415
    from fl_app.simulation.simulated_clients import Simulation  # noqa: PLC0415
    from fl_core.extras import DRAWING, need_extra  # noqa: PLC0415

    # Words after the folders may be options: argparse gives them all to --folders.
    words = [str(path) for path in options.folders or () if _is_override(path, DEFAULTS)]
    folders = [path for path in options.folders or () if str(path) not in words]
    given = dict(map(parse_override, [*options.overrides, *words]))
    if given.get("num-server-rounds", 0):
        raise ValueError(
            f"num-server-rounds is {given['num-server-rounds']}, but fedkin group trains nothing: "
            "leave it out, or use fedkin run."
        )
    nodes: list[dict[str, Any]] = []
    if options.folders:
        for package in DRAWING:
            need_extra(package, "fedkin group, which draws pictures,")
        usual, nodes = _clients(folders, given)
        config = parse_config({**DEFAULTS, **usual, **given, "num-server-rounds": 0})
        folder, count = check_place(config), len(nodes)
        warnings = without_effect(given, config)
    else:
        _refuse_devices(given)
        plan = prepare(given, presets={**_USUAL, "num-server-rounds": 0}, workers=0)
        config, folder, count = plan.config, plan.folder, plan.config.simulated_clients
        warnings = list(plan.warnings)
        nodes = [{"partition-id": i, "num-partitions": count} for i in range(count)]
    for sentence in warnings:
        print("warning:", sentence, file=sys.stderr, flush=True)
    config = replace(config, num_clients=count, output_dir=str(folder))
    # This process is its user's own: what is named may run.
    may_run = {OWN_CODE: ",".join(named_at_clients(config).values())}
    grid = PreRoundGrid([{**node, **may_run} for node in nodes], config.as_run_config())

    told = True

    def redraw(strategy: ClusteredStrategy, config: Config, seed: int) -> Clusters:
        nonlocal told
        clusters = redrawn(grid, strategy, config, options.resamples, seed)
        rule = getattr(strategy.clustering, "num_clusters", config.num_clusters)
        told = told and not untold(clusters, rule)
        return clusters

    command = _command(folders, given, options.resamples)
    meet = Devices if options.folders else Simulation
    run_experiment(config, grid, meet, redraw=redraw, command=command)
    return 0 if told else 1


def _refuse_devices(given: Mapping[str, Any]) -> None:
    from fl_core.data.settings import OWN_IMAGES  # noqa: PLC0415

    if given.get("dataset") == OWN_IMAGES:
        raise ValueError(
            f"dataset is {OWN_IMAGES}, but fedkin group does not know where: name each client's "
            "images by --folders."
        )


def _clients(
    folders: Sequence[Path], given: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Return the usual options where each client has a folder, and what each node is."""
    from fl_core.data.settings import ALL_SITES, OWN_IMAGES  # noqa: PLC0415

    named = named_folders(folders)
    if given.get("dataset", OWN_IMAGES) != OWN_IMAGES:
        raise ValueError(
            f"dataset is {given['dataset']}, but --folders names the images of each client: "
            "leave one of the two out."
        )
    if "num-clients" in given:
        raise ValueError(
            f"num-clients is {given['num-clients']}, but --folders names the clients: leave "
            "one of the two out."
        )
    usual = {**_USUAL, "dataset": OWN_IMAGES, "num-clients": len(named)}
    if any(map(is_table, named.values())):
        # The paper's model takes images; the rest is as of dataset=tables.
        usual |= {"model": "mlp", "standardise": ALL_SITES}
    return usual, [{"name": name, "data-path": str(path)} for name, path in named.items()]


def _is_override(path: Path, defaults: Mapping[str, Any]) -> bool:
    key, equals, _ = str(path).partition("=")
    return bool(equals) and key in defaults and not path.exists()


def _command(folders: Sequence[Path], given: Mapping[str, Any], resamples: int) -> str:
    words = key_values({key: value for key, value in given.items() if key != "output-dir"})
    own = [str(path.absolute()) for path in folders]
    if resamples != RESAMPLES:
        words += ["--resamples", str(resamples)]
    if own:
        words += ["--folders", *own]
    return " ".join(map(shlex.quote, ["fedkin", "group", *words]))


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Return each client's folder by its name; of one folder, those that it holds.

    Raises
    ------
    ValueError
        If a folder is not there, or has no name that a client may have, two have one name, or there
        are fewer than two.
    """
    for path in folders:
        if not path.exists():
            raise ValueError(f"--folders names {path}, but there is no such folder.")
    if len(folders) == 1 and folders[0].is_dir():
        held = folders_in(folders[0])
        if holds_tables(folders[0]):
            raise ValueError(
                f"--folders names {folders[0]}, which holds tables: group them by dataset=tables "
                f"data-dir={folders[0]}, or name each of them."
            )
        if not any(map(folders_in, held)):
            raise ValueError(
                f"--folders names {folders[0]} alone, whose folders hold no class folders: name "
                "a folder for each client, or one that holds the clients' folders."
            )
        folders = held
    named: dict[str, Path] = {}
    for path in folders:
        own = path.absolute()
        name = own.stem if is_table(own) else own.name
        if given_name(name) is None:
            raise ValueError(
                f"--folders names {printable(str(own))}, but clients go by the names of their "
                f"folders, which then have {NAMEABLE}: rename it."
            )
        if name in named:
            raise ValueError(
                f"--folders names {named[name]} and {own}, which have one name, and clients "
                "go by theirs: rename one."
            )
        named[name] = own
    if len(named) < 2:
        raise ValueError(
            f"--folders names {len(named)} client, but to group some, at least 2 are needed."
        )
    return named


def redrawn(
    grid: PreRoundGrid, strategy: ClusteredStrategy, config: Config, resamples: int, seed: int
) -> Clusters:
    """Return a strategy's clusters with how they would be if samples had been left out.

    Unchanged where attackers answer, whose answers do not come from their samples, and of a
    clustering that has nothing to draw. With `pre-round-epsilon` as well: each resample would be
    one more answer from the samples, with little noise.
    """
    from fl_app.group.folders import DRAWN, regrouped, why_none_is_left_out  # noqa: PLC0415
    from fl_core.data.samples import sample_word  # noqa: PLC0415

    nodes, clusters = strategy.training.roster.nodes, strategy.clusters
    sample = sample_word(grid.node(nodes[next(iter(clusters.of_client))]).kind)
    if strategy.clustering.shares == "eigenvectors":
        own = {client: grid.node(nodes[client]) for client in clusters.of_client}
        poor = {
            client: why
            for client, node in own.items()
            if (
                why := node.why_uninformative(node.features())
                or (why_none_is_left_out(len(node.features()), sample) if resamples else "")
            )
        }
        clusters = replace(clusters, uninformative=poor)
    answers_vary = config.attack == "none" and not config.pre_round_epsilon
    if not resamples or not answers_vary or len(clusters.of_client) < 2:
        return clusters

    def regroup(clustering: SpectralClustering) -> list[RelevanceGroups]:
        features = [grid.node(nodes[client]).features() for client in clusters.of_client]
        return regrouped(features, clustering, resamples, seed)

    return strategy.clustering.redrawn(clusters, regroup, DRAWN.format(sample))
