"""One site's table, a CSV or Parquet file: its columns as numbers and texts, or a sentence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
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
"""What the column of labels may be called where nobody says."""
SPLIT = "split"
"""The column that says which rows are for testing, if there is one."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_TRUTH = {"TRUE": "True", "true": "True", "FALSE": "False", "false": "False"}
_OTHER_COMMAS = {";": "semicolons", "\t": "tabs"}
_DIGITS = re.compile(r"-?[0-9]+")
_MISSING = (  # as pandas reads them, but for blanks around
    *("", "NA", "<NA>", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
_TESTED = 5  # one of so many rows, the last ones
_NEEDS = f'dataset="{TABLES}"'
_NAMES_FIRST = "the first line of a CSV file has to hold the columns' names"


class Table(NamedTuple):
    """One site's rows.

    Attributes
    ----------
    site : str
        The file's name without its ending.
    columns : dict
        Each column's n values by its name, sorted: float32, or texts.
    label : str
        The column of labels.
    labels : NDArray, shape (n,)
        The names of classes; or numbers to predict, float32.
    is_test : NDArray[np.bool_], shape (n,)
    is_in_time : bool
        Whether the order of rows says which ones test, instead of a column.
    written : NDArray, shape (n,), optional
        Of labels that are whole numbers, their texts in the file, such as 01: names of classes
        where other sites have texts.
    """

    site: str
    columns: dict[str, NDArray[Any]]
    label: str
    labels: NDArray[Any]
    is_test: NDArray[np.bool_]
    is_in_time: bool
    written: NDArray[Any] | None

    def kinds(self) -> Columns:
        """Return what each column holds."""
        return kinds_of(self.columns)


def kinds_of(columns: Mapping[str, NDArray[Any]]) -> Columns:
    """Return what each column holds, of its values by its name."""
    return {
        name: () if own.dtype == np.float32 else tuple(sorted(set(own.tolist())))
        for name, own in columns.items()
    }


def read_table(
    path: Path, label: str = "", target: str = BY_VALUES, agreed: Columns | None = None
) -> Table:
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
    agreed : mapping, optional
        What each column holds elsewhere: in CSV, a category's texts may all look like numbers here.

    Raises
    ------
    ValueError
        If it is no table, has no such column, or something in it cannot be learnt from.
    OSError
        If it cannot be read.
    """
    where = printable(path.name)
    frame, cells = _named(path, agreed or {})
    label = _label_column(list(frame.columns), composed(label), where)
    columns = _features(frame, {label}, where)
    if not columns:
        raise ValueError(
            f"{where} has no column beside {label}: those from which to tell it are missing."
        )
    column = f"{where}: column {printable(label)}"
    labels, written = _labels(_values(frame[label], label, where), cells[label], column, target)
    is_test = _is_test(cells, label, where)
    return Table(site_of(path), columns, label, labels, is_test, SPLIT not in frame, written)


def read_features(path: Path, ignored: Collection[str], agreed: Columns) -> dict[str, NDArray[Any]]:
    """Return a table's columns as `Table.columns`, without some that are not looked at.

    `agreed` is as `read_table` has it.

    Raises
    ------
    ValueError, OSError
        As `read_table`, but for what is wrong with a label.
    """
    return _features(_named(path, agreed)[0], ignored, printable(path.name))


def _named(path: Path, agreed: Columns) -> tuple[Any, Any]:
    """Return a file's content as a data frame with rows, and columns that differ; and its cells.

    These are the same, but all texts in CSV.
    """
    cells = _frame(path)
    cells.columns = _column_names(list(cells.columns), printable(path.name))
    if not len(cells):
        raise ValueError(f"{printable(path.name)} has no rows: fill it, or leave the site out.")
    if _is_parquet(path):
        return cells, cells
    return cells.apply(lambda own: own if agreed.get(own.name) else _typed(own)), cells


def _typed(cells: Any) -> Any:
    """Return a column's texts as numbers if all are such.

    Left to itself, pandas would also make truth values of them, in one file and not in the next,
    so that sites would spell them in different ways.
    """
    numbers = load_extra("pandas", _NEEDS).to_numeric(cells, errors="coerce")
    return numbers if numbers.isna().equals(cells.isna()) else cells


def _features(frame: Any, ignored: Collection[str], where: str) -> dict[str, NDArray[Any]]:
    names = sorted(set(frame.columns) - {*ignored, SPLIT})
    columns = {name: _values(frame[name], name, where) for name in names}
    for name, values in columns.items():
        _check_dates(values, name, where)
    return {
        name: values if values.dtype == object else values.astype(np.float32)
        for name, values in columns.items()
    }


def _check_dates(values: NDArray[Any], name: str, where: str) -> None:
    dates = values.dtype == object and [*filter(_DATE.fullmatch, set(values.tolist()))]
    if dates:
        # Without the date: a device's refusals are told to the server.
        raise ValueError(
            f"{where}: column {printable(name)} has a date in row {_first(np.isin(values, dates))},"
            " but columns hold numbers or categories: write a number, such as days since a day, or "
            "leave it out at all sites."
        )


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _frame(path: Path) -> Any:
    """Return a file's content, of CSV as texts, in a data frame whose columns may not differ."""
    pandas = load_extra("pandas", _NEEDS)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: name a CSV or Parquet file.")
    if _is_parquet(path):
        need_extra("pyarrow", f"{path.name}, a Parquet file,", "write it as CSV")
        with _readable(path):
            frame = pandas.read_parquet(path, engine="pyarrow")
        index = [name for name in frame.index.names if name is not None]
        return frame.reset_index(index, allow_duplicates=True) if index else frame
    csv = {
        "encoding": "utf-8-sig",
        "index_col": False,
        "dtype": str,
        "skipinitialspace": True,  # a blank before a quote would hide it
        "keep_default_na": False,
    }
    with _readable(path):
        head = pandas.read_csv(path, header=None, nrows=1, **csv)
    names = head.iloc[0].tolist()
    _check_commas(names, printable(path.name))
    with _readable(path):
        frame = pandas.read_csv(path, **csv).apply(lambda column: column.str.strip())
    frame.columns = names  # as they stand there: pandas renames what repeats
    return frame.mask(frame.isin(_MISSING))


def _check_commas(names: list[str], where: str) -> None:
    for sign, what in _OTHER_COMMAS.items():
        if len(names) == 1 and sign in names[0]:
            # Without the line: of a file without names it is a row, and refusals are told.
            raise ValueError(
                f"{where} has one column: its cells seem to be separated by {what}, so write it "
                "with commas, and numbers with a point."
            )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of what the libraries cannot read which file it is, and what was expected."""
    lost_cells = load_extra("pandas", _NEEDS).errors.ParserWarning
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", lost_cells)
            yield
    except (ValueError, OSError, lost_cells) as error:
        if isinstance(error, OSError) and error.filename:
            raise
        why = one_line(str(error), 200).rstrip(". ")
        raise ValueError(
            f"{printable(path.name)} is no table that can be read ({why}): write it as CSV with "
            "commas, in UTF-8, with the columns' names in its first line, or as Parquet."
        ) from error


def _column_names(found: list[Any], where: str) -> list[str]:
    names = [composed(name) for name in found]
    for place, name in enumerate(names):
        if not name or name in names[:place]:
            # Without the name: as in `_check_commas`.
            wrong = "two columns of one name" if name else "a column without a name"
            raise ValueError(
                f"{where} has {wrong}, column {place + 1}: rename it, or leave it out (an index of "
                "pandas, by index=False)."
            )
    return names


def _label_column(names: list[str], label: str, where: str) -> str:
    # Without the names that there are: as in `_check_commas`.
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


def _values(column: Any, name: str, where: str) -> NDArray[Any]:
    """Return a column's values: numbers as float64, texts and truth values as texts."""
    types = load_extra("pandas", _NEEDS).api.types
    what = f"column {printable(name)}"
    missing = column.isna().to_numpy()
    texts: NDArray[Any] | None = None
    if types.is_bool_dtype(column.dtype) or not types.is_numeric_dtype(column.dtype):
        present = column.to_numpy(dtype=object)[~missing]
        others = (one for one in present if not isinstance(one, str | bool | np.bool_))
        if (other := next(others, None)) is not None:
            kind = type(other).__name__ if column.dtype == object else column.dtype
            raise ValueError(
                f"{where}: {what} holds neither numbers nor texts, but {kind}: write it as one of "
                "them, or leave it out at all sites."
            )
        texts = _texts(column)
        missing = missing | (texts == "")
    if missing.any():
        more = f" and {missing.sum() - 1:,} more" if missing.sum() > 1 else ""
        raise ValueError(
            f"{where}: {what} has no value in row {_first(missing)}{more} (an empty cell, or a "
            "word such as NA or None): fill it in, or leave the row or the column out."
        )
    if texts is not None:
        return texts
    numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64)
    with np.errstate(over="ignore"):
        infinite = ~np.isfinite(numbers.astype(np.float32))
    if infinite.any():
        row = _first(infinite)
        raise ValueError(
            f"{where}: {what} has a number in row {row} that is not finite, below 3e38: correct "
            "it, or leave the row or the column out."
        )
    return numbers


def _texts(column: Any) -> NDArray[Any]:
    """Return cells as texts, of which truth values have one spelling."""
    texts = map(composed, column.to_numpy(dtype=object))
    return np.array([_TRUTH.get(text, text) for text in texts], dtype=object)


def _first(rows: NDArray[np.bool_]) -> int:
    return int(np.argmax(rows)) + 1


def _labels(
    values: NDArray[Any], cells: Any, column: str, target: str
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return labels, and of whole numbers their texts in the file."""
    if values.dtype == object:
        if target == A_NUMBER:
            row = _first(np.array([*map(is_no_number, values)]))
            raise ValueError(
                f'{column} has a text in row {row}, but target is "{target}": write numbers, '
                "name another column by label, or leave target at auto."
            )
        return values, None
    if target == A_NUMBER or (values != np.round(values)).any():
        return values.astype(np.float32), None
    texts = _texts(cells)
    whole = {text: str(int(Decimal(text))) for text in set(texts.tolist())}  # exact, of any size
    labels = np.array([whole[text] for text in texts], dtype=object)
    if load_extra("pandas", _NEEDS).api.types.is_numeric_dtype(cells.dtype):  # of Parquet
        return labels, labels
    # A code is digits, such as 01; 1.0 is how a program wrote 1.
    written = [text if _DIGITS.fullmatch(text) else whole[text] for text in texts]
    return labels, np.array(written, dtype=object)


def are_whole(names: Iterable[str]) -> bool:
    """Return whether all names of classes are whole numbers, and no codes such as 01."""
    return all(map(_WHOLE.fullmatch, names))


def is_no_number(text: str) -> bool:
    """Return whether a text cannot be read as a number."""
    try:
        float(text)
    except ValueError:
        return True
    return "_" in text


def as_numbers(labels: NDArray[Any]) -> NDArray[np.float32]:
    """Return labels as numbers to predict.

    Raises
    ------
    ValueError
        If one cannot be read as a number, such as 10_1, which NumPy takes for 101.
    """
    if labels.dtype == object and any(map(is_no_number, set(labels.tolist()))):
        raise ValueError("some labels are no numbers")
    return labels.astype(np.float32)


def _is_test(frame: Any, label: str, where: str) -> NDArray[np.bool_]:
    parts = ("train", "test")
    for name in frame.columns if SPLIT not in frame else ():
        if name.casefold() != SPLIT or name == label:
            continue
        if any(str(one).strip().casefold() in parts for one in frame[name].unique()):
            raise ValueError(
                f"{where} has the column {printable(name)}, but {SPLIT}, which says of each row "
                "whether it trains or tests, has to be written in small letters: rename it."
            )
    count = len(frame)
    if SPLIT not in frame:
        is_test = np.arange(count) >= count - max(1, round(count / _TESTED))
    else:
        words = _values(frame[SPLIT], SPLIT, where)
        unknown = ~np.isin(words, parts)
        if unknown.any():
            row = _first(unknown)
            raise ValueError(
                f"{where}: column {SPLIT} has another word in row {row}, but it says train or test "
                "of each row: correct it, or rename the column."
            )
        is_test = words == "test"
    if is_test.all() or not is_test.any():
        missing = "training" if is_test.all() else "testing"
        raise ValueError(
            f"{where} has {count} row{'' if count == 1 else 's'} and none for {missing}, but each "
            f"site needs some of both: add rows, or a column {SPLIT} with train and test."
        )
    return is_test
