"""Read one site's table, a CSV or Parquet file: its columns as numbers and texts."""

import re
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.data.folders import site_of
from fl_core.data.preparation import CategoriesByColumn
from fl_core.data.settings import AUTO_TARGET, NUMBER_TARGET, TABLES
from fl_core.extras import load_extra, need_extra
from fl_core.text import one_line, printable, strip_and_compose

LABELS = ("label", "target", "class")
"""The usual names of the column of labels."""
SPLIT = "split"
"""The optional column that says whether a row trains or tests."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_LIKE_A_NUMBER = re.compile(  # but for a comma or a percent sign
    r"[+-]?(\d+[.,]?\d*|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*%?", re.IGNORECASE
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_TRUTH = {"TRUE": "True", "true": "True", "FALSE": "False", "false": "False"}
_MISSING = (  # as pandas reads them, without spaces around
    *("", "NA", "<NA>", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
_TESTED = 5  # one of so many rows tests, the last ones
_TRIED = 100  # texts of a column, to find out whether it has dates
NEARLY_ALL = 0.95  # of texts or rows
_NEEDS = f'dataset="{TABLES}"'

# A message shows no cell, and no line of a file that may lack names: devices send it to the server.


class Table(NamedTuple):
    """One site's rows."""

    site: str  # the file's name without its ending
    columns: Any  # a data frame of n rows, columns sorted by name: float64, or texts
    label: str  # the column of labels
    labels: NDArray[Any]  # (n,): names of classes; or numbers to predict, float64
    is_test: NDArray[np.bool_]  # (n,)
    is_in_time: bool  # the last rows test, so that training rows may be in order of time


def category_values(columns: Any) -> CategoriesByColumn:
    """Return the values of each category of a data frame, and nothing for columns of numbers."""
    return {
        name: () if values.dtype == np.float64 else tuple(sorted(values.unique()))
        for name, values in columns.items()
    }


def read_table(path: Path, label: str = "", target: str = AUTO_TARGET) -> Table:
    """Read a site's CSV file (commas, UTF-8) or Parquet file.

    The column `split` says which rows test; without it, the last fifth does. Messages count rows
    from 1. `label` is the column of labels, by default one of `LABELS`; they are numbers to predict
    if any has a fraction, or if `target` is "number".
    """
    where = printable(path.name)
    cells = _cells(path)
    label = _label_column(list(cells.columns), strip_and_compose(label), where)
    columns = _features(cells, {label}, where)
    if columns.empty:
        raise ValueError(f"{where} has no column but {label}: add columns to predict it from.")
    labels = _labels(cells[label], f"{where}: column {printable(label)}", target)
    is_test = _is_test(cells, label, where)
    is_in_time = bool((is_test[1:] >= is_test[:-1]).all())
    return Table(site_of(path), columns, label, labels, is_test, is_in_time)


def read_features(path: Path, ignored: Collection[str]) -> Any:
    """Return a table's columns as `Table.columns`, without the ignored ones."""
    return _features(_cells(path), ignored, printable(path.name))


def _cells(path: Path) -> Any:
    """Return a file's content as a data frame; of CSV, all cells are texts, for `_values`."""
    pandas = load_extra("pandas", _NEEDS)
    where = printable(path.name)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a CSV or Parquet file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # lost cells
            frame = _read(path, pandas)
    except (ValueError, OSError, pandas.errors.ParserWarning) as error:
        if isinstance(error, OSError) and error.filename:
            raise
        reason = one_line(str(error), 200).rstrip(". ")
        raise ValueError(
            f"{where} cannot be read as a table ({reason}): write it as CSV with commas, numbers "
            "with a point, in UTF-8, with the columns' names in its first line, or as Parquet."
        ) from error
    names = [strip_and_compose(name) for name in frame.columns]
    if len(names) == 1 and any(sign in names[0] for sign in ";\t"):
        raise ValueError(f"{where} has one column: separate cells by commas, not by ; or tabs.")
    for position, name in enumerate(names):
        if not name or name in names[:position]:
            wrong = "two columns of one name" if name else "a column without a name"
            advice = "rename it, or leave it out (an index of pandas, by index=False)"
            raise ValueError(f"{where} has {wrong}, column {position + 1}: {advice}.")
    if frame.empty:
        raise ValueError(f"{where} has no rows: fill it, or leave the site out.")
    return frame.set_axis(names, axis=1)


def _read(path: Path, pandas: Any) -> Any:
    if path.suffix.lower() == ".parquet":
        need_extra("pyarrow", f"{path.name}, a Parquet file,", "write it as CSV")
        frame = pandas.read_parquet(path, engine="pyarrow")
        index = [name for name in frame.index.names if name is not None]
        return frame.reset_index(index, allow_duplicates=True) if index else frame
    cells = pandas.read_csv(
        path,
        header=None,  # pandas would rename columns of one name
        dtype=str,
        encoding="utf-8-sig",
        skipinitialspace=True,  # a space before a quote would hide it
        keep_default_na=False,
    )
    return cells.iloc[1:].reset_index(drop=True).set_axis(cells.iloc[0].tolist(), axis=1)


def _label_column(names: list[str], label: str, where: str) -> str:
    usual = [name for name in names if name in ([label] if label else LABELS)]
    if len(usual) == 1:
        return usual[0]
    shown = f'"{printable(label)}"' if label else "empty"
    no_column = f"no column {printable(label) if label else 'label, target or class'}"
    has = f"the columns {' and '.join(usual)}" if usual else no_column
    raise ValueError(
        f"label is {shown}, and {where} has {has}: set label to the column that holds the label, "
        "in the same letters. The first line of a CSV file must hold the columns' names."
    )


def _features(cells: Any, ignored: Collection[str], where: str) -> Any:
    columns = {}
    for name in sorted(set(cells.columns) - {*ignored, SPLIT}):
        what = f"{where}: column {printable(name)}"
        values = columns[name] = _values(cells[name], what)
        if values.dtype != object:
            is_near = (values >= 1900_01_01) & (values <= 2100_12_31) & (values % 1 == 0)
            values = values.astype(np.int64).astype(str) if is_near.all() else values
        if values.dtype != np.float64 and (dates := _dates(values)):
            raise ValueError(
                f"{what} has a date in row {_first(np.isin(values, dates))}, but columns hold "
                "numbers or categories: write a number, such as days since a day, or leave it out "
                "at all sites."
            )
    return load_extra("pandas", _NEEDS).DataFrame(columns)


def _dates(values: NDArray[Any]) -> list[str]:
    """Return the texts that are dates: those like 2024-01-31, or nearly all, as pandas reads them.

    Texts without a year, such as the months or 1-2, are no dates.
    """
    texts = list(dict.fromkeys(values.tolist()))
    if iso := [*filter(_DATE.fullmatch, texts)]:
        return iso
    tried = texts[:_TRIED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of the order of day and month
        parsed = load_extra("pandas", _NEEDS).to_datetime(
            *(tried, "coerce"), dayfirst=True, utc=True, format="mixed"
        )
    has_year = np.nan_to_num(np.asarray(parsed.year, np.float64)) > 1  # 1 where none is given
    return tried if has_year.mean() >= NEARLY_ALL else []


def _values(column: Any, what: str) -> NDArray[Any]:
    """Return a column's values: float64 if all cells are numbers, or else texts."""
    pandas = load_extra("pandas", _NEEDS)
    texts: NDArray[Any] | None = None
    if column.dtype.kind not in "iuf":
        texts = _texts(column, what)
        column = pandas.to_numeric(pandas.Series(texts), errors="coerce")
    is_text = column.isna().to_numpy()
    missing = is_text if texts is None else np.isin(texts, _MISSING)
    if missing.any():
        more = f" and {missing.sum() - 1:,} more" if missing.sum() > 1 else ""
        raise ValueError(
            f"{what} has no value in row {_first(missing)}{more} (an empty cell, or a word such as "
            "NA or None): fill it in, or leave the row or the column out."
        )
    if texts is not None and is_text.any():
        if any(map(_LIKE_A_NUMBER.fullmatch, set(texts.tolist()))):
            raise ValueError(
                f"{what} seems to have numbers, but a text in row {_first(is_text)}: write all "
                "cells as numbers, with a point and no other signs, or all as texts, such as c1 "
                "for 1."
            )
        return texts
    numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64)
    infinite = ~(np.abs(numbers) < 3.4e38)  # as a float32
    if infinite.any():
        wrong = f"a number in row {_first(infinite)} that is not below 3e38"
        raise ValueError(f"{what} has {wrong}: correct it, or leave the row out.")
    return numbers


def _texts(column: Any, what: str) -> NDArray[Any]:
    """Return cells as texts, with one spelling of truth values; a missing cell is empty."""
    cells = column.astype(object).where(column.notna(), "").tolist()
    for cell in cells:
        if not isinstance(cell, str | bool | np.bool_):
            kind = type(cell).__name__ if column.dtype == object else column.dtype
            raise ValueError(
                f"{what} holds {kind}, but must hold numbers or texts: write it as one of them, or "
                "leave it out at all sites."
            )
    texts = [strip_and_compose(cell) for cell in cells]
    return np.array([_TRUTH.get(text, text) for text in texts], dtype=object)


def _first(rows: NDArray[np.bool_]) -> int:
    return int(np.argmax(rows)) + 1


def _labels(column: Any, what: str, target: str) -> NDArray[Any]:
    """Return names of classes, or float64 numbers to predict."""
    values = _values(column, what)
    if values.dtype == object:
        if target == NUMBER_TARGET:
            raise ValueError(f'{what} has texts, but target is "{target}": write numbers.')
        return values
    if target == NUMBER_TARGET or (values != np.round(values)).any():
        return values
    # The cells are exact at any size, floats are not; some programs write 1.0 for 1.
    names = [re.sub(r"\.0*$", "", strip_and_compose(cell)) for cell in column.tolist()]
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


def _is_test(cells: Any, label: str, where: str) -> NDArray[np.bool_]:
    count = len(cells)
    is_test = np.arange(count) >= count - max(1, round(count / _TESTED))
    if SPLIT in cells:
        words = _values(cells[SPLIT], f"{where}: column {SPLIT}")
        is_test = words == "test"
        unknown = ~is_test & (words != "train")
        if unknown.any():
            raise ValueError(
                f"{where}: column {SPLIT} has another word than train or test in row "
                f"{_first(unknown)}: correct it, or rename the column."
            )
    elif others := [name for name in cells if name.casefold() == SPLIT and name != label]:
        raise ValueError(
            f"{where} has the column {printable(others[0])}: rename it to {SPLIT} if it says train "
            "or test of each row, or otherwise to another name."
        )
    if is_test.all() or not is_test.any():
        missing = "training" if is_test.all() else "testing"
        raise ValueError(
            f"{where} has {count} row{'s' * (count > 1)}, none of them for {missing}: add rows, "
            f"or a column {SPLIT} with train and test."
        )
    return is_test
