"""Tables of several sites: what all have in common, and samples of numbers made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.folders import TABLE_ENDINGS, folders_in, is_table, left_out, site_of
from fl_core.data.preparation import Columns, Preparation, sample_columns
from fl_core.data.settings import A_NUMBER, TABLES, Source
from fl_core.data.table_file import (
    LABELS,
    Table,
    are_whole,
    as_numbers,
    is_no_number,
    kinds_of,
    read_features,
    read_table,
)
from fl_core.data.table_notes import on_classes, on_columns
from fl_core.partitions.given_partitions import Held
from fl_core.text import composed, printable

MOST_VALUES = 50  # of a category: more are names or numbers of rows, which tell nothing
MOST_CLASSES = 1_000
_MOST_WRONG = 10  # files that one error names


def read_tables(source: Source) -> Dataset:
    """Read a folder of tables: each file is a site, which has a partition of its own.

    Raises
    ------
    ValueError
        If a file is no such table, or they do not go together: with its name, column and row.
    OSError
        If the folder or a file cannot be read.
    """
    tables, wrong = [], []
    for path in table_files(source.root):
        try:
            tables.append(read_table(path, source.label, source.target))
        except ValueError as error:
            wrong.append(str(error))
    if len(wrong) > _MOST_WRONG:
        wrong[_MOST_WRONG:] = [f"… ({len(wrong)} files are not right)"]
    if wrong:
        raise ValueError("\n".join(wrong))
    columns = common_columns({one.site: one.kinds() for one in tables})
    rows = torch.from_numpy(
        np.concatenate([encoded(one.columns, columns, one.site) for one in tables])
    )
    labels, classes = _targets(tables, source.root)
    test = torch.from_numpy(np.concatenate([one.is_test for one in tables]))
    notes = (*left_out(source.root, "tables", is_table), *on_columns(columns))
    if not labels.is_floating_point():
        notes += tuple(on_classes(labels[~test], labels[test], classes))
    held = Held(
        tuple(int((~one.is_test).sum()) for one in tables),
        tuple(int(one.is_test.sum()) for one in tables),
        names=tuple(one.site for one in tables),
        in_time=frozenset(client for client, one in enumerate(tables) if one.is_in_time),
    )
    return Dataset(
        source.name,
        *(rows[~test], labels[~test], rows[test], labels[test], classes),
        held=held,
        column_names=sample_columns(columns),
        preparation=Preparation(columns, composed(source.label)),
        notes=notes,
    )


def prepared_rows(path: Path, preparation: Preparation) -> Tensor:
    """Return a table's rows, labelled or not, as samples of a run of tables, float32 (n, d).

    Where each site was standardised by its own rows, so are these.

    Raises
    ------
    ValueError
        If the columns are not the run's, or their values not such as can be used.
    OSError
        If it cannot be read.
    """
    ignored = {composed(preparation.label), *LABELS} - preparation.columns.keys()
    table = read_features(path, ignored, preparation.columns)
    common_columns({"the run": preparation.columns, printable(path.name): kinds_of(table)})
    rows = encoded(table, preparation.columns, printable(path.name))
    return preparation.of_samples(torch.from_numpy(rows))


def tables_in(path: Path) -> list[Path]:
    """Return a table, or those of a folder, sorted by the names of their sites.

    Raises
    ------
    ValueError
        If there are none.
    OSError
        If the folder cannot be read.
    """
    if not path.is_dir():
        if not is_table(path):
            raise ValueError(
                f"{path} is no table: name a file that ends in {' or '.join(TABLE_ENDINGS)}, or a "
                "folder of them."
            )
        return [path]
    found = sorted(filter(is_table, path.iterdir()), key=lambda one: one.stem)
    if not found:
        raise ValueError(f"{path} holds no tables, files that end in {' or '.join(TABLE_ENDINGS)}.")
    return found


def table_files(root: Path) -> list[Path]:
    """Return the tables in a folder, sorted by the names of their sites; others are passed over.

    Raises
    ------
    ValueError
        If there is no such folder, they are fewer than two, or two have the same site's name.
    OSError
        If the folder cannot be read.
    """
    if not root.is_dir():
        raise ValueError(
            f'{root}, of dataset "{TABLES}", is no folder: set data-dir to one that holds a CSV or '
            "Parquet file for each site, such as berlin.csv."
        )
    found = sorted((path for path in root.iterdir() if is_table(path)), key=lambda one: one.stem)
    if len(found) < 2:
        hint = ", or dataset=folder if it holds images in class folders" * bool(folders_in(root))
        raise ValueError(
            f"{root} holds {len(found)} tables, files that end in {' or '.join(TABLE_ENDINGS)}, "
            "but a federation needs one from each of two sites or more: name their folder by "
            f"data-dir{hint}."
        )
    for first, second in pairwise(sorted(found, key=site_of)):
        if site_of(first) == site_of(second):
            raise ValueError(
                f"{root} holds {first.name} and {second.name}, but a site has one file and goes by "
                "its name: rename or remove one."
            )
    return found


def common_columns(sites: Mapping[str, Columns]) -> Columns:
    """Return the columns of all sites, which must be the same; categories with all their values.

    Parameters
    ----------
    sites : mapping
        By the sites' names.

    Raises
    ------
    ValueError
        If a site has another column, a number where others have texts, or a category has more than
        `MOST_VALUES` values.
    """
    (first, wanted), *others = sites.items()
    for site, own in others:
        if missing := sorted(wanted.keys() ^ own.keys()):
            has, lacks = (site, first) if missing[0] in own else (first, site)
            raise ValueError(
                f"{has} has the column {printable(missing[0])}, but {lacks} has not, and all sites "
                "need the same ones: add it there, or leave it out everywhere."
            )
        for name, values in own.items():
            if bool(values) != bool(wanted[name]):
                texts, numbers = (site, first) if values else (first, site)
                found = values or wanted[name]
                said = next(filter(is_no_number, found), found[0])
                raise ValueError(
                    f"column {printable(name)} has numbers in {numbers}, but texts in {texts}, "
                    f"such as {printable(said)}: write all values in one way at all sites."
                )
    common = {
        name: tuple(sorted({value for own in sites.values() for value in own[name]}))
        for name in sorted(wanted)
    }
    for name, values in common.items():
        if len(values) > MOST_VALUES:
            # Without an example: a device's refusals are told to the server.
            site = max(sites, key=lambda site: len(sites[site][name]))
            raise ValueError(
                f"column {printable(name)} has {len(values)} different texts, most of them in "
                f"{site}, but a category has {MOST_VALUES} at most: leave names and identifiers "
                "out, and write numbers without other characters."
            )
    return common


def encoded(table: Mapping[str, NDArray[Any]], columns: Columns, where: str) -> NDArray[np.float32]:
    """Return a table as samples, shape (n, d): numbers, and of each category's values 0 or 1.

    `table` has each column's values by its name, and `where` says whose it is.

    Raises
    ------
    ValueError
        If a category has a value that is not among those of `columns`.
    """
    parts = []
    for name, values in columns.items():
        own = table[name]
        unknown = ~np.isin(own, values) if values else np.zeros(len(own), bool)
        if unknown.any():
            # Without the value: a device's refusals are told to the server.
            raise ValueError(
                f"column {printable(name)} of {where} has a text in row {int(unknown.argmax()) + 1}"
                " which was not there when the columns were agreed: correct it, or start the run "
                "again with it."
            )
        parts += [own == value for value in values] or [own]
    return np.stack(parts, axis=1).astype(np.float32)


def _targets(tables: Sequence[Table], root: Path) -> tuple[Tensor, tuple[str, ...]]:
    """Return all labels and the classes' names; or numbers to predict and what they measure.

    They are numbers to predict if any of them has a fraction.
    """
    numbers = [one for one in tables if one.labels.dtype != object]
    if numbers:
        found = []
        for one in tables:
            try:
                found.append(as_numbers(one.labels))
            except ValueError as error:
                raise ValueError(
                    f"column {printable(one.label)} has fractions in {numbers[0].site}, but texts "
                    f"in {one.site}: write numbers to predict, or classes, at all sites."
                ) from error
        return torch.from_numpy(np.concatenate(found)), (printable(tables[0].label),)
    labels = _names(tables)
    classes = class_names(labels)
    if len(classes) < 2:
        raise ValueError(
            f'all rows in {root} have the label "{printable(classes[0])}", but at least two '
            "classes are needed: choose another column by label."
        )
    indices = np.concatenate([numbered(own, classes) for own in labels])
    return torch.from_numpy(indices), classes


def _names(tables: Sequence[Table]) -> list[NDArray[Any]]:
    """Return labels as names of classes: as they are written, if numbers are some site's texts.

    Codes such as 01 and 0A are texts where one has a letter, and 1 where none has.
    """
    whole: list[Table] = []
    texts: list[Table] = []
    for one in tables:
        # Where numbers were read, their texts are kept: only texts have to be looked at.
        is_whole = one.written is not None or are_whole(one.labels)
        (whole if is_whole else texts).append(one)
    if not whole or not texts:
        return [one.labels for one in tables]
    if all(is_no_number(text) for one in texts for text in set(one.labels.tolist())):
        first, second = whole[0], texts[0]
        raise ValueError(
            f"column {printable(first.label)} has whole numbers in {first.site}, such as "
            f"{first.labels[0]}, but texts in {second.site}, such as "
            f"{printable(second.labels[0])}: write all labels in one way at all sites."
        )
    return [one.labels if one.written is None else one.written for one in tables]


def class_names(labels: Iterable[NDArray[Any]]) -> tuple[str, ...]:
    """Return the names of all sites' classes: whole numbers by their size, texts sorted.

    Raises
    ------
    ValueError
        If they are more than `MOST_CLASSES`.
    """
    names = {name for own in labels for name in own.tolist()}
    if len(names) > MOST_CLASSES:
        # Without an example: a device's refusals are told to the server.
        raise ValueError(
            f"the label has {len(names):,} different values, but {MOST_CLASSES:,} classes at most "
            "can be learnt: name another column by label, or, of numbers to predict, set "
            f"target={A_NUMBER}."
        )
    by_size = are_whole(names)
    return tuple(sorted(names, key=lambda name: (int(name) if by_size else 0, name)))


def numbered(labels: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Return labels, names of classes, as indices into these."""
    index = {name: number for number, name in enumerate(classes)}
    return np.array([index[name] for name in labels], dtype=np.int64)
