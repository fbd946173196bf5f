"""A table of text, and how it is written: as CSV, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from fl_core.files import replacing
from fl_core.text import csv_cell

ENDINGS = (".csv", ".md", ".tex")
_TEX = {
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
_MARKDOWN = str.maketrans({special: f"\\{special}" for special in "\\`*_{}[]<>|#~!$&"})


@dataclass(frozen=True)
class TextTable:
    """A table of text: the first `num_names` columns are names, the others numbers.

    Attributes
    ----------
    columns : list of C str
    rows : list of lists of C str
        Rounded, for people.
    exact : list of lists of C str or float
        The same, for programs; NaN where there is none.
    exact_columns : list of str
        What the columns of `exact` are.
    """

    columns: list[str]
    rows: list[list[str]]
    exact_columns: list[str]
    exact: list[list[str | float]]
    num_names: int


def check_ending(path: Path) -> None:
    """Refuse, by a ValueError, a file whose ending says no format."""
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"the table cannot be written as {path.name}: name a file that ends with "
            f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
        )


def write_table(table: TextTable, path: Path) -> None:
    """Write a table as its path's ending says: CSV with all digits, Markdown, or LaTeX.

    Raises
    ------
    ValueError
        If it has another ending.
    """
    check_ending(path)
    write = {".csv": as_csv, ".md": as_markdown, ".tex": as_latex}[path.suffix]
    with replacing(path) as partial:
        partial.write_text(write(table), encoding="utf-8")


def as_csv(table: TextTable) -> str:
    """Return the table for programs: shares in [0, 1], bytes, empty cells where nothing is known.

    No name in it is a formula to a spreadsheet.
    """
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
    """Return the table in Markdown; what names hold of its signs is escaped."""
    lines = [table.columns, [":--" if place < table.num_names else "--:" for place in _of(table)]]
    lines += [[cell.translate(_MARKDOWN) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: TextTable) -> str:
    """Return the table in LaTeX, with booktabs' rules; what names hold of its signs is escaped."""
    alignment = "".join("l" if place < table.num_names else "r" for place in _of(table))
    body = [" & ".join(map(_tex, row)) + r" \\" for row in [table.columns, *table.rows]]
    lines = [
        f"\\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        body[0],
        r"\midrule",
        *body[1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in text)


def _of(table: TextTable) -> range:
    return range(len(table.columns))
