"""Builds the report from its parts, and writes it."""

import base64
import hashlib
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fl_app.report.comparisons import figures_of
from fl_app.report.contents import MOST_PICTURES, SECTIONS, content_of, differing_options
from fl_app.report.pictures import Spec, on_page
from fl_app.report.sentences import answer, answers_table, describe_comparison, question
from fl_app.report.tables import notes_of, shared_test, strategy_table, tests_of
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result, read_result
from fl_core.data.folders import cache_dir
from fl_core.data.settings import TESTS_EXPLAINED
from fl_core.extras import load_extra
from fl_core.files import replacing
from fl_core.text import printable

NO_REPORT_VARIABLE = "FEDKIN_NO_REPORT"
"""An environment variable: if it is set, a run writes no report."""
MOST_BYTES = 5_000_000
_MOST_DRAWN = 6  # results with a picture of a matrix each
# Flower's bundles carry no .html, .css and .js, but TOML.
_PAGE_PARTS_FILE = Path(__file__).with_name("page.toml")


def write_report(
    folders: Sequence[Path], output: Path, title: str = "", command: str = "", compare: str = ""
) -> Path:
    """Write one report of the runs in some results folders as HTML, and return its path.

    Of several, `title` is the question that all answer together, and `command` repeats all. The
    strategies are compared with `compare`. The same folders give the same bytes. A ValueError if
    results cannot be read, or a report would have over 5 MB.
    """
    results = distinct([read_result(folder) for folder in folders])
    most_pictures = MOST_PICTURES if len(results) == 1 else int(len(results) <= _MOST_DRAWN)
    text = build_report(results, title, command, most_pictures, compare)
    if (size := len(text.encode())) > MOST_BYTES:
        raise ValueError(
            f"the report of {len(folders):,} folders would have {size / 1e6:.1f} MB, more than "
            f"{MOST_BYTES / 1e6:.0f}: name fewer of them."
        )
    with replacing(output) as partial:
        partial.write_text(text, encoding="utf-8")
    return output


def build_report(
    results: Sequence[Result],
    title: str = "",
    command: str = "",
    most_pictures: int = MOST_PICTURES,
    compare: str = "",
) -> str:
    """Return the page that shows some results; see `write_report`."""
    contents = [content_of(result, most_pictures) for result in results]
    alone = contents[0] if len(contents) == 1 else None
    opening = next(iter(SECTIONS))
    template, style, script = _parts()
    specs = _Specs()
    library = _library()
    page: str = template.render(
        title=printable(title) or (question(results[0]) if alone else "Runs"),
        opening=alone.sections.pop(opening, None) if alone else None,
        opening_heading=opening,
        said=answer(results[0], compare) if alone else [],
        answers=None if alone else answers_table(results, compare),
        names=[result.name for result in results],
        table=_strategies(results, compare) if any(result.runs for result in results) else None,
        differing=None if alone else differing_options(results),
        charts=_charts(results),
        contents=contents,
        command=printable(command),
        specs=specs,
        # Only these two scripts may run, even if a name contains one.
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src {_hash(library)} {_hash(script)}",
        style=style,
        library=library,
        script=script,
    )
    return page


class _Specs(list[Spec]):
    """The specifications of a page, in order; each is written once, at the end."""

    def add(self, spec: Spec) -> int:
        """Return the number by which the page refers to a specification."""
        self.append(spec)
        return len(self) - 1


def distinct(results: Sequence[Result]) -> list[Result]:
    """Return the results with distinct names: folders in different places may share one."""
    named: dict[str, Result] = {}
    for result in results:
        names = (f"{result.name} ({count})" for count in range(2, len(results) + 2))
        name = next(one for one in (result.name, *names) if one not in named)
        named[name] = replace(result, name=name)
    return list(named.values())


def _charts(results: Sequence[Result]) -> list[tuple[str, str, Spec]]:
    """Return the title, the caption and the specification of each picture of all results."""
    found = []
    for spec, more in figures_of(results).values():
        title, note, page = on_page(spec)
        found.append((title, f"{note} {more}".strip(), page))
    return found


def _strategies(results: Sequence[Result], compare: str = "") -> TextTable:
    """Return the table of strategies, with a caption that explains its numbers."""
    runs = [run for result in results for run in result.runs]
    table = strategy_table(results, compare)
    main, both, shared = runs[0].metrics.main, len(tests_of(runs)) > 1, shared_test(runs)
    unit = " in percent" if main.is_share else ""
    parts = [
        table.caption,
        f"{main.extreme}: of any client",
        f"variance: of the {main.in_test(shared).title}{unit} over clients",
        *([f"tests differ, also those of {main.extreme} and variance"] * (both and not shared)),
        "kB: sent and received by a client",
        *dict.fromkeys(line for result in results for line in notes_of(result.runs)),
    ]
    sentences = ["; ".join(parts) + ".", *([TESTS_EXPLAINED] if both else [])]
    sentences += [describe_comparison(results, compare)] if compare else []
    return replace(table, caption=" ".join(sentences), folds=False)


@lru_cache
def _library() -> str:
    """Return Vega, Vega-Lite and their embedding as one script, which leaves nothing behind.

    It takes two seconds to make, and is cached in `cache_dir()`.
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


@lru_cache
def _parts() -> tuple[Any, str, str]:
    """Return the page's template, its style and its script; a tenth of a second compiles them."""
    jinja2 = load_extra("jinja2", "a report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["whole"] = _whole
    # Sorted keys, and neither < nor & inside of a script.
    environment.policies["json.dumps_kwargs"] = {
        "sort_keys": True,
        "ensure_ascii": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    parts = tomllib.loads(_PAGE_PARTS_FILE.read_text(encoding="utf-8"))
    return environment.from_string(parts["page"]), parts["style"], parts["script"]


def _whole(text: str) -> str:
    """Return a text in which no line ends between a number and its %."""
    return re.sub(r"(?<=\d) %", "\u00a0%", text)


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
