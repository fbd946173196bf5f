"""What others wrote is safe in terminals, tables, CSV files and pictures."""

from pathlib import Path

import numpy as np
import pytest

from fl_app.config.run_config import parse_config
from fl_app.report.pictures import labels_figure, save, similarity_figure
from fl_app.report.pictures.figure import shorten
from fl_app.report.text_table import TextTable, render
from fl_app.run.log import COURSE
from fl_app.run.progress import Progress
from fl_core.agreement.agreement import Agreement
from fl_core.text import (
    csv_cell,
    note_on_spellings,
    one_line,
    printable,
    similar_names,
)
from strategies import ClientRegistry, RoundReport
from tests.app_runs import DEFAULTS

ODD = ("\x1b[2J", "\u202eevil", "line\nbreak", "\udcff", "\u2028", "\x9b31m")


@pytest.mark.parametrize("text", ODD)
def test_nothing_passes_that_a_terminal_would_obey(text):
    for cleaned in (printable(text), one_line(text), csv_cell(text), shorten(text, 50)):
        assert cleaned.isprintable()


@pytest.mark.parametrize(
    ("names", "are_alike"),
    [
        (("Yes", "yes"), True),
        (("cat_1", "cat 1"), True),
        (("night - shift", "Nightshift"), True),
        (("-1", "1"), False),
        (("A", "A+"), False),
        (("A+", "A-"), False),
        (("1-2", "12"), False),
        (("_", " "), False),
        (("<=50K", "<=50K."), True),
        (("Straße", "STRASSE"), True),
        (("İzmir", "izmir"), True),
        (("IĞDIR", "ığdır"), True),
        (("café", "cafe\u0301"), True),
        (("café", "cafe"), True),
        (("BERN", "\u0412\u0415R\u039d"), True),  # Cyrillic V and E, Greek N
        (("Мужской", "мужской"), True),
        (("\uff21\uff22", "ab"), True),  # full width
        (("a\u200bb", "ab"), True),
        (("A\u2013B", "A-B"), True),
        (("男", "女"), False),
        (("की", "का"), False),  # Hindi vowels are marks
        (("µg", "mg"), False),
    ],
)
def test_names_that_differ_in_how_words_are_joined_are_alike(names, are_alike):
    assert similar_names(names) == ([list(names)] if are_alike else [])


def test_the_note_on_spellings_shows_which_letters_differ():
    note = note_on_spellings("the classes", ["Мужской", "cat", "c\u0430t", "мужской"])
    assert "'Мужской', 'мужской'; 'cat', 'c\\u0430t' count" in note
    assert note.endswith("column.replace({'мужской': 'Мужской', 'c\\u0430t': 'cat'})")


def test_the_note_on_spellings_of_thousands_of_variants_is_short():
    variants = ["a" + " " * number + "b" for number in range(1000)]
    note = note_on_spellings("the classes", variants, "by {}")
    assert "and 995 more count as" in note
    assert note.endswith(" and 979 more}")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_begins_like_a_formula(text):
    assert csv_cell(text).startswith("'")


def test_tables_show_names_that_look_like_markup():
    table = TextTable("clients", ["client"], [["[red]x[/red] :bomb:"]])
    assert "[red]x[/red] :bomb:" in render(table)


def test_agreed_classes_are_announced_without_hidden_marks(caplog):
    agreed = Agreement(("cat", "dog\u202e"), (1, 28, 28))
    caplog.set_level(COURSE, "fedkin")
    Progress().show_plan(parse_config(DEFAULTS), ["site"], 1, agreed, Path("results"))
    assert r"cat, dog\u202e" in caplog.text


@pytest.mark.parametrize(
    ("tested", "clients"),
    [({0: 0.5, 1: 1.0}, " over clients  "), ({0: 0.5}, " over 1 of 2 clients  ")],
)
def test_a_line_says_of_how_many_clients_its_mean_is(tested, clients, caplog):
    report = RoundReport(1, 1, scores={"accuracy": tested}, clusters={0: 0, 1: 0})
    caplog.set_level(COURSE, "fedkin")
    progress = Progress()
    progress.begin_run("single", 0, 0, 1)
    progress.after_round(report, ClientRegistry())
    assert clients in caplog.text


@pytest.mark.parametrize("name", ["$a_$", "$", "]]><b>&amp;", *ODD])
def test_pictures_take_any_name(tmp_path, name):
    """No formula is read, and no glyph is missing, which would be a warning."""
    counts = np.ones((2, 2), np.int64)
    save(labels_figure(counts, [0, 1], [name, "b"]), tmp_path / "labels.png")
    merges = np.array([[0, 1, 0.5, 2]])
    names = {"task_names": [name, "b"], "client_names": [name, "b"]}
    figure = similarity_figure(np.eye(2), merges, [0, 1], [0, 1], **names)
    save(figure, tmp_path / "similarity.png")
