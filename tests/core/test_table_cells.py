"""Cells of tables: what is a number, what a text, and that no other site changes how it is spelled.

Beside them, the notes on tables that can be read but may not say what they seem to.
"""

import pandas as pd
import pytest

from fl_core.data.datasets import load_dataset
from fl_core.data.table_file import read_features, read_table


def of(header, *rows):
    return "\n".join((header, *rows)) + "\n"


def written(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def read(folder, label):
    return load_dataset("tables", str(folder), label=label)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_truth_has_one_spelling_at_all_sites(ending, tmp_path):
    for site, smokes in (("a", ["TRUE", "FALSE"]), ("b", ["true", "UNKNOWN"])):
        frame = pd.DataFrame({"smokes": smokes * 2, "label": ["false", "True"] * 2})
        path = tmp_path / f"{site}.{ending}"
        frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    data = read(tmp_path, "")
    assert data.column_names == ("smokes=False", "smokes=True", "smokes=UNKNOWN")
    assert data.class_names == ("False", "True")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["+1", " 2 ", ".5", "1e3", "4."], [1, 2, 0.5, 1000, 4]),
        (["1_000", "2_000"], None),
        (["1 000", "2 000"], None),
        (["0x10", "0x11"], None),
        (["1-2", "3-4"], None),
        (["low", "high"], None),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_has_numbers_if_all_its_cells_are_such(cells, numbers, ending, tmp_path):
    frame, path = pd.DataFrame({"x": cells}), tmp_path / f"a.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    values = read_features(path, ())["x"].tolist()
    assert values == (cells if numbers is None else numbers)


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        (["2", "1_000"], 2),
        (["1 000", "2"], 1),
        (["2", "3", "0x10"], 3),
        (["2", "1,5"], 2),
        (["1,5", "2,5"], 1),
        (["10%", "20 %"], 1),
        (["2", "True"], 2),
        (["1-2", "5"], 1),
        (["1", "2", "?"], 3),
    ],
)
def test_texts_among_which_some_seem_to_be_numbers_are_refused(cells, row, tmp_path):
    folder = written(tmp_path, a=of("x", *(f'"{cell}"' for cell in cells)))
    said = rf"^a\.csv: column x seems to have numbers, but a text in row {row}: write all cells as"
    with pytest.raises(ValueError, match=said) as error:
        read_features(folder / "a.csv", ())
    assert not any(cell in str(error.value) for cell in cells if len(cell) > 2)
    written(tmp_path, a=of("x,y", *(f'"{cell}",1' for cell in cells)))
    with pytest.raises(ValueError, match=said):  # nor are they classes
        read_table(folder / "a.csv", "x")


@pytest.mark.parametrize("code", ["01", "1e3", "+1", "-0"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_whole_labels_that_may_be_codes_are_refused(code, ending, tmp_path):
    frame, path = pd.DataFrame({"x": [1, 2], "y": ["7", code]}), tmp_path / f"a.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    said = rf"^a\.{ending}: column y has a whole number in row 2 that is written as a code"
    with pytest.raises(ValueError, match=said):
        read_table(path, "y")
    assert read_table(path, "y", "number").labels.tolist() == [7, float(code)]


@pytest.mark.parametrize("labels", [("yes", "no"), ("True", "False"), ("c1", "c0")])
def test_whole_labels_and_texts_do_not_go_together(labels, tmp_path):
    texts = of("x,y", *(f"1,{label}" for label in labels))
    said = "^column y has whole numbers in b, but texts in a: write numbers, or"
    with pytest.raises(ValueError, match=said):
        read(written(tmp_path, a=texts, b=of("x,y", "1,7", "1,8")), "y")


def test_whole_labels_are_exact(tmp_path):
    labels = ["9007199254740993", "9007199254740992", "-1.0", "0"]
    table = read_table(
        written(tmp_path, a=of("x,label", *(f"1,{one}" for one in labels))) / "a.csv"
    )
    assert table.labels.tolist() == ["9007199254740993", "9007199254740992", "-1", "0"]
    stored = pd.DataFrame({"x": [1, 2], "label": [2**60, 2**60 + 1]})
    stored.to_parquet(tmp_path / "b.parquet")
    assert read_table(tmp_path / "b.parquet").labels.tolist() == [str(2**60), str(2**60 + 1)]


@pytest.mark.parametrize("date", ["2024-01-31", "2024-01-31 10:00", "2024-01-31T10:00:00Z"])
def test_dates_are_refused_as_texts_too(date, tmp_path):
    folder = written(tmp_path, a=of("seen,label", "never,0", f"{date},1"))
    said = r"^a\.csv: column seen has a date in row 2, but columns hold numbers or categories: wri"
    with pytest.raises(ValueError, match=said) as error:
        read_table(folder / "a.csv")
    assert "2024" not in str(error.value)
    assert read_table(folder / "a.csv", "seen").labels.tolist() == ["never", date]


@pytest.mark.parametrize(
    "dates",
    [
        ("31/01/2024", "01/02/2024"),
        ("31.01.2024", "1.2.2024"),
        ("2024-1-5", "2024-1-6"),
        ("31-Jan-2024", "1-Feb-2024"),
        ("08:15", "23:59"),
        ("2024Q1", "2023Q4"),
        ("20240131", "20240201"),
        ("2024-01-31 10:00+01:00", "2024-01-31 10:00Z"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_dates_are_refused_however_they_are_written(dates, ending, tmp_path):
    frame, path = pd.DataFrame({"x": [*dates] * 20, "label": ["a", "b"] * 20}), tmp_path / "a"
    path = path.with_suffix(f".{ending}")
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=rf"^a\.{ending}: column x has a date in row 1, but col"):
        read_table(path)


@pytest.mark.parametrize(
    "texts",
    [
        ("Mon", "Tue"),
        ("may", "june"),
        ("1st", "2nd"),
        ("1-2", "10-20"),
        ("18-25", "1000-2000"),
        ("120/80", "6/6"),
        ("T1N0", "12A"),
        ("<=50K", "A+"),
        ("08:15", "never"),
    ],
)
def test_categories_that_pandas_could_take_for_dates_are_none(texts, tmp_path):
    folder = written(tmp_path, a=of("x", *texts))
    assert read_features(folder / "a.csv", ())["x"].tolist() == [*texts]


def test_an_index_with_a_name_is_a_column(tmp_path):
    frame = pd.DataFrame({"age": [40, 50], "x": [1, 2], "label": ["a", "b"]})
    frame.set_index("age").to_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").columns["age"].tolist() == [40, 50]
    frame.set_index("age", drop=False).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"^b\.parquet has two columns of one name, col"):
        read_table(tmp_path / "b.parquet")


@pytest.mark.parametrize("sign", [";", "\t"])
@pytest.mark.parametrize("label", ["", "label"])
def test_other_signs_than_commas_are_refused(sign, label, tmp_path):
    text = of("x,label", "1,0", "2,1").replace(",", sign)
    with pytest.raises(ValueError, match=r"^a\.csv has one column: separate cells by commas, not"):
        read_table(written(tmp_path, a=text) / "a.csv", label)
    # As spreadsheets write decimals where a comma is the point: pandas finds too many cells.
    text = of("x,label", "1,5,0", "2,5,1").replace(",label", f"{sign}label")
    with pytest.raises(ValueError, match=r"^a\.csv cannot be read as a table .* with commas"):
        read_table(written(tmp_path, a=text) / "a.csv", label)


# ------------------------------------------------------------------------------------------ notes

BOTH = ("1,a", "2,b", "3,a", "4,b")


@pytest.mark.parametrize(
    "pair", [("<=50K", "<=50K."), ("Male", "male"), ("no  work", "no work"), ("STRASSE", "Straße")]
)
def test_spellings_of_classes_and_categories_are_noted_with_what_maps_them(pair, tmp_path):
    one, other = (of("x,c,label", f"1,{c},{c}", f"2,u,v{c}", f"3,{c},{c}") for c in pair)
    data = read(written(tmp_path, a=one, b=other), "")
    said = f"{pair[0]!r}, {pair[1]!r}"
    replaced = f"in pandas by column.replace({{{pair[1]!r}: {pair[0]!r}"
    category = next(note for note in data.notes if note.startswith("the values of column c: "))
    classes = next(note for note in data.notes if note.startswith("the classes "))
    for note in (category, classes):
        assert said in note
        assert replaced in note


def test_test_rows_that_training_rows_repeat_are_counted(tmp_path):
    rows = [f"{i}.5,u,{'ab'[i % 2]}" for i in range(8)]
    one = of("x,c,label", *rows, rows[0], "0.5,u,b")  # other labels are no copies
    other = of("c,label,x", *(f"u,a,{i}.25" for i in range(4)), "u,b,1.5")  # nor other sites'
    assert read(written(tmp_path, a=one, b=other), "").notes == (
        "2 of 3 test rows are copies of training rows, so that a model may have learnt their "
        "labels: remove rows that occur twice",
    )


@pytest.mark.parametrize(
    ("cell", "is_noted"),
    [("{i}", True), ("p{i}", True), ("{i}.5", False), ("{half}", False), ("c{half}", False)],
)
def test_columns_of_a_different_value_in_each_row_are_named(cell, is_noted, tmp_path):
    def site(first):
        cells = (cell.format(i=i, half=i // 2) for i in range(first, first + 12))
        return of("x,y,label", *(f"{one},{i}.5,{'ab'[i % 2]}" for i, one in enumerate(cells)))

    notes = read(written(tmp_path, a=site(0), b=site(12)), "").notes
    said = "column x has a different value in nearly each row: if it is an identifier, leave"
    assert [note for note in notes if note.startswith(said)] == [*notes][:is_noted]


def test_training_rows_are_in_time_where_the_last_rows_test(tmp_path):
    text = of("x,label", *BOTH)
    last = of("x,label,split", "5,a,train", "6,b,train", "7,a,test", "8,a,test")
    mixed = of("x,label,split", "0,a,test", "9,b,train", "10,b,test")
    data = read(written(tmp_path, a=text, b=last, c=mixed), "")
    assert data.given_partition.in_time == {0, 1}
    assert data.notes == (
        "column split has test rows before training rows in c, so rows that validate are drawn at "
        "random: if rows are in order of time, let the last ones test",
    )


def test_a_blank_after_a_comma_belongs_to_no_cell(tmp_path):
    spaced = of('c, x,  "label"', '"u, v", 1, "a"', 'w, 2, "b, c"', "w, 3,a")
    tight = of("c,x,label", '"u, v",1,a', 'w,2,"b, c"', "w,3,a")
    data = read(written(tmp_path, spaced=spaced, tight=tight), "")
    assert data.column_names == ("c=u, v", "c=w", "x")
    assert data.class_names == ("a", "b, c")
    assert data.train_samples.tolist() == [[1, 0, 1], [0, 1, 2]] * 2
    folder = written(tmp_path, spaced=of("c, label", "u, a", " NA, b", "w, a"))
    with pytest.raises(ValueError, match="column c has no value in row 2"):
        read_features(folder / "spaced.csv", ())
