"""`fedkin report`: one HTML file of one run or several, and their table for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fl_core.extras import DRAWING, need_extra


def add_command(commands: Any) -> None:
    """Add the subcommand to argparse's."""
    parser = commands.add_parser(
        "report",
        help="one HTML file of one run or of several side by side, and their table",
        description="Write a report of results folders as one HTML file that needs no network: "
        "tables, interactive pictures, the configuration and the command that repeats the run. "
        "Each run writes its own; this makes it again, or puts several runs side by side.",
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="FOLDER", help="the results folder of a run"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.html",
        help="default: report.html in the folder, or here if there are several",
    )
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        action="append",
        default=[],
        help="also write the table of strategies: .csv with all digits, .md or .tex; may be given "
        "several times",
    )
    parser.set_defaults(call=_report)


def _report(options: argparse.Namespace) -> int:
    # They import torch: a wrong word costs no waiting.
    from fl_app.report.report_page import distinct, write_report  # noqa: PLC0415
    from fl_app.report.tables import strategy_table  # noqa: PLC0415
    from fl_app.report.text_table import check_ending, write_table  # noqa: PLC0415
    from fl_app.results.layout import REPORT  # noqa: PLC0415
    from fl_app.results.reading import read_result  # noqa: PLC0415

    for package in DRAWING:
        need_extra(package, "fedkin report")
    for path in options.table:
        check_ending(path)
    if options.output is not None and options.output.exists() and not options.output.is_file():
        raise ValueError(
            f"--output is {options.output}, which is not a file: give a new file, or one to "
            f"replace, such as {options.output / REPORT}."
        )
    folders: list[Path] = options.folders
    alone = folders[0] if len(folders) == 1 else Path()
    print(f"report    {write_report(folders, options.output or alone / REPORT)}")
    if options.table:
        table = strategy_table(distinct([read_result(folder) for folder in folders]))
        for path in options.table:
            write_table(table, path)
            print(f"table     {path}")
    return 0
