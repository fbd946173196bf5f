"""Builds the report from its parts, and writes it."""

from __future__ import annotations

import base64
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fl_app.report.html.charts import Spec, costs_chart, curves_chart
from fl_app.report.html.clients import MOST_DOTS, MOST_ROWS, clients_chart
from fl_app.report.html.reading import Result, Run, read_result
from fl_app.report.html.sections import (
    MOST_MATRICES,
    differing_options,
    first_runs,
    section_of,
)
from fl_app.report.html.words import answer, question
from fl_app.report.tables import PRE_ROUND, TRAINING, strategy_table
from fl_core.data.folders import cache_dir
from fl_core.extras import load_extra
from fl_core.files import replacing
from fl_core.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

NO_REPORT = "FEDKIN_NO_REPORT"
"""A variable of the environment: a run that finds it set writes no report of its own."""
REPORT = "report.html"
MOST_BYTES = 5_000_000
_MOST_CURVES = 24  # more lines are told apart by nobody
# Flower's bundles carry no .html, .css and .js, but TOML.
_PARTS = Path(__file__).with_name("page.toml")


def write_report(folders: Sequence[Path], output: Path, title: str = "", command: str = "") -> Path:
    """Write one report of the runs in some results folders, and return its path.

    The same folders give the same bytes.

    Parameters
    ----------
    folders : sequence of Path
        At least one; several are shown side by side, in this order.
    output : Path
        The HTML file.
    title : str
        The question that all of them answer together; by default, each one's own.
    command : str
        What repeats all of them together, if something does.

    Raises
    ------
    ValueError
        One sentence, if a folder holds no results that can be read, or they are too many for a
        report of 5 MB.
    MissingExtraError
        If the template engine or the plotting library is not installed.
    """
    if not folders:
        raise ValueError("a report needs at least one results folder.")
    results = distinct([read_result(folder) for folder in folders])
    for most_matrices in _numbers_of_matrices(len(results)):
        text = build_report(results, title, command, most_matrices)
        size = len(text.encode())
        if size <= MOST_BYTES:
            break
    else:
        raise ValueError(
            f"the report of {len(folders):,} folders would have {size / 1e6:.1f} MB, more than "
            f"{MOST_BYTES / 1e6:.0f}: name fewer of them."
        )
    with replacing(output) as partial:
        partial.write_text(text, encoding="utf-8")
    return output


def _numbers_of_matrices(num_results: int) -> list[int]:
    """Return how many matrices of a result to try, down to none: large ones fill the page."""
    most = MOST_MATRICES if num_results == 1 else 1 if num_results <= 6 else 0
    return [number for number in (MOST_MATRICES, 1, 0) if number <= most]


def build_report(
    results: Sequence[Result],
    title: str = "",
    command: str = "",
    most_matrices: int = MOST_MATRICES,
) -> str:
    """Return the page that shows some results; see `write_report`."""
    sections = [section_of(result, most_matrices) for result in results]
    runs = sum(len(result.runs) for result in results)
    parts = tomllib.loads(_PARTS.read_text(encoding="utf-8"))
    specs = _Specs()
    library, script = _library(), parts["script"]
    return (
        _environment()
        .from_string(parts["page"])
        .render(
            title=printable(title) or (question(results[0]) if len(results) == 1 else "Runs"),
            results=[(question(one), answer(one)) for one in results],
            names=[result.name for result in results],
            table=strategy_table(results) if runs else None,
            tested=_tested(results),
            differing=differing_options(results) if len(results) > 1 else None,
            charts=_charts(results),
            sections=sections,
            command=printable(command),
            specs=specs,
            # Only these two scripts may run, whatever a name holds.
            policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
            f"style-src 'unsafe-inline'; script-src {_hash(library)} {_hash(script)}",
            style=parts["style"],
            library=library,
            script=script,
        )
    )


class _Specs(list[Spec]):
    """The specifications of a page, in order; each is written once, at the end."""

    def add(self, spec: Spec) -> int:
        """Return the number by which the page refers to a specification."""
        self.append(spec)
        return len(self) - 1


def distinct(results: Sequence[Result]) -> list[Result]:
    """Return the results with names of their own: folders in different places may share one."""
    named: dict[str, Result] = {}
    for result in results:
        name, count = result.name, 1
        while name in named:
            count += 1
            name = f"{result.name} ({count})"
        named[name] = _renamed(result, name)
    return list(named.values())


def _renamed(result: Result, name: str) -> Result:
    return Result(**{**vars(result), "name": name})


def _charts(results: Sequence[Result]) -> list[tuple[str, str, Spec]]:
    """Return the title, the caption and the specification of each picture of all results."""
    several = len(results) > 1

    def called(result: Result, strategy: str) -> str:
        return f"{strategy} · {result.name}" if several else strategy

    curves = {
        called(result, name): curve
        for result in results
        for name, curve in result.curves.items()
        if curve[1].size
    }
    rows: dict[str, Sequence[Run]] = {
        called(result, name): result.of(name) for result in results for name in result.strategies
    }
    points = {name: _point(runs) for name, runs in rows.items()}
    shown = dict(list(curves.items())[:_MOST_CURVES])
    found = []
    if shown and (spec := curves_chart(shown)):
        caption = "Lines: mean over seeds; bands: lowest to highest seed. "
        caption += "Choose strategies in the legend."
        found.append(("Accuracy by round", caption + _more(len(curves), _MOST_CURVES), spec))
    if spec := clients_chart(rows):
        found.append(("Accuracy of each client", _clients_caption(rows), spec))
    if spec := costs_chart(dict(list(points.items())[:_MOST_CURVES])):
        caption = "Points: mean over seeds; lines: lowest to highest seed. Testing is not counted."
        found.append(("Accuracy against bytes", caption + _more(len(points), _MOST_CURVES), spec))
    return found


def _clients_caption(rows: Mapping[str, Sequence[Run]]) -> str:
    count = sum(int(np.isfinite(run.accuracies).sum()) for runs in rows.values() for run in runs)
    seeds = {run.seed for runs in rows.values() for run in runs}
    whose = " in one seed" if len(seeds) > 1 else ""
    if count > MOST_DOTS:
        said = f"Bars: how many clients{whose}; dots: those with the lowest accuracy. "
    else:
        said = f"A dot is a client{whose}; the three lowest of each strategy are hollow. "
    said += "Line: from quartile to quartile, with the median, of ten clients or more."
    return said + _more(len(rows), MOST_ROWS)


def _more(count: int, most: int) -> str:
    return f" Shown are the first {most} of {count:,}." if count > most else ""


def _point(runs: Sequence[Run]) -> tuple[float, float, float, float]:
    means = [run.accuracy for run in runs]
    megabytes = float(np.mean([run.kilobytes(*PRE_ROUND, *TRAINING) for run in runs])) / 1000
    return megabytes, float(np.mean(means)), min(means), max(means)


def _tested(results: Sequence[Result]) -> str:
    """Return the caption of the table of strategies."""
    firsts = [run for result in results for run in first_runs(result)]
    if not firsts:
        return ""
    counts = sorted({int(np.isfinite(run.accuracies).sum()) for run in firsts})
    clients = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    seeds = max(len(result.of(name)) for result in results for name in result.strategies)
    over = f" ± standard deviation over {seeds} seeds" if seeds > 1 else ", one seed"
    return (
        f"Test accuracy, mean over {clients} clients{over}; lowest: of any client; variance: of "
        "the accuracy in percent over clients; kB: sent and received by a client"
    )


@lru_cache
def _library() -> str:
    """Return Vega, Vega-Lite and their embedding as one script, which leaves nothing behind.

    Making it takes two seconds, so it is kept in `cache_dir()`.
    """
    converter = load_extra("vl_convert", "a report")
    path = cache_dir() / f"vega-{converter.__version__}.js"
    try:
        bundle = path.read_text(encoding="utf-8")
    except OSError:
        bundle = converter.javascript_bundle()
        with suppress(OSError):  # a report does not need it
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_text(bundle, encoding="utf-8")
    return f"(function(){{{bundle}\n}})();"


def _environment() -> Environment:
    jinja2 = load_extra("jinja2", "a report")
    environment: Environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Sorted keys, and neither < nor & inside of a script.
    environment.policies["json.dumps_kwargs"] = {
        "sort_keys": True,
        "ensure_ascii": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    return environment


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
