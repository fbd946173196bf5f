"""Tables of several sites: what all have in common, and samples of numbers made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.folders import (
    TABLE_ENDINGS,
    check_site_names,
    folders_and_files,
    folders_in,
    ignored_note,
    is_table,
)
from fl_core.data.given_partition import GivenPartition
from fl_core.data.preparation import Columns, Preparation, sample_columns
from fl_core.data.settings import A_NUMBER, TABLES, Source
from fl_core.data.table_file import (
    LABELS,
    SPLIT,
    Table,
    are_whole,
    as_numbers,
    kinds_of,
    read_features,
    read_table,
)
from fl_core.options import Refusals
from fl_core.text import alike, composed, listed, printable

MOST_VALUES = 50  # of a category: more are names or numbers of rows, which tell nothing
MOST_CLASSES = 1_000
_MANY = 20  # whole numbers, of which more are hardly names of classes


def read_tables(source: Source) -> Dataset:
    """Read a folder of tables: each file is a site, which has a partition of its own.

    Raises
    ------
    ValueError
        If a file is no such table, or they do not go together: with its name, column and row.
    OSError
        If the folder or a file cannot be read.
    """
    tables, wrong = [], Refusals()
    for path in table_files(source.root):
        with wrong:
            tables.append(read_table(path, source.label, source.target))
    wrong.refuse()
    columns = common_columns({one.site: kinds_of(one.columns) for one in tables})
    rows = torch.from_numpy(
        np.concatenate([encoded(one.columns, columns, one.site) for one in tables])
    )
    labels, classes = _targets(tables, source.root)
    test = torch.from_numpy(np.concatenate([one.is_test for one in tables]))
    others = [path for path in folders_and_files(source.root)[1] if not is_table(path)]
    notes = tuple(ignored_note(source.root, "tables", others))
    if not labels.is_floating_point():
        notes += tuple(notes_on_classes(labels[~test], labels[test], classes))
    given = GivenPartition(
        tuple(int((~one.is_test).sum()) for one in tables),
        tuple(int(one.is_test.sum()) for one in tables),
        names=tuple(one.site for one in tables),
        in_time=frozenset(client for client, one in enumerate(tables) if one.is_in_time),
    )
    return Dataset(
        source.name,
        *(rows[~test], labels[~test], rows[test], labels[test], classes),
        given_partition=given,
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
    table = read_features(path, ignored)
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
    found = sorted(path.iterdir(), key=lambda one: one.stem) if path.is_dir() else [path]
    tables = [one for one in found if is_table(one)]
    if not tables:
        raise ValueError(
            f"{path} is no table, and no folder of tables: name a file that ends in "
            f"{' or '.join(TABLE_ENDINGS)}, or a folder of such files."
        )
    return tables


def table_files(root: Path) -> list[Path]:
    """Return the tables in a folder, sorted by the names of their sites.

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
    found = sorted(filter(is_table, root.iterdir()), key=lambda one: one.stem)
    if len(found) < 2:
        hint = ", or dataset=folder if it holds images in class folders" * bool(folders_in(root))
        raise ValueError(
            f"{root} holds {len(found)} tables, files that end in {' or '.join(TABLE_ENDINGS)}, "
            "but a federation needs one from each of two sites or more: name their folder by "
            f"data-dir{hint}."
        )
    check_site_names(root, found)
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
                example = (values or wanted[name])[0]
                raise ValueError(
                    f"column {printable(name)} has numbers in {numbers}, but texts in {texts}, "
                    f"such as {printable(example)}: write all values in one way at all sites."
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


def encoded(table: Any, columns: Columns, where: str) -> NDArray[np.float32]:
    """Return a table as samples, shape (n, d): numbers, and of each category's values 0 or 1.

    `table` is a data frame as `Table.columns`, and `where` says whose it is.

    Raises
    ------
    ValueError
        If a category has a value that is not among those of `columns`.
    """
    from sklearn.preprocessing import OneHotEncoder  # noqa: PLC0415 - it takes half a second

    parts = []
    for name, values in columns.items():
        own = table[[name]]
        if values:
            unknown = ~table[name].isin(values).to_numpy()
            if unknown.any():
                # Without the value: a device's refusals are told to the server.
                raise ValueError(
                    f"column {printable(name)} of {where} has a text in row "
                    f"{int(unknown.argmax()) + 1} which was not there when the columns were "
                    "agreed: correct it, or start the run again with it."
                )
            own = OneHotEncoder(categories=[list(values)], sparse_output=False).fit_transform(own)
        parts.append(np.asarray(own, np.float32))
    return np.hstack(parts)


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
    _check_names(tables)
    labels = [one.labels for one in tables]
    classes = class_names(labels)
    if len(classes) < 2:
        raise ValueError(
            f'all rows in {root} have the label "{printable(classes[0])}", but at least two '
            "classes are needed: choose another column by label."
        )
    indices = np.concatenate([numbered(own, classes) for own in labels])
    return torch.from_numpy(indices), classes


def _check_names(tables: Sequence[Table]) -> None:
    """Refuse classes that are whole numbers at one site and texts at another."""
    sites: dict[bool, Table] = {}
    for one in reversed(tables):
        sites[are_whole(set(one.labels.tolist()))] = one
    if len(sites) > 1:
        raise ValueError(
            f"column {printable(sites[True].label)} has whole numbers in {sites[True].site}, such "
            f"as {sites[True].labels[0]}, but texts in {sites[False].site}, such as "
            f"{printable(sites[False].labels[0])}: write all labels in one way at all sites."
        )


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


def notes_on_classes(trained: Tensor, tested: Tensor, classes: tuple[str, ...]) -> Iterator[str]:
    """Say which classes may not be what they seem; labels are indices into them."""
    # Classes that are tested but trained nowhere: the rows may be sorted by label.
    untrained = [printable(classes[label]) for label in np.setdiff1d(tested, trained)]
    if untrained:
        yield (
            f"no training row has the label {listed(untrained, 5, ' or ')}, which test rows have: "
            "where rows are sorted by label, shuffle them, or add a column "
            f"{SPLIT} with train and test"
        )
    if len(classes) > _MANY and are_whole(classes):
        yield (
            f"the label has {len(classes)} different whole numbers, each taken for a class of its "
            f"own: if it is a number to predict, set target={A_NUMBER}"
        )
    together = [", ".join(map(printable, names)) for names in alike(classes)]
    if together:
        yield (
            f"the classes {listed(together, 5, '; ')} are taken for different ones: where they are "
            "not, give them one name at all sites"
        )
