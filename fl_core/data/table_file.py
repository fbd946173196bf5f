"""One site's table, a CSV or Parquet file: its columns as numbers and texts, or a refusal."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.data.folders import site_of
from fl_core.data.preparation import Columns
from fl_core.data.settings import A_NUMBER, BY_VALUES, TABLES
from fl_core.extras import load_extra, need_extra
from fl_core.text import composed, one_line, printable

LABELS = ("label", "target", "class")
"""What the column of labels may be called where no option names it."""
SPLIT = "split"
"""The column that says which rows are for testing, if there is one."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_TRUTH = {"TRUE": "True", "true": "True", "FALSE": "False", "false": "False"}
_MISSING = (  # as pandas reads them, but for blanks around
    *("", "NA", "<NA>", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
_TESTED = 5  # one of so many rows, the last ones
_NEEDS = f'dataset="{TABLES}"'
_NAMES_FIRST = "the first line of a CSV file has to hold the columns' names"

# Refusals show no cell, and no line of a file that may lack names: a device sends them to the
# server.


class Table(NamedTuple):
    """One site's rows.

    Attributes
    ----------
    site : str
        The file's name without its ending.
    columns : pandas.DataFrame
        The n rows, columns sorted by name: float32, or texts.
    label : str
        The column of labels.
    labels : NDArray, shape (n,)
        The names of classes; or numbers to predict, float32.
    is_test : NDArray[np.bool_], shape (n,)
    is_in_time : bool
        Whether the order of rows says which ones test, instead of a column.
    """

    site: str
    columns: Any
    label: str
    labels: NDArray[Any]
    is_test: NDArray[np.bool_]
    is_in_time: bool


def kinds_of(columns: Any) -> Columns:
    """Return what each column of a data frame holds."""
    return {
        name: () if own.dtype == np.float32 else tuple(sorted(own.unique()))
        for name, own in columns.items()
    }


def read_table(path: Path, label: str = "", target: str = BY_VALUES) -> Table:
    """Read a site's CSV file (commas, UTF-8) or Parquet file.

    Rows count from 1, below the names of columns. Those whose column `split` says test are for
    testing; without such a column, these are the last fifth, in the file's order, which may be
    time's.

    Parameters
    ----------
    path : Path
    label : str
        The column of labels; by default the one that has a name of `LABELS`.
    target : {"auto", "number"}
        Whether they are numbers to predict if any has a fraction, or in any case.

    Raises
    ------
    ValueError
        If it is no table, has no such column, or something in it cannot be learnt from.
    OSError
        If it cannot be read.
    """
    where = printable(path.name)
    cells = _cells(path)
    label = _label_column(list(cells.columns), composed(label), where)
    columns = _features(cells, {label}, where)
    if columns.empty:
        raise ValueError(
            f"{where} has no column beside {label}: those from which to tell it are missing."
        )
    labels = _labels(cells[label], f"{where}: column {printable(label)}", target)
    is_test = _is_test(cells, label, where)
    return Table(site_of(path), columns, label, labels, is_test, SPLIT not in cells)


def read_features(path: Path, ignored: Collection[str]) -> Any:
    """Return a table's columns as `Table.columns`, without some that are not looked at.

    Raises
    ------
    ValueError, OSError
        As `read_table`, but for what is wrong with a label.
    """
    return _features(_cells(path), ignored, printable(path.name))


def _cells(path: Path) -> Any:
    """Return a file's content as a data frame with rows, and columns that differ.

    Of CSV, all are texts, and numbers are made of them later (`_values`): pandas would also make
    truth values of them, at one site and not at the next.
    """
    pandas = load_extra("pandas", _NEEDS)
    where = printable(path.name)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: name a CSV or Parquet file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # lost cells
            frame = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except (ValueError, OSError, pandas.errors.ParserWarning) as error:
        if isinstance(error, OSError) and error.filename:
            raise
        why = one_line(str(error), 200).rstrip(". ")
        raise ValueError(
            f"{where} is no table that can be read ({why}): write it as CSV with commas, numbers "
            "with a point, in UTF-8, with the columns' names in its first line, or as Parquet."
        ) from error
    names = [composed(name) for name in frame.columns]
    if len(names) == 1 and any(sign in names[0] for sign in ";\t"):
        raise ValueError(
            f"{where} has one column: separate cells by commas, not by semicolons or tabs, and "
            "write numbers with a point."
        )
    for position, name in enumerate(names):
        if not name or name in names[:position]:
            wrong = "two columns of one name" if name else "a column without a name"
            raise ValueError(
                f"{where} has {wrong}, column {position + 1}: rename it, or leave it out (an index "
                "of pandas, by index=False)."
            )
    if frame.empty:
        raise ValueError(f"{where} has no rows: fill it, or leave the site out.")
    return frame.set_axis(names, axis=1)


def _parquet(path: Path) -> Any:
    need_extra("pyarrow", f"{path.name}, a Parquet file,", "write it as CSV")
    frame = load_extra("pandas", _NEEDS).read_parquet(path, engine="pyarrow")
    index = [name for name in frame.index.names if name is not None]
    return frame.reset_index(index, allow_duplicates=True) if index else frame


def _csv(path: Path) -> Any:
    cells = load_extra("pandas", _NEEDS).read_csv(
        path,
        header=None,  # pandas would rename columns of one name
        dtype=str,
        encoding="utf-8-sig",
        skipinitialspace=True,  # a blank before a quote would hide it
        keep_default_na=False,
    )
    return cells.iloc[1:].reset_index(drop=True).set_axis(cells.iloc[0].tolist(), axis=1)


def _label_column(names: list[str], label: str, where: str) -> str:
    if label:
        if label not in names:
            raise ValueError(
                f'label is "{printable(label)}", but {where} has no such column: {_NAMES_FIRST}, '
                "this one, too, in the same letters, capital or small."
            )
        return label
    found = [name for name in names if name in LABELS]
    if len(found) != 1:
        has = f"the columns {' and '.join(found)}" if found else f"no column {' or '.join(LABELS)}"
        raise ValueError(
            f"{where} has {has}: {_NAMES_FIRST}, and label=COLUMN says which one holds the label."
        )
    return found[0]


def _features(cells: Any, ignored: Collection[str], where: str) -> Any:
    found = {}
    for name in sorted(set(cells.columns) - {*ignored, SPLIT}):
        what = f"{where}: column {printable(name)}"
        values = _values(cells[name], what)
        dates = values.dtype == object and [*filter(_DATE.fullmatch, set(values.tolist()))]
        if dates:
            raise ValueError(
                f"{what} has a date in row {_first(np.isin(values, dates))}, but columns hold "
                "numbers or categories: write a number, such as days since a day, or leave it out "
                "at all sites."
            )
        found[name] = values if values.dtype == object else values.astype(np.float32)
    return load_extra("pandas", _NEEDS).DataFrame(found)


def _values(column: Any, what: str) -> NDArray[Any]:
    """Return a column's values: numbers as float64, if all cells are such, or else texts."""
    pandas = load_extra("pandas", _NEEDS)
    types = pandas.api.types
    texts: NDArray[Any] | None = None
    if types.is_bool_dtype(column.dtype) or not types.is_numeric_dtype(column.dtype):
        texts = _texts(column, what)
        column = pandas.to_numeric(pandas.Series(texts), errors="coerce")
    missing = column.isna().to_numpy() if texts is None else np.isin(texts, _MISSING)
    if missing.any():
        more = f" and {missing.sum() - 1:,} more" if missing.sum() > 1 else ""
        raise ValueError(
            f"{what} has no value in row {_first(missing)}{more} (an empty cell, or a word such as "
            "NA or None): fill it in, or leave the row or the column out."
        )
    is_text = column.isna().to_numpy()
    if texts is not None and is_text.any():
        if any(map(_seems_number, set(texts.tolist()))):
            raise ValueError(
                f"{what} seems to have numbers, but a text in row {_first(is_text)}: write all "
                "cells as numbers, with a point and no other signs, or none, such as c1 for 1."
            )
        return texts
    numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64)
    with np.errstate(over="ignore"):
        infinite = ~np.isfinite(numbers.astype(np.float32))
    if infinite.any():
        raise ValueError(
            f"{what} has a number in row {_first(infinite)} that is not finite, below 3e38: "
            "correct it, or leave the row or the column out."
        )
    return numbers


def _texts(column: Any, what: str) -> NDArray[Any]:
    """Return cells as texts, of which truth values have one spelling; empty where there is none."""
    cells = column.astype(object).where(column.notna(), "").tolist()
    other = next((one for one in cells if not isinstance(one, str | bool | np.bool_)), None)
    if other is not None:
        kind = type(other).__name__ if column.dtype == object else column.dtype
        raise ValueError(
            f"{what} holds neither numbers nor texts, but {kind}: write it as one of them, or "
            "leave it out at all sites."
        )
    texts = [composed(one) for one in cells]
    return np.array([_TRUTH.get(text, text) for text in texts], dtype=object)


def _seems_number(text: str) -> bool:
    """Return whether a text is a number, but for a comma or a percent sign."""
    try:
        float(text.replace(",", ".").removesuffix("%"))
    except ValueError:
        return False
    return "_" not in text


def _first(rows: NDArray[np.bool_]) -> int:
    return int(np.argmax(rows)) + 1


def _labels(column: Any, what: str, target: str) -> NDArray[Any]:
    """Return names of classes, or float32 numbers to predict."""
    values = _values(column, what)
    if values.dtype == object:
        if target == A_NUMBER:
            raise ValueError(
                f'{what} has texts, but target is "{target}": write numbers, name another column '
                "by label, or leave target at auto."
            )
        return values
    if target == A_NUMBER or (values != np.round(values)).any():
        return values.astype(np.float32)
    # Of the cells themselves, which are exact at any size; 1.0 is how some programs write 1.
    names = [re.sub(r"\.0*$", "", composed(cell)) for cell in column.tolist()]
    is_code = np.array([not are_whole([name]) for name in names])
    if is_code.any():
        raise ValueError(
            f"{what} has a whole number in row {_first(is_code)} that is written as a code, such "
            "as 01, or with an exponent: write plain numbers, or codes that begin with a letter."
        )
    return np.array(names, dtype=object)


def are_whole(names: Iterable[str]) -> bool:
    """Return whether all names of classes are whole numbers, and no codes such as 01."""
    return all(map(_WHOLE.fullmatch, names))


def as_numbers(labels: NDArray[Any]) -> NDArray[np.float32]:
    """Return labels as numbers to predict.

    Raises
    ------
    ValueError
        If they are names of classes that are no whole numbers.
    """
    if labels.dtype == object and not are_whole(set(labels.tolist())):
        raise ValueError("some labels are no numbers")
    return labels.astype(np.float32)


def _is_test(cells: Any, label: str, where: str) -> NDArray[np.bool_]:
    count, parts = len(cells), ("train", "test")
    if SPLIT in cells:
        words = _values(cells[SPLIT], f"{where}: column {SPLIT}")
        unknown = ~np.isin(words, parts)
        if unknown.any():
            raise ValueError(
                f"{where}: column {SPLIT} has another word in row {_first(unknown)}, but it says "
                "train or test of each row: correct it, or rename the column."
            )
        is_test: NDArray[np.bool_] = words == "test"
    else:
        for name in cells.columns:
            if name.casefold() == SPLIT and name != label:
                raise ValueError(
                    f"{where} has the column {printable(name)}, but {SPLIT}, which says of each "
                    "row whether it trains or tests, has to be written in small letters: rename it."
                )
        is_test = np.arange(count) >= count - max(1, round(count / _TESTED))
    if is_test.all() or not is_test.any():
        missing = "training" if is_test.all() else "testing"
        raise ValueError(
            f"{where} has {count} row{'' if count == 1 else 's'} and none for {missing}, but each "
            f"site needs some of both: add rows, or a column {SPLIT} with train and test."
        )
    return is_test
