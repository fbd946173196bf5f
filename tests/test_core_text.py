import pytest
from rich.table import Table

from fl_app.report.pictures.figure import short_name
from fl_app.report.tables import render
from fl_core.text import csv_cell, one_line, printable

ODD = ("\x1b[2J", "\u202eevil", "line\nbreak", "\udcff", "\u2028", "\x9b31m")


@pytest.mark.parametrize("text", ODD)
def test_nothing_passes_that_a_terminal_would_obey(text):
    for cleaned in (printable(text), one_line(text), csv_cell(text), short_name(text, 50)):
        assert cleaned.isprintable()


def test_text_that_is_text_stays_as_it_is():
    assert printable("Zoë [red] :bomb: <b> 猫") == "Zoë [red] :bomb: <b> 猫"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_begins_like_a_formula(text):
    assert csv_cell(text).startswith("'")


def test_tables_show_names_that_look_like_markup():
    table = Table("client")
    table.add_row("[red]x[/red] :bomb:")
    assert "[red]x[/red] :bomb:" in render(table)
