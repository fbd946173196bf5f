"""The contents of a report on one result: its sections and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fl_app.report.matrices import TitledPicture, matrix_pictures
from fl_app.report.sections import cluster_tables, cost_tables, trouble_tables
from fl_app.report.sentences import changed_options, command
from fl_app.report.text_table import TextTable
from fl_app.report.verdict_section import verdict_parts
from fl_app.results.reading import Result
from fl_core.options import typed
from fl_core.text import listed

_MOST_COLUMNS = 200  # summary.json and grouping.json have all
MOST_PICTURES = 8  # of a section

Part = TextTable | str | Callable[[], TitledPicture]
"""A table, a sentence, or a picture, which is drawn if the page has room for it."""

SECTIONS: Mapping[str, Callable[[Result], Sequence[Part]]] = {
    "What each site should do": verdict_parts,
    "Who is in which cluster": cluster_tables,
    "Who is like whom": matrix_pictures,
    "Failures, outliers and attacks": trouble_tables,
    "Bytes and seconds": cost_tables,
}
"""By heading; one without parts is left out."""


@dataclass
class Content:
    """The contents of a page on one result."""

    name: str
    sections: dict[str, list[TextTable | str | TitledPicture]]
    changed: TextTable
    options: TextTable
    command: str
    versions: TextTable
    privacy: TextTable
    columns: str


def content_of(result: Result, most_pictures: int = MOST_PICTURES) -> Content:
    """Return the contents of a page, with at most so many pictures in each section."""
    changed, grouping = changed_options(result.config), result.grouping
    sections = {heading: parts_of(result) for heading, parts_of in SECTIONS.items()}
    return Content(
        name=result.name,
        sections={
            heading: _drawn(parts, most_pictures) for heading, parts in sections.items() if parts
        },
        changed=TextTable(
            "Options with another value than their default",
            ["option", "value", "default"],
            [[key, _value(value), _value(default)] for key, (value, default) in changed.items()],
        ),
        options=TextTable(
            f"All {len(result.config)} options",
            ["option", "value"],
            [[key, _value(value)] for key, value in result.config.items()],
            open=False,
        ),
        command=command(result.config) if result.config else grouping.command if grouping else "",
        versions=TextTable(
            "Software that made these results",
            ["software", "version"],
            [[name, version] for name, version in result.versions.items()],
            open=False,
        ),
        privacy=TextTable(
            f"Differential privacy spent, for one {result.sample} of one client",
            ["what", "value"],
            [[name, f"{value:g}"] for name, value in result.privacy.items()],
            {1},
        ),
        columns=listed(result.columns, _MOST_COLUMNS, ", "),
    )


def _drawn(parts: Sequence[Part], most: int) -> list[TextTable | str | TitledPicture]:
    """Draw at most so many pictures, and add a sentence on those that are left out."""
    left_out = [part for part in parts if callable(part)][most:]
    found = [part() if callable(part) else part for part in parts if part not in left_out]
    return (
        [*found, f"Left out for room: {len(left_out)}. The folder has them."] if left_out else found
    )


def differing_options(results: Sequence[Result]) -> TextTable | None:
    """Return the options in which results differ, a column for each result."""
    keys = dict.fromkeys(key for result in results for key in result.config)
    rows = [
        [key, *(_value(result.config.get(key, "")) for result in results)]
        for key in keys
        if key != "output-dir" and len({_value(one.config.get(key, "")) for one in results}) > 1
    ]
    if not rows:
        return None
    names = [result.name for result in results]
    return TextTable("Options in which the runs differ", ["option", *names], rows)


def _value(value: Any) -> str:
    return "(empty)" if value == "" else typed(value)
