"""Run a paper's table: `python -m experiments TABLE` runs what is missing, and writes its page."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.cells import ALL, all_cells, current_cells, find_missing, run_missing
from experiments.data_files import check_sources, sources_of
from experiments.experiment_file import (
    Experiment,
    find_experiment,
    list_experiments,
    read_experiment,
)
from experiments.page import page
from experiments.table_pictures import draw, draw_agreement
from experiments.verdicts import CLAIMS, PICTURE, Table, claims_page, front_page
from fl_app.config.unused_options import find_commonly_unused_options
from fl_app.sweeps.store import check_all, read_cells
from fl_core.files import replacing
from fl_core.text import whole_number

EXPERIMENTS = Path("experiments")
NUMBERS, PAGES = Path("experiments/results"), Path("docs/results")


class Folders(NamedTuple):
    """The folders of stored cells, and of pages and pictures."""

    numbers: Path = NUMBERS
    pages: Path = PAGES

    def of(self, name: str) -> Path:
        """Return the file of an experiment's cells."""
        return self.numbers / f"{name}.json.xz"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run an experiment: every simulation that its file of cells does not have with "
        "the same options. It can be stopped at any time and called again. Then write its page and "
        "picture, and docs/results/README.md with a verdict on every claim of the papers.",
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="TABLE",
        help="a TOML file of the folder experiments, or its path; none: list them",
    )
    parser.add_argument(
        "--seeds", type=whole_number(1), help="how many seeds (default: the experiment's)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small version with one seed in a separate folder: does it work at all?",
    )
    parser.add_argument(
        "--again",
        nargs="?",
        const=ALL,
        type=lambda text: text.split(","),
        default=[],
        metavar="STRATEGIES",
        help="run finished simulations again, too: of these strategies alone, or whole",
    )
    parser.add_argument(
        "--page", action="store_true", help="run nothing, only write the page; without TABLE, all"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help=f"default: {NUMBERS} for numbers, {PAGES} for pages; if TABLE is a path, results "
        "beside it",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(0),
        default=os.cpu_count() or 1,
        help="Ray workers (default: CPUs); 0: all in this process, on one CPU, which saves half a "
        "minute of each simulation",
    )
    options = parser.parse_args(arguments)
    if options.seeds and (options.quick or options.page):
        parser.error("--seeds goes neither with --quick, which has one, nor with --page.")
    if options.quick and options.page and options.name is None:
        parser.error("--page --quick needs the name of an experiment.")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = _options(arguments)
    try:
        if options.name is not None:
            _one_table(options)
        elif options.page:
            _all_pages()
        else:
            _list()
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print("error:", error, file=sys.stderr)
        return 2
    return 0


def _list() -> None:
    experiments = list_experiments(EXPERIMENTS)
    width = max((len(one.name) for one in experiments), default=0)
    for one in experiments:
        count = len(all_cells(one, one.seeds))
        seeds = "one seed" if one.seeds == 1 else f"{one.seeds} seeds"
        needs = f"; needs {one.needs}" if one.needs else ""
        print(f"{one.name:{width}} {one.title} ({count} simulations, {seeds}{needs})")


def _one_table(options: argparse.Namespace) -> None:
    """Run what is missing of an experiment and write its page."""
    path = find_experiment(options.name, EXPERIMENTS)
    experiment = read_experiment(path)
    is_ours = path.parent == EXPERIMENTS
    folders = Folders()
    if options.output or not is_ours:
        folders = Folders(*[options.output or path.parent / "results"] * 2)
    if options.quick:
        experiment = experiment.as_small()
        folders = Folders(folders.numbers / "quick", folders.pages / "quick")
    try:
        if not options.page:
            _run_missing(experiment, folders, options)
    finally:  # what is finished is shown, even if the rest was stopped
        if options.page or current_cells(experiment, read_cells(folders.of(experiment.name))):
            _write_page(experiment, folders, "" if is_ours else str(path))
    if folders == Folders():
        _write_verdicts()


def _all_pages() -> None:
    for experiment in list_experiments(EXPERIMENTS):
        if Folders().of(experiment.name).is_file() and not experiment.page:
            _write_page(experiment, Folders())
    _write_verdicts()


def _run_missing(experiment: Experiment, folders: Folders, options: argparse.Namespace) -> None:
    numbers = folders.of(experiment.name)
    seeds, cells = options.seeds or experiment.seeds, read_cells(numbers)
    missing = find_missing(experiment, numbers, seeds, again=options.again)
    check_all(missing, folders.numbers.absolute())
    sources = dict.fromkeys(name for one in missing for name in sources_of(one.config))
    check_sources(experiment.name, sources)
    for sentence in find_commonly_unused_options((one.given, one.config) for one in missing):
        print("warning:", sentence, flush=True)
    outdated = sum(one.is_in(cells, with_options=False) for one in missing)
    why = "" if options.again else " had other options and"
    again = f" {outdated}{why} run again." if outdated else ""
    total = len(all_cells(experiment, seeds))
    print(f"{total - len(missing)} of {total} simulations are finished.{again}", flush=True)
    for count, one in enumerate(run_missing(experiment, numbers, missing, options.workers), 1):
        print(f"\nsimulation {count} of {len(missing)}: {one.key}", flush=True)


def _write_page(experiment: Experiment, folders: Folders, path: str = "") -> None:
    """Write an experiment's page, with those that are part of it, or the page it is part of."""
    parts = [experiment]
    if folders == Folders():
        known = list_experiments(EXPERIMENTS)
        whole = experiment.page or experiment.name
        parts = [one for one in known if one.name == whole]
        parts += [one for one in known if one.page == whole and folders.of(one.name).is_file()]
    folders.pages.mkdir(parents=True, exist_ok=True)
    texts = [_page_of(one, folders, path) for one in parts]
    for part, text in zip(parts[1:], texts[1:], strict=True):
        lower = re.sub("^#", "##", text, flags=re.MULTILINE)
        texts[0] += f'\n<a id="{part.name}"></a>\n\n{lower}'
    written = folders.pages / f"{parts[0].name}.md"
    with replacing(written) as partial:
        partial.write_text(texts[0], encoding="utf-8")
    print(f"page      {written}\nnumbers   {folders.of(experiment.name)}", flush=True)


def _page_of(experiment: Experiment, folders: Folders, path: str) -> str:
    """Draw an experiment's picture and return its page.

    Where there is nothing to draw yet, or ever, the page has no picture.
    """
    numbers = folders.of(experiment.name)
    cells = read_cells(numbers)
    if not current_cells(experiment, cells):
        raise ValueError(f"there are no numbers of this experiment in {numbers} yet.")
    try:
        draw(experiment, cells, folders.pages / f"{experiment.name}.png")
    except ValueError as error:
        print(f"warning: picture is {experiment.picture}, but {error}", flush=True)
        experiment = replace(experiment, picture="none")
    return page(experiment, cells, os.path.relpath(numbers, folders.pages), path)


def _write_verdicts() -> None:
    """Write the front page and the list of claims, from the experiments that were run."""
    known = [(one, read_cells(Folders().of(one.name))) for one in list_experiments(EXPERIMENTS)]
    tables = [(one, cells) for one, cells in known if cells]
    draw_agreement(tables, PAGES / PICTURE)
    judged = [Table.of(*one) for one in tables]
    for name, text in (("README.md", front_page(judged)), (CLAIMS, claims_page(judged))):
        with replacing(PAGES / name) as partial:
            partial.write_text(text, encoding="utf-8")
    print(f"verdicts  {PAGES / 'README.md'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
