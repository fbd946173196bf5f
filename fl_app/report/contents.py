"""The contents of a report on one result: its sections and its configuration."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fl_app.report.matrices import TitledPicture, matrix_pictures
from fl_app.report.sections import cluster_tables, trouble_tables
from fl_app.report.sentences import changed_options, command
from fl_app.report.text_table import TextTable
from fl_app.report.verdict_table import verdict_parts
from fl_app.results.reading import Result
from fl_core.options import typed
from fl_core.text import listed

_MOST_COLUMNS = 200  # summary.json and grouping.json have all
MOST_PICTURES = 8  # of a section

Part = TextTable | str | Callable[[], TitledPicture]
"""A table, a sentence, or a picture, which is drawn if the page has room for it."""


class Content(NamedTuple):
    """The contents of a page on one result."""

    name: str
    sections: dict[str, list[TextTable | str | TitledPicture]]
    command: str


def content_of(result: Result, most_pictures: int = MOST_PICTURES) -> Content:
    """Return the contents of a page, with at most so many pictures in each section."""
    sections = {heading: parts_of(result) for heading, parts_of in SECTIONS.items()}
    grouping = result.grouping
    return Content(
        result.name,
        {heading: _drawn(parts, most_pictures) for heading, parts in sections.items() if parts},
        command(result.config) if result.config else grouping.command if grouping else "",
    )


def _drawn(parts: Sequence[Part], most: int) -> list[TextTable | str | TitledPicture]:
    """Draw at most so many pictures, and add a sentence on those that are left out."""
    left_out = [part for part in parts if callable(part)][most:]
    found = [part() if callable(part) else part for part in parts if part not in left_out]
    return (
        [*found, f"Left out for room: {len(left_out)}. The folder has them."] if left_out else found
    )


def _configuration(result: Result) -> list[Part]:
    """Describe the samples, the privacy and the software, and tabulate the options."""
    changed = changed_options(result.config)
    rows = [
        [key, _value(value), _value(changed[key][1]) if key in changed else ""]
        for key, value in sorted(result.config.items(), key=lambda item: item[0] not in changed)
    ]
    caption = f"All {len(rows)} options: {len(changed)} have another value than their default"
    spent = f"Differential privacy spent, for one {result.sample} of one client"
    sentences = {
        "Each sample has these columns": listed(result.columns, _MOST_COLUMNS, ", "),
        spent: ", ".join(f"{name} {value:g}" for name, value in result.privacy.items()),
        "Software that made these results": ", ".join(map(" ".join, result.versions.items())),
    }
    return [
        *(f"{what}: {text}." for what, text in sentences.items() if text),
        *([TextTable(caption, ["option", "value", "default"], rows, open=False)] if rows else []),
    ]


SECTIONS: Mapping[str, Callable[[Result], Sequence[Part]]] = {
    "What each site should do": verdict_parts,
    "Who is in which cluster": cluster_tables,
    "Who is like whom": matrix_pictures,
    "Failures, outliers and attacks": trouble_tables,
    "Configuration": _configuration,
}
"""By heading; one without parts is left out."""


def differing_options(results: Sequence[Result]) -> TextTable | None:
    """Return the options in which results differ, a column for each result."""
    keys = dict.fromkeys(key for result in results for key in result.config)
    values = {key: [_value(result.config.get(key, "")) for result in results] for key in keys}
    rows = [
        [key, *each] for key, each in values.items() if key != "output-dir" and len(set(each)) > 1
    ]
    names = [result.name for result in results]
    caption = "Options in which the runs differ"
    return TextTable(caption, ["option", *names], rows) if rows else None


def _value(value: Any) -> str:
    return "(empty)" if value == "" else typed(value)
