"""`fedkin reproduce`: run what is missing of an experiment and write its page."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_core.extras import DRAWING, need_extra
from fl_core.files import replacing
from fl_core.text import whole_number

if TYPE_CHECKING:  # torch is imported neither by a help nor by a wrong word
    from collections.abc import Sequence

    from fl_app.studies.reproduce.cells import Missing
    from fl_app.studies.reproduce.experiment_file import Experiment

RESULTS = Path("docs/results")
EXPERIMENTS = Path("experiments")
_SEND = (
    "send back {numbers}, finished or not: with it in docs/results, fedkin reproduce --page {name} "
    "makes the page and its verdicts anywhere (docs/reproduce.md)."
)


def add_command(commands: Any) -> None:
    """Add the subcommand to argparse's."""
    parser = commands.add_parser(
        "reproduce",
        help="run a paper's table again and put the numbers side by side",
        description="Run an experiment: every cell that is not in its file of raw numbers yet, or "
        "was made by other options or other code. What is finished is kept, so it can be stopped "
        "at any time and called again. Then write its page and picture beside the raw numbers, and "
        "README.md with a verdict on every claim of the papers.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a file of the folder experiments, or its path"
    )
    parser.add_argument("--list", action="store_true", help="show what there is, and stop")
    parser.add_argument(
        "--seeds", type=whole_number(1), help="how many seeds (default: the experiment's)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small version, one seed, in a folder of its own: does it work at all?",
    )
    parser.add_argument(
        "--any-code",
        action="store_true",
        help="what other code made counts as finished: run only what is not there",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="run nothing, only write the page; without NAME, all",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help=f"default: {RESULTS}; if NAME is a path, results beside it",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(0),
        default=os.cpu_count() or 1,
        help="Ray workers (default: CPUs); 0: all in this process, on one CPU, which saves half a "
        "minute of each simulation",
    )
    parser.set_defaults(call=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from fl_app.studies.reproduce.experiment_file import find_experiment  # noqa: PLC0415

    if options.seeds and (options.quick or options.page):
        raise ValueError("--seeds goes neither with --quick, which has one, nor with --page.")
    if options.quick and options.page and options.name is None:
        raise ValueError("--page --quick needs the name of an experiment.")
    if options.list or (options.name is None and not options.page):
        _list()
        return 0
    ray = ("ray",) if options.workers else ()
    for package in ("vl_convert",) if options.page else (*ray, *DRAWING):
        need_extra(package, "fedkin reproduce")
    if options.name is None:
        folder = options.output or RESULTS
        for known in _known():
            if (folder / f"{known.name}.json").is_file():
                _write_page(known, folder)
    else:
        folder = _reproduce_one(find_experiment(options.name, EXPERIMENTS), options)
    if folder == RESULTS:
        _write_verdicts(folder)
    return 0


def _reproduce_one(path: Path, options: argparse.Namespace) -> Path:
    """Run what is missing of an experiment and write its page; return the folder."""
    from fl_app.studies.reproduce.experiment_file import read_experiment  # noqa: PLC0415

    experiment = read_experiment(path)
    folder = RESULTS if path.parent == EXPERIMENTS else path.parent / "results"
    asked = "" if path.parent == EXPERIMENTS else str(path)
    folder = options.output or folder
    if options.quick:
        experiment, folder = experiment.as_small(), folder / "quick"
    numbers = folder / f"{experiment.name}.json"
    # What writes the page is whole before anything can stop the run: a half-made import is no help.
    from fl_app.studies.reproduce import cells, page, table_pictures  # noqa: F401, PLC0415

    try:
        if not options.page:
            _run_missing(experiment, folder, options)
    finally:  # what is finished is shown, whatever stopped the rest
        if options.page or cells.current_cells(experiment, cells.read_cells(numbers)):
            _write_page(experiment, folder, asked)
            if experiment.needs and not options.page and not options.quick:
                print(_SEND.format(name=experiment.name, numbers=numbers), flush=True)
    return folder


def _known() -> list[Experiment]:
    from fl_app.studies.reproduce.experiment_file import list_experiments  # noqa: PLC0415

    return list_experiments(EXPERIMENTS)


def _list() -> None:
    from fl_app.studies.reproduce.cells import wanted_cells  # noqa: PLC0415

    experiments = _known()
    width = max((len(known.name) for known in experiments), default=0)
    for known in experiments:
        count = len(wanted_cells(known, known.seeds))
        seeds = "one seed" if known.seeds == 1 else f"{known.seeds} seeds"
        needs = f"; needs {known.needs}" if known.needs else ""
        print(f"{known.name:{width}} {known.title} ({count} simulations, {seeds}{needs})")


def _run_missing(experiment: Experiment, folder: Path, options: argparse.Namespace) -> None:
    from fl_app.config.effect import without_effect_anywhere  # noqa: PLC0415
    from fl_app.studies.reproduce.cells import find_missing, run_missing, wanted_cells  # noqa: PLC0415
    from fl_app.studies.reproduce.data_files import check_sources, sources_of  # noqa: PLC0415
    from fl_app.studies.reproduce.keeping import check_all  # noqa: PLC0415

    numbers = folder / f"{experiment.name}.json"
    seeds = options.seeds or experiment.seeds
    missing = find_missing(experiment, numbers, seeds, any_code=options.any_code)
    check_all(((one.wanted, one.config) for one in missing), folder.absolute())
    sources = dict.fromkeys(name for one in missing for name in sources_of(one.config))
    check_sources(experiment.name, sources)
    for sentence in without_effect_anywhere((one.given, one.config) for one in missing):
        print("warning:", sentence, flush=True)
    wanted = len(wanted_cells(experiment, seeds))
    outdated = sum(one.outdated for one in missing)
    again = f" {outdated} were made by other options or other code: again." if outdated else ""
    print(f"{wanted - len(missing)} of {wanted} simulations are finished.{again}", flush=True)
    if missing:
        _announce(experiment, numbers, missing, list(sources), options.workers)
    for count, one in enumerate(run_missing(experiment, numbers, missing, options.workers), 1):
        print(f"\nsimulation {count} of {len(missing)}: {one.wanted}", flush=True)


def _announce(
    experiment: Experiment,
    numbers: Path,
    missing: Sequence[Missing],
    sources: Sequence[str],
    workers: int,
) -> None:
    """Say which files the simulations read, and how many hours they will take."""
    from fl_app.studies.reproduce.cells import read_cells  # noqa: PLC0415
    from fl_app.studies.reproduce.data_files import files_in_words, files_of, folder_of, record_of  # noqa: PLC0415
    from fl_app.studies.reproduce.estimate import hours_left  # noqa: PLC0415

    for name in sources:
        files = files_of(name)
        print(f"{files_in_words(name, record_of(files))}, in {folder_of(name)}:")
        print(*(f"  {one}" for one in files), sep="\n")
    print("time left:", hours_left(experiment, read_cells(numbers), missing, workers), flush=True)


def _write_page(experiment: Experiment, folder: Path, asked: str = "") -> None:
    """Write an experiment's page and picture from its raw numbers.

    Where there is nothing to draw yet, or ever, the page has no picture.
    """
    from fl_app.studies.reproduce.cells import current_cells, read_cells  # noqa: PLC0415
    from fl_app.studies.reproduce.page import page  # noqa: PLC0415
    from fl_app.studies.reproduce.table_pictures import draw  # noqa: PLC0415

    numbers = folder / f"{experiment.name}.json"
    cells = read_cells(numbers)
    if not current_cells(experiment, cells):
        raise ValueError(f"there are no numbers of this experiment in {numbers} yet.")
    try:
        draw(experiment, cells, folder / f"{experiment.name}.png")
    except ValueError as error:
        print(f"warning: picture is {experiment.picture}, but {error}", flush=True)
        experiment = replace(experiment, picture="none")
    with replacing(folder / f"{experiment.name}.md") as partial:
        partial.write_text(page(experiment, cells, asked), encoding="utf-8")
    print(f"page      {folder / f'{experiment.name}.md'}")
    print(f"numbers   {numbers}", flush=True)


def _write_verdicts(folder: Path) -> None:
    from fl_app.studies.reproduce.cells import read_cells  # noqa: PLC0415
    from fl_app.studies.reproduce.table_pictures import draw_agreement  # noqa: PLC0415
    from fl_app.studies.reproduce.verdicts import PICTURE, verdicts  # noqa: PLC0415

    found = [(known, read_cells(folder / f"{known.name}.json")) for known in _known()]
    draw_agreement(found, folder / PICTURE)
    with replacing(folder / "README.md") as partial:
        partial.write_text(verdicts(found), encoding="utf-8")
    print(f"verdicts  {folder / 'README.md'}", flush=True)
