"""The tables of a report, as text: for the page, and for CSV, Markdown and LaTeX files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_app.report.html.reading import Result, Run
from fl_core.files import replacing
from fl_core.text import csv_cell

PRE_ROUND = ("pre-round-up", "pre-round-down")
TRAINING = ("train-up", "train-down")
ENDINGS = (".csv", ".md", ".tex")
_NOT_KNOWN = "–"
_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "−": "$-$",
    **{special: f"\\{special}" for special in "&%$#_{}"},
}
_MARKDOWN = str.maketrans({special: f"\\{special}" for special in "\\`*_{}[]<>|#~!"})


@dataclass(frozen=True)
class Table:
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


def strategy_table(results: Sequence[Result]) -> Table:
    """Return one row per result and strategy: accuracy, clusters, bytes, seconds, mean over seeds.

    ± is the standard deviation over seeds (n − 1). The first column is the result's name if there
    are several.
    """
    groups = [
        (result.name, name, result.of(name)) for result in results for name in result.strategies
    ]
    several = len(results) > 1
    has_ari = any(run.ari is not None for _, _, runs in groups for run in runs)
    rows: list[list[str]] = []
    exact: list[list[str | float]] = []
    for result, strategy, runs in groups:
        means = np.array([run.accuracy for run in runs])
        known = np.concatenate([_known(run) for run in runs])
        worst = float(known.min()) if known.size else math.nan
        variance = _mean([float(np.nanvar(_known(run))) for run in runs if _known(run).size])
        aris = [run.ari for run in runs if run.ari is not None]
        counts = [len({*run.clusters} - {-1}) for run in runs]
        deviation = float(np.std(means, ddof=1)) if len(means) > 1 else math.nan
        costs = [_mean([run.kilobytes(*part) for run in runs]) for part in (PRE_ROUND, TRAINING)]
        seconds = _mean([run.seconds.get("total", math.nan) for run in runs])
        accuracy = _number(100 * _mean(means.tolist()), ".1f")
        names: list[str] = [result, strategy] if several else [strategy]
        rows.append(
            [
                *names,
                accuracy if math.isnan(deviation) else f"{accuracy} ± {100 * deviation:.1f}",
                _number(100 * worst, ".1f"),
                _number(1e4 * variance, ".1f"),
                *([_number(_mean(aris), ".2f").replace("-", "−")] if has_ari else []),
                "/".join(map(str, sorted(set(counts)))),
                *(_number(cost, ",.0f") for cost in costs),
                _number(seconds, ",.1f"),
            ]
        )
        exact.append(
            [
                *names,
                len(runs),
                _mean(means.tolist()),
                deviation,
                worst,
                variance,
                *([_mean(aris)] if has_ari else []),
                _mean([float(count) for count in counts]),
                *(1000 * cost for cost in costs),
                seconds,
            ]
        )
    ari = ["ARI"] if has_ari else []
    first = ["run", "strategy"] if several else ["strategy"]
    return Table(
        columns=[
            *first,
            *("accuracy %", "lowest %", "variance", *ari, "clusters"),
            *("pre-round kB", "training kB", "seconds"),
        ],
        rows=rows,
        exact_columns=[
            *first,
            *("seeds", "accuracy", "accuracy-std", "lowest-accuracy", "accuracy-variance"),
            *(["ari"] if has_ari else []),
            *("clusters", "pre-round-bytes-per-client", "training-bytes-per-client", "seconds"),
        ],
        exact=exact,
        num_names=len(first),
    )


def check_ending(path: Path) -> None:
    """Refuse, by a ValueError, a file whose ending says no format."""
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"the table cannot be written as {path.name}: name a file that ends with "
            f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
        )


def write_table(table: Table, path: Path) -> None:
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


def as_csv(table: Table) -> str:
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


def as_markdown(table: Table) -> str:
    """Return the table in Markdown; what names hold of its signs is escaped."""
    lines = [table.columns, [":--" if place < table.num_names else "--:" for place in _of(table)]]
    lines += [[cell.translate(_MARKDOWN) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: Table) -> str:
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


def _of(table: Table) -> range:
    return range(len(table.columns))


def _known(run: Run) -> NDArray[np.float64]:
    return run.accuracies[np.isfinite(run.accuracies)]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _number(value: float, form: str) -> str:
    return _NOT_KNOWN if math.isnan(value) else f"{value:{form}}"
