"""`fedkin reproduce`: run what is missing of an experiment and write its page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from fl_core.extras import need_extra
from fl_core.files import replacing

RESULTS = Path("docs/results")
EXPERIMENTS = Path("experiments")


def add_command(commands: Any) -> None:
    """Add the subcommand to argparse's."""
    parser = commands.add_parser(
        "reproduce",
        help="run a paper's table again and put the numbers side by side",
        description="Run an experiment: every cell that is not in its file of raw numbers yet, or "
        "was made by other options or other code. What is finished is kept, so it can be stopped "
        "at any time and called again. Then write the page, beside the raw numbers.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a file of the folder experiments, or its path"
    )
    parser.add_argument("--list", action="store_true", help="show what there is, and stop")
    parser.add_argument("--seeds", type=_count, help="how many seeds (default: the experiment's)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small version, one seed, in a folder of its own: does it work at all?",
    )
    parser.add_argument("--page", action="store_true", help="run nothing, only write the page")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, metavar="FOLDER", help=f"default: {RESULTS}"
    )
    parser.add_argument(
        "--workers", type=_count, default=os.cpu_count() or 1, help="Ray workers (default: CPUs)"
    )
    parser.set_defaults(call=_reproduce)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _reproduce(options: argparse.Namespace) -> int:
    from fl_app.reproduce.cells import read_cells, run_missing, wanted_cells  # noqa: PLC0415
    from fl_app.reproduce.experiment import (  # noqa: PLC0415
        find_experiment,
        list_experiments,
        read_experiment,
    )
    from fl_app.reproduce.page import draw, page  # noqa: PLC0415

    if options.list or options.name is None:
        for known in list_experiments(EXPERIMENTS):
            count = len(wanted_cells(known, known.seeds))
            print(f"{known.name:16} {known.title} ({count} cells, {known.seeds} seeds)")
        return 0
    experiment = read_experiment(find_experiment(options.name, EXPERIMENTS))
    seeds = options.seeds or (1 if options.quick else experiment.seeds)
    folder = options.output / "quick" if options.quick else options.output
    numbers = folder / f"{experiment.name}.json"
    command = f"fedkin reproduce {experiment.name}" + (" --quick" if options.quick else "")
    for package in ("matplotlib",) if options.page else ("ray", "matplotlib"):
        need_extra(package, "fedkin reproduce")
    if not options.page:
        for done, of, one in run_missing(
            experiment, numbers, seeds=seeds, quick=options.quick, workers=options.workers
        ):
            print(f"\ncell {done + 1} of {of}: {one.row}, {one.column}, seed {one.seed}")
    cells = read_cells(numbers)
    if not cells:
        raise ValueError(f"there are no numbers in {numbers} yet: leave --page out.")
    with replacing(folder / f"{experiment.name}.md") as partial:
        partial.write_text(page(experiment, cells, command, quick=options.quick), encoding="utf-8")
    draw(experiment, cells, folder / f"{experiment.name}.png")
    print(f"page      {folder / f'{experiment.name}.md'}")
    print(f"numbers   {numbers}", flush=True)
    return 0
