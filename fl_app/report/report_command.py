"""`fedkin report`: one HTML file of one run or several, and their table for a paper."""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_core.extras import DRAWING, need_extra

if TYPE_CHECKING:  # they import torch
    from fl_app.report.text_table import TextTable
    from fl_app.results.reading import Result

_UNITS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4}  # in points


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
        help="default: report.html in the folder, or here if there are several; of a sweep, "
        "cells.html in its folder, and none with --table",
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
    parser.add_argument(
        "--compare",
        metavar="STRATEGY",
        default="",
        help="compare the others with this one: paired differences with 95 %% intervals, and "
        "Wilcoxon's test over clients, adjusted after Holm",
    )
    parser.add_argument(
        "--columns",
        type=_split,
        metavar="NAME,NAME",
        default=[],
        help="the columns of --table, by their names in its .csv; of .md and .tex, no column that "
        "only the .csv has; by default all, and of .tex the score, ARI and differences, which fit "
        "into a column of text",
    )
    parser.add_argument(
        "--names",
        type=_names,
        metavar="NAME=TEXT,…",
        default={},
        help="what --table and --figures call strategies: my:Ocfl=OCFL",
    )
    parser.add_argument(
        "--bold",
        choices=["best"],
        help="print the best scores of .md and .tex in bold, with those that no interval "
        "distinguishes from them",
    )
    parser.add_argument(
        "--figures",
        choices=["pdf", "svg", "png"],
        help="draw the pictures again into the folder of the report",
    )
    parser.add_argument(
        "--width",
        type=_points,
        metavar="LENGTH",
        default=6 * _UNITS["in"],
        help="how wide --figures are: 3.4in, 86mm, 245pt (default: 6in)",
    )
    parser.set_defaults(call=_report)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _names(text: str) -> dict[str, str]:
    pairs = [part.partition("=")[::2] for part in _split(text)]
    if not all(name and said for name, said in pairs):
        raise argparse.ArgumentTypeError(f"{text} is not of the form NAME=TEXT,NAME=TEXT")
    return dict(pairs)


def _points(text: str) -> float:
    """Read a length, in points."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(in|cm|mm|pt)", text)
    if found is None or not 72 <= (points := float(found[1]) * _UNITS[found[2]]) <= 1440:
        raise argparse.ArgumentTypeError(
            f"{text} is not a length from 1in to 20in, such as 3.4in, 86mm or 245pt"
        )
    return points


def _report(options: argparse.Namespace) -> int:
    # They import torch: a wrong word costs no waiting.
    from fl_app.report.report_page import distinct, write_report  # noqa: PLC0415
    from fl_app.report.sentences import answer  # noqa: PLC0415
    from fl_app.report.text_table import check_ending, write_table  # noqa: PLC0415
    from fl_app.results.layout import REPORT, SWEEP, cell_folders  # noqa: PLC0415
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
    folders = [cell for folder in options.folders for cell in cell_folders(folder)]
    alone = options.folders[0] if len(options.folders) == 1 else Path()
    output = options.output or alone / REPORT
    if options.output is None and (alone / SWEEP).is_file():
        output = alone / "cells.html"  # the sweep wrote its own report
    results = distinct([read_result(folder) for folder in folders])
    strategies = dict.fromkeys(name for one in results for name in one.strategies)
    if unknown := [name for name in options.names if name not in strategies]:
        raise ValueError(f'--names has "{unknown[0]}", but there are {", ".join(strategies)}.')
    tables = [(path, _table(results, path, options)) for path in options.table]
    if options.output or not (options.table and (alone / SWEEP).is_file()):
        print(f"report    {write_report(folders, output, compare=options.compare)}")
    if options.compare:
        print("\n".join(line for one in results for line in answer(one, options.compare)))
    for path, table in tables:
        write_table(table, path)
        print(f"table     {path}")
    for path in _draw(results, output.parent, options) if options.figures else ():
        print(f"picture   {path}")
    return 0


def _table(results: "list[Result]", path: Path, options: argparse.Namespace) -> "TextTable":
    """Return the table of strategies for a file."""
    from fl_app.report.tables import strategy_table  # noqa: PLC0415

    columns, base = options.columns, options.compare
    if not columns and path.suffix == ".tex":
        known = strategy_table(results, base).exact_columns
        main = next(run.metrics.main.name for result in results for run in result.runs)
        columns = [one for one in (main, "ari", "difference", "p-of-clients") if one in known]
    table = strategy_table(results, base, columns, for_programs=path.suffix == ".csv")
    place = table.columns.index("strategy")

    def renamed(row: Sequence[Any]) -> list[Any]:
        return [*row[:place], options.names.get(row[place], row[place]), *row[place + 1 :]]

    heads = {f"difference from {base}": f"difference from {options.names.get(base, base)}"}
    return replace(
        table,
        columns=[heads.get(column, column) for column in table.columns],
        rows=[*map(renamed, table.rows)],
        exact=[*map(renamed, table.exact)],
        best=table.best if options.bold else (),
    )


def _draw(results: "list[Result]", folder: Path, options: argparse.Namespace) -> Iterator[Path]:
    """Draw the pictures that need no more than the results, and yield their paths."""
    from fl_app.report.comparisons import draw_verdicts, figures_of  # noqa: PLC0415
    from fl_app.report.matrices import draw_matrix, matrices_of  # noqa: PLC0415
    from fl_app.report.pictures.figure import rename_strategy, save, with_texts  # noqa: PLC0415
    from fl_app.results.layout import file_name  # noqa: PLC0415

    figures = {name: figure for name, (figure, _) in figures_of(results).items()}
    for result in results:
        prefix = f"{file_name(result.name)}-" if len(results) > 1 else ""
        if result.verdicts:
            figures[f"{prefix}verdicts"] = draw_verdicts(result)
        for name, matrix in matrices_of(result).items():
            figures[f"{prefix}{name}"] = draw_matrix(matrix)
    for name, figure in figures.items():
        named = with_texts(figure, lambda text: rename_strategy(text, options.names))
        yield save(named, folder / f"{name}.{options.figures}", options.width)
