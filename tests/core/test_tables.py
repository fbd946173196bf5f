"""Tables in CSV and Parquet files: what is read, what is agreed, and every refusal."""

import re
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fl_core.agreement.agreement import Agreement
from fl_core.agreement.local_data import read_local_table
from fl_core.data import datasets
from fl_core.data.datasets import load_dataset
from fl_core.data.preparation import Preparation
from fl_core.data.table_file import read_table
from fl_core.data.tables import read_prepared_rows
from fl_core.partitions.federation import spread
from fl_core.partitions.settings import FederationSettings

BERLIN = """age [years],colour,smokes,outcome
40,red,True,ill
50,blue,False,well
60,red,True,ill
70,red,False,well
30,blue,False,ill
"""
OSLO = """outcome,smokes,age [years],colour
well,False,20,green
ill,True,80,red
"""


def written(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def read(folder, label="outcome"):
    return load_dataset("tables", str(folder), label=label)


def test_each_file_is_a_site_with_its_rows(tmp_path):
    data = read(written(tmp_path, oslo=OSLO, berlin=BERLIN))
    assert data.given_partition.names == ("berlin", "oslo")
    assert (data.given_partition.train, data.given_partition.test, data.given_partition.tasks) == (
        (4, 1),
        (1, 1),
        None,
    )
    assert data.class_names == ("ill", "well")
    assert data.column_names == (
        "age [years]",
        *("colour=blue", "colour=green", "colour=red"),
        *("smokes=False", "smokes=True"),
    )
    assert data.train_samples.tolist() == [
        [40, 0, 0, 1, 0, 1],
        [50, 1, 0, 0, 1, 0],
        [60, 0, 0, 1, 0, 1],
        [70, 0, 0, 1, 1, 0],
        [20, 0, 1, 0, 1, 0],
    ]
    assert data.train_labels.tolist() == [0, 1, 0, 1, 1]
    assert data.test_samples.tolist() == [[30, 1, 0, 0, 1, 0], [80, 0, 0, 1, 0, 1]]
    assert data.test_labels.tolist() == [0, 0]
    federation = spread(FederationSettings(dataset="tables", num_clients=2, seed=0), data)
    assert federation.training_data(1)[0].tolist() == [[20, 0, 1, 0, 1, 0]]
    assert not federation.knows_tasks


def test_csv_and_parquet_give_the_same_data(tmp_path):
    csv, parquet = tmp_path / "csv", tmp_path / "parquet"
    csv.mkdir()
    parquet.mkdir()
    written(csv, berlin=BERLIN, oslo=OSLO)
    for path in csv.iterdir():
        pd.read_csv(path).to_parquet(parquet / f"{path.stem}.parquet")
    assert read(csv).checksum() == read(parquet).checksum()
    assert read(csv).column_names == read(parquet).column_names


@pytest.mark.parametrize(("count", "tested"), [(2, 1), (5, 1), (7, 1), (8, 2), (10, 2), (99, 20)])
def test_the_last_fifth_is_for_testing(count, tested, tmp_path):
    rows = "\n".join(f"{i},{i % 2}" for i in range(count))
    table = read_table(written(tmp_path, a=f"x,label\n{rows}\n") / "a.csv")
    assert table.columns["x"][table.is_test].tolist() == list(range(count))[-tested:]


def test_a_column_may_say_which_rows_are_for_testing(tmp_path):
    text = "split,x,label\ntest,1,a\ntrain,2,b\ntest,3,b\n"
    table = read_table(written(tmp_path, a=text) / "a.csv")
    assert table.is_test.tolist() == [True, False, True]
    assert list(table.columns) == ["x"]


@pytest.mark.parametrize("name", ["label", "target", "class"])
def test_a_label_with_a_usual_name_need_not_be_named(name, tmp_path):
    table = read_table(written(tmp_path, a=f"x,{name}\n1,7\n2,8\n") / "a.csv")
    assert table.labels.tolist() == ["7", "8"]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (("10", "9", "-1", "9"), ("-1", "9", "10")),
        (("1.0", "0.0", "1.0", "1.0"), ("0", "1")),
        (("True", "False", "True", "True"), ("False", "True")),
    ],
)
def test_classes_have_names_in_order(labels, names, tmp_path):
    one, two = ("x,y\n" + "".join(f"1,{label}\n" for label in labels[i : i + 2]) for i in (0, 2))
    assert read(written(tmp_path, a=one, b=two), "y").class_names == names


def test_what_spreadsheets_write_is_read(tmp_path):
    text = "\ufeffx, label\r\n1, Zoe\u0308\r\n\r\n2,b\r\n"
    table = read_table(written(tmp_path, a=text) / "a.csv")
    assert table.labels.tolist() == ["Zo\u00eb", "b"]
    assert table.columns["x"].dtype == np.float64


def test_a_label_with_a_fraction_is_a_number_to_predict(tmp_path):
    one, two = "x,price [EUR]\n1,3\n2,4\n", "x,price [EUR]\n1,3.5\n2,-1\n"
    data = read(written(tmp_path, a=one, b=two), "price [EUR]")
    assert data.is_regression
    assert data.class_names == ("price [EUR]",)
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([3, 3.5], [4, -1])


@pytest.mark.parametrize("text", ["low", "10_1"])  # which NumPy takes for 101
def test_labels_are_not_fractions_at_one_site_and_texts_at_another(text, tmp_path):
    folder = written(tmp_path, a=f"x,price\n1,{text}\n2,high\n", b="x,price\n1,3.5\n2,-1\n")
    said = "^column price has fractions in b, but texts in a: write numbers, or classes"
    with pytest.raises(ValueError, match=said):
        read(folder, "price")
    agreement = Agreement(("price",), (1,), True, True, {"x": ()})
    with pytest.raises(ValueError, match=r"^column price of a has texts, but a number to predict"):
        read_local_table(folder / "a.csv", "price", agreement)


def test_whole_numbers_are_to_be_predicted_if_configured(tmp_path):
    folder = written(tmp_path, a="x,visits\n1,3\n2,0\n", b="x,visits\n1,7\n2,3\n")
    assert load_dataset("tables", str(folder), label="visits").class_names == ("0", "3", "7")
    data = load_dataset("tables", str(folder), label="visits", target="number")
    assert data.is_regression
    assert data.class_names == ("visits",)
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([3, 7], [0, 3])
    written(folder, b="x,visits\n1,7\n2,many\n")
    said = r"^b\.csv: column visits seems to have numbers, but a text in row 2: write all cells"
    with pytest.raises(ValueError, match=said):
        load_dataset("tables", str(folder), label="visits", target="number", seed=1, window=11)
    written(folder, b="x,visits\n1,few\n2,many\n")
    said = r"^b\.csv: column visits has texts, but target is \"number\": write numbers"
    with pytest.raises(ValueError, match=said):
        load_dataset("tables", str(folder), label="visits", target="number", seed=1, window=11)


def test_so_many_whole_numbers_that_they_may_be_no_classes_are_noted(tmp_path):
    def notes(count, **how):
        rows = "".join(f"{i + 0.5},{i % count}\n" for i in range(100))
        written(tmp_path, a=f"x,label\n{rows}", b=f"x,label\n{rows}")
        datasets._load.cache_clear()
        return load_dataset("tables", str(tmp_path), **how).notes

    assert notes(20) == notes(21, target="number") == ()
    (note,) = notes(21)
    assert note.startswith("the label has 21 different whole numbers, each of which is a class")
    assert note.endswith("if it is a number to predict, set target=number")


def test_sorted_rows_are_noted(tmp_path):
    text = "x,label\n" + "".join(f"1,{'ab'[i // 4]}\n" for i in range(5))
    (note,) = read(written(tmp_path, a=text, b=text), "").notes
    assert note.startswith("no training row has the label b, which test rows have: if rows are")


HEAD = "x,y,label\n"
GOOD = f"{HEAD}1,u,0\n2,v,1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "b.csv cannot be read as a table (No columns to parse from file): write it as CSV"),
        (HEAD, "b.csv has no rows: fill it"),
        (f"{HEAD}1,u,0\n", "b.csv has 1 row, none of them for training: add"),
        (f"{HEAD}1,u,0\n2,v,1,9\n", "b.csv cannot be read as a table (Error tokenizing data"),
        (f"{HEAD}1,u,0\n2,v\n", "b.csv: column label has no value in row 2 (an empty cell, or a"),
        (f"{HEAD}1,u,0\n,v,1\nNA,v,1\n", "b.csv: column x has no value in row 2 and 1 more (an"),
        (f"{HEAD}1,' ',0\n2,  ,1\n", "b.csv: column y has no value in row 2 ("),
        (f"{HEAD}1,u,0\ninf,v,1\n", "b.csv: column x has a number in row 2 that is not below"),
        (f"{HEAD}1,u,0\n1e39,v,1\n", "b.csv: column x has a number in row 2 that is not"),
        ("x,x,label\n1,u,0\n2,v,1\n", "b.csv has two columns of one name, column 2: rename"),
        (",x,label\n1,u,0\n2,v,1\n", "b.csv has a column without a name, column 1: rename it"),
        ("label\n0\n1\n", "b.csv has no column but label"),
        ("x;y;label\n1;u;0\n", "b.csv has one column: separate cells by commas, not by"),
        ("x,y\n1,u\n", "label is empty, and b.csv has no column label, target or class"),
        (
            "x,target,label\n1,u,0\n",
            "label is empty, and b.csv has the columns target and label",
        ),
        ("x,label\n1,0\n2,1\n", "a has the column y, but b does not, and all sites need"),
        (f"{HEAD}1,3,0\n2,4,1\n", "column y has numbers in b, but texts in a: write"),
        (f"{HEAD}1,u,0\n'2',v,1\n", "b.csv: column x seems to have numbers, but a text in row 2"),
        (
            "split,x,y,label\nval,1,u,0\n",
            "b.csv: column split has another word than train",
        ),
        ("Split,x,y,label\ntest,1,u,0\n", "b.csv has the column Split: rename it"),
        ("split,x,y,label\ntrain,1,u,0\n", "b.csv has 1 row, none of them for testing"),
        (
            HEAD + "".join(f"1,name{i},0\n" for i in range(60)),
            "column y has 62 different texts, most of them in b, but a category has at most 50",
        ),
        (
            HEAD + "".join(f"1,u,{i}\n" for i in range(1002)),
            "the label has 1,002 different values, but at most 1,000 classes are possible",
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_one_sentence(text, message, tmp_path):
    written(tmp_path, a=GOOD, b=text)
    with pytest.raises(ValueError, match="^" + re.escape(message)) as info:
        read(tmp_path, "")
    assert str(info.value).endswith(".")
    assert "\n" not in str(info.value)


def test_other_refusals_are_one_sentence(tmp_path):
    folder = written(tmp_path, a=GOOD, b=GOOD)
    with pytest.raises(
        ValueError, match=r"^label is \"lable\", .* The first line of a CSV file must"
    ):
        read(folder, "lable")
    (tmp_path / "b.csv").unlink()
    dates = pd.DataFrame({"x": pd.to_datetime(["2026-01-01"] * 2), "y": "u", "label": [0, 1]})
    dates.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"^b.parquet: column x holds datetime64"):
        read(folder, "")
    written(tmp_path, b=GOOD)
    with pytest.raises(
        ValueError, match=r"has 'b\.(csv|parquet)' and 'b\.(csv|parquet)', names of"
    ):
        read(folder, "")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    (tmp_path / "b.csv").unlink()
    with pytest.raises(ValueError, match=r"^b.parquet cannot be read as a table \(.*Parquet"):
        read(folder, "")
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "a.csv").write_bytes("x,label\n1,Zoë\n".encode("latin-1"))
    written(tmp_path, b=GOOD)
    with pytest.raises(ValueError, match=r"^a.csv cannot be read as a table \(.*utf-8"):
        read(folder, "")


@pytest.mark.parametrize("value", [Decimal("1.5"), date(2026, 1, 1)])
def test_the_type_of_a_column_of_objects_is_named(value, tmp_path):
    pd.DataFrame({"x": [value] * 2, "label": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    said = f"column x holds {type(value).__name__}, but must hold numbers"
    with pytest.raises(ValueError, match=said):
        read_table(tmp_path / "a.parquet")


def test_all_rows_of_one_class_are_refused(tmp_path):
    text = "x,label\n1,ill\n2,ill\n"
    with pytest.raises(ValueError, match=r'have the label "ill", but at least two classes'):
        read(written(tmp_path, a=text, b=text), "")


def test_folders_of_images_and_of_tables_point_to_each_other(tmp_path):
    with pytest.raises(ValueError, match=r'/no, of dataset "tables", is not a folder: set data-d'):
        read(tmp_path / "no")
    with pytest.raises(
        ValueError, match=r"has 0 tables, files that end in .csv or .parquet, but a"
    ):
        read(tmp_path)
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(ValueError, match=r"set data-dir to their folder\.$"):
        read(tmp_path)
    (tmp_path / "cats").mkdir()
    with pytest.raises(ValueError, match="folder, or dataset=folder if it holds images in class"):
        read(tmp_path)


@pytest.mark.parametrize("label", ["pra\u0308sent", " pr\u00e4sent "])
def test_a_label_is_left_out_of_later_rows_however_it_was_typed(label, tmp_path):
    folder = written(tmp_path, a="x,pr\u00e4sent\n1,u\n2,v\n")
    assert read_prepared_rows(folder / "a.csv", Preparation({"x": ()}, label)).tolist() == [
        [1],
        [2],
    ]


def test_all_files_that_are_not_right_are_named_at_once(tmp_path):
    for number in range(12):
        (tmp_path / f"{number:02}.csv").write_text(f"{HEAD}1,u,0\n,v,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"\A00\.csv: column x has no value in row 2") as error:
        load_dataset("tables", str(tmp_path), label="label")
    lines = str(error.value).splitlines()
    assert [line[:2] for line in lines] == [f"{number:02}" for number in range(12)]
