"""A table of text, and how it is written: in the terminal, as CSV, Markdown or LaTeX."""

import csv
import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fl_core.files import replacing
from fl_core.text import csv_cell

WIDTH = 104  # of the terminal
_LEAST_NAME = 10  # letters of a name in a line where numbers need the room
_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "±": r"$\pm$",
        "−": "$-$",
        # At the beginning of a row they would belong to the end of the one before.
        "[": "{[}",
        "*": "{*}",
        # Other letters in the encoding that LaTeX has by default.
        "|": r"\textbar{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        **{special: f"\\{special}" for special in "&%$#_{}"},
    }
)
_MARKDOWN = str.maketrans({special: f"\\{special}" for special in "\\`*_{}[]<>|#~!$&"})


@dataclass(frozen=True)
class TextTable:
    """A table of text: on a report's page, in the terminal, in a file."""

    caption: str
    columns: list[str]
    rows: list[list[str]]  # rounded, for people
    numbers: Collection[int] = ()  # the right-aligned columns
    whole: Collection[int] = ()  # columns of names that are not folded in the terminal
    open: bool = True  # whether it is unfolded at first, on a page
    folds: bool = True  # whether a page can fold it
    note: str = ""  # below it, in the terminal
    best: Collection[tuple[int, int]] = ()  # rows and columns of the best numbers
    exact_columns: Sequence[str] = ()
    exact: Sequence[Sequence[str | float]] = ()  # for programs; NaN: unknown


def render(table: TextTable) -> str:
    """Return a table as plain lines, wide enough for its numbers."""
    shown = Table(title=table.caption, title_justify="left", caption_justify="left")
    shown.min_width = min(len(table.caption), WIDTH)
    shown.caption = Text(table.note) if table.note else None
    least = 3 * len(table.columns) + 1
    for index, head in enumerate(table.columns):
        lines = [line for row in table.rows for line in row[index].split("\n")]
        longest = max(map(len, [*head.split("\n"), *lines]))
        # Rich would cut a number where there is no room, and its exponent with it.
        is_number = index in table.numbers
        is_whole = is_number or index in table.whole
        width = longest if is_whole else min(longest, _LEAST_NAME)
        shown.add_column(
            Text(head),
            justify="right" if is_number else "left",
            no_wrap=is_whole,
            overflow="fold",
            min_width=width,
        )
        least += width
    for row in table.rows:
        shown.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=max(WIDTH, least), color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def check_ending(path: Path) -> None:
    """Refuse, by a ValueError, a file with an unknown ending."""
    if path.suffix not in _WRITERS:
        *others, last = _WRITERS
        raise ValueError(
            f"the table cannot be written as {path.name}: give a file that ends with "
            f"{', '.join(others)} or {last}."
        )


def write_table(table: TextTable, path: Path) -> None:
    """Write a table in the format of the path's ending: CSV with all digits, Markdown, or LaTeX."""
    with replacing(path) as partial:
        partial.write_text(_WRITERS[path.suffix](table), encoding="utf-8")


def as_csv(table: TextTable) -> str:
    """Return the exact numbers as CSV; unknown ones are empty, and no name is a formula."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(table.exact_columns)
    for row in table.exact:
        writer.writerow(
            csv_cell(cell) if isinstance(cell, str) else "" if math.isnan(cell) else f"{cell:.12g}"
            for cell in row
        )
    return lines.getvalue()


def as_markdown(table: TextTable) -> str:
    """Return the table in Markdown, with special signs escaped."""
    alignment = ["--:" if place in table.numbers else ":--" for place in range(len(table.columns))]
    lines = [table.columns, alignment, *_escaped(table, _MARKDOWN, "**{}**")]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: TextTable) -> str:
    """Return the table in LaTeX, one column of text wide, with booktabs' rules."""
    alignment = "".join(
        "r" if place in table.numbers else "l" for place in range(len(table.columns))
    )
    head = [one.translate(_TEX) for one in table.columns]
    rows = [head, *_escaped(table, _TEX, r"\textbf{{{}}}")]
    head_line, *body = (" & ".join(row) + r" \\" for row in rows)
    return "\n".join(
        [
            r"{\footnotesize\setlength{\tabcolsep}{3pt}%",
            rf"\begin{{tabular*}}{{\columnwidth}}{{@{{\extracolsep{{\fill}}}}{alignment}@{{}}}}",
            *(r"\toprule", head_line, r"\midrule", *body, r"\bottomrule"),
            "\\end{tabular*}}\n",
        ]
    )


def _escaped(table: TextTable, signs: dict[int, str], bold: str) -> list[list[str]]:
    """Return the cells, the best ones as `bold` has them."""
    return [
        [
            (bold if (row, column) in table.best else "{}").format(cell.translate(signs))
            for column, cell in enumerate(cells)
        ]
        for row, cells in enumerate(table.rows)
    ]


_WRITERS = {".csv": as_csv, ".md": as_markdown, ".tex": as_latex}
