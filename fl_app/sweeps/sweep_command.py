"""`fedkin sweep`: the product of lists of values, run once each, in one table and picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_app.results.layout import CELLS, REPORT, SWEEP
from fl_core.extras import DRAWING, need_extra
from fl_core.text import whole_number

if TYPE_CHECKING:  # torch is imported neither by a help nor by a wrong word
    from fl_app.sweeps.plan import Sweep
    from fl_app.sweeps.running import Say
    from fl_app.sweeps.store import Cell

_EXAMPLE = """\
examples:
  fedkin sweep noise-rate=0,0.2,0.4 noise=class-dependent strategy=rcc-pfl,fedhc,single repeats=3
  fedkin sweep 'tasks=["0,1|2,3,4", "0,2|1,3,4"]' features=hog,raw --dry-run

A value with commas that its key takes (tasks=0,1|2,3) is one value; lists of such are written as
in TOML. Strategies and repeats share a simulation; everything else that has several values is
swept. docs/sweeps.md says more.
"""


def add_command(commands: Any) -> None:
    """Add the subcommand to argparse's."""
    parser = commands.add_parser(
        "sweep",
        help="simulate the product of lists of values, and put them in one table and picture",
        description="Simulate each combination of the values of all keys that have several, and "
        "write one CSV, one picture and one report. Finished simulations are stored: call again "
        "after an interruption, or with more values, and only what is missing is run.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE[,VALUE…]",
        help="run-config keys, as in docs/options.md, and their values",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="default: results/sweep-… by what is swept and the other options, so that the same "
        "command continues an interrupted sweep",
    )
    parser.add_argument(
        "--processes",
        type=whole_number(1),
        help="simulations at a time, among which the CPUs are shared (default: one for each CPU)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, list the simulations, and start nothing",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="run finished simulations again, too: after an update of fedkin, for example",
    )
    parser.set_defaults(call=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from fl_app.sweeps.plan import plan_sweep, read_words  # noqa: PLC0415

    sweep = plan_sweep(read_words(options.overrides))
    folder = options.output or sweep.folder()
    how = {"dry_run": options.dry_run, "again": options.again}
    failures = run_sweep(sweep, folder, options.processes, **how)
    return 1 if failures else 0


def run_sweep(
    sweep: Sweep,
    folder: Path,
    processes: int | None,
    *,
    dry_run: bool = False,
    again: bool = False,
    say: Say | None = None,
) -> dict[str, str]:
    """Run the missing simulations and write the tables; return the reasons of failures by name.

    `again` runs finished ones, too. Errors are raised before any simulation starts.
    """
    from fl_app.config.unused_options import find_commonly_unused_options  # noqa: PLC0415
    from fl_app.sweeps.running import (  # noqa: PLC0415
        default_processes,
        run_missing,
        stored_cells,
        with_checksums,
        workers_of,
    )
    from fl_app.sweeps.store import check_all  # noqa: PLC0415

    say = say or partial(print, flush=True)
    for package in ("ray", *DRAWING, "pandas"):
        need_extra(package, "fedkin sweep")
    check_all(sweep.simulations, folder.absolute())
    for sentence in find_commonly_unused_options(
        (one.given, one.config) for one in sweep.simulations
    ):
        say(f"warning: {sentence}")
    sweep, cells = with_checksums(sweep), stored_cells(folder)
    missing = [one for one in sweep.simulations if again or not one.is_in(cells)]
    count = min(processes or default_processes(len(missing)), max(1, len(missing)))
    workers = workers_of(count)
    trainings = sum(one.config.num_trainings for one in sweep.simulations)
    say(
        f"{len(sweep.simulations)} simulations ({trainings} trainings), "
        f"{len(sweep.simulations) - len(missing)} finished; {count} at a time\n"
        f"results go to {folder}"
    )
    for one in sweep.simulations:
        old = "again" if one.is_in(cells, with_options=False) else ""
        state = old if one in missing else "finished"
        say(f"  {one.key}" + (f"  ({state})" if state else ""))
    if dry_run:
        return {}
    failures: dict[str, str] = {}
    try:
        if missing:
            failures = run_missing(missing, folder, say, processes=count, workers=workers)
    finally:  # what is finished is shown, even if the rest was stopped
        _write(sweep, folder, say)
    return failures


def _write(sweep: Sweep, folder: Path, say: Say) -> None:
    from fl_app.sweeps.running import finished_cells  # noqa: PLC0415
    from fl_app.sweeps.sweep_pictures import draw  # noqa: PLC0415
    from fl_app.sweeps.sweep_tables import printed_tables, tidy, write_csv  # noqa: PLC0415

    cells = finished_cells(sweep, folder)
    if not cells:
        return
    table = tidy(sweep, cells)
    write_csv(table, folder / SWEEP)
    draw(sweep, table, folder / "sweep.png")
    say(f"\n{printed_tables(sweep, table, cells)}")
    _write_report(sweep, cells, folder, say)
    files = {"report": REPORT, "table": SWEEP, "picture": "sweep.png", "results": CELLS}
    for what, name in files.items():
        if (folder / name).exists():
            say(f"{what:9} {folder / name}")


def _write_report(sweep: Sweep, cells: Sequence[Cell], folder: Path, say: Say) -> None:
    """Write one page for the runs of all cells, unless they are too many."""
    from fl_app.report.report_page import write_report  # noqa: PLC0415

    folders = [folder / CELLS / cell["cell"] for cell in cells]
    title = f"Which strategy for which {' and '.join(sweep.swept)}?"
    try:
        write_report(folders, folder / REPORT, title, sweep.command(folder))
    except ValueError as error:
        (folder / REPORT).unlink(missing_ok=True)  # of the sweep as it was, with fewer values
        say(f"\nno {REPORT}: {error}")
