"""Tables of several sites: what they have in common, and samples of numbers made of them."""

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
from fl_core.data.preparation import CategoriesByColumn, Preparation, sample_columns
from fl_core.data.samples import GivenPartition
from fl_core.data.settings import NUMBER_TARGET, TABLES, Source
from fl_core.data.table_file import (
    LABELS,
    NEARLY_ALL,
    SPLIT,
    Table,
    are_whole,
    category_values,
    read_features,
    read_table,
)
from fl_core.extras import load_extra
from fl_core.options import Refusals
from fl_core.text import listed, note_on_spellings, printable, strip_and_compose

MOST_VALUES = 50  # of a category: more are names or numbers of rows, which predict nothing
MOST_CLASSES = 1_000
_MANY = 20  # different whole numbers; more are unlikely to be names of classes

# Messages show no value: a device sends them to the server.


def read_tables(source: Source) -> Dataset:
    """Read a folder of tables: each file is the partition of a site."""
    tables, wrong = [], Refusals()
    for path in list_site_tables(source.root):
        with wrong:
            tables.append(read_table(path, source.label, source.target))
    wrong.refuse()
    columns = common_columns({table.site: category_values(table.columns) for table in tables})
    encoded_tables = [encode_rows(table.columns, columns, table.site) for table in tables]
    rows = torch.from_numpy(np.concatenate(encoded_tables))
    labels, classes = _targets(tables, source.root)
    test = torch.from_numpy(np.concatenate([table.is_test for table in tables]))
    others = [path for path in folders_and_files(source.root)[1] if not is_table(path)]
    notes = [*ignored_note(source.root, "tables", others), *notes_on_tables(tables)]
    if not labels.is_floating_point():
        notes += notes_on_classes(labels[~test], labels[test], classes)
    partition = GivenPartition(
        tuple(int((~table.is_test).sum()) for table in tables),
        tuple(int(table.is_test.sum()) for table in tables),
        names=tuple(table.site for table in tables),
        in_time=frozenset(client for client, table in enumerate(tables) if table.is_in_time),
    )
    return Dataset(
        source.name,
        *(rows[~test], labels[~test], rows[test], labels[test], classes),
        given_partition=partition,
        column_names=sample_columns(columns),
        preparation=Preparation(columns, strip_and_compose(source.label)),
        notes=tuple(notes),
    )


def read_prepared_rows(path: Path, preparation: Preparation) -> Tensor:
    """Return a table's rows, labelled or not, as samples of a run of tables, float32 (n, d)."""
    ignored = {strip_and_compose(preparation.label), *LABELS} - preparation.columns.keys()
    table, name = read_features(path, ignored), printable(path.name)
    common_columns({"the run": preparation.columns, name: category_values(table)})
    rows = encode_rows(table, preparation.columns, name)
    return preparation.prepare_samples(torch.from_numpy(rows))


def list_tables(path: Path) -> list[Path]:
    """Return a table, or those of a folder, sorted by the names of their sites."""
    paths = sorted(path.iterdir(), key=lambda one: one.stem) if path.is_dir() else [path]
    tables = [one for one in paths if is_table(one)]
    if not tables:
        raise ValueError(
            f"{path} is neither a table nor a folder of tables: give a file that ends in "
            f"{' or '.join(TABLE_ENDINGS)}, or a folder of such files."
        )
    return tables


def list_site_tables(root: Path) -> list[Path]:
    """Return the tables in a folder, sorted by the names of their sites."""
    if not root.is_dir():
        raise ValueError(
            f'{root}, of dataset "{TABLES}", is not a folder: set data-dir to one that holds a CSV '
            "or Parquet file for each site, such as berlin.csv."
        )
    tables = sorted(filter(is_table, root.iterdir()), key=lambda one: one.stem)
    if len(tables) < 2:
        hint = ", or dataset=folder if it holds images in class folders" * bool(folders_in(root))
        raise ValueError(
            f"{root} has {len(tables)} tables, files that end in {' or '.join(TABLE_ENDINGS)}, but "
            "a federation needs one from each of at least two sites: set data-dir to their "
            f"folder{hint}."
        )
    check_site_names(root, tables)
    return tables


def common_columns(sites: Mapping[str, CategoriesByColumn]) -> CategoriesByColumn:
    """Return the common columns of sites, by name; a category has the values of all sites."""
    (first, expected), *others = sites.items()
    for site, columns in others:
        if missing := sorted(expected.keys() ^ columns.keys()):
            has, lacks = (site, first) if missing[0] in columns else (first, site)
            raise ValueError(
                f"{has} has the column {printable(missing[0])}, but {lacks} does not, and all "
                "sites need the same ones: add it there, or leave it out everywhere."
            )
        for name, values in columns.items():
            if bool(values) != bool(expected[name]):
                texts, numbers = (site, first) if values else (first, site)
                raise ValueError(
                    f"column {printable(name)} has numbers in {numbers}, but texts in {texts}: "
                    "write all values in one way at all sites."
                )
    common = {
        name: tuple(sorted({value for columns in sites.values() for value in columns[name]}))
        for name in sorted(expected)
    }
    for name, values in common.items():
        if len(values) > MOST_VALUES:
            site = max(sites, key=lambda site: len(sites[site][name]))
            raise ValueError(
                f"column {printable(name)} has {len(values)} different texts, most of them in "
                f"{site}, but a category has at most {MOST_VALUES}: leave names and identifiers "
                "out, and write numbers without other characters."
            )
    return common


def encode_rows(table: Any, columns: CategoriesByColumn, where: str) -> NDArray[np.float64]:
    """Return a table as samples, shape (n, d): numbers, and 0 or 1 for each value of a category.

    `table` is a data frame as `Table.columns`, and `where` names it.
    """
    parts = []
    for name, values in columns.items():
        cells = table[[name]].to_numpy()
        if values:
            cells = cells == np.array(values, object)
            unknown = ~cells.any(axis=1)
            if unknown.any():
                raise ValueError(
                    f"column {printable(name)} of {where} has a text in row "
                    f"{int(unknown.argmax()) + 1} that is not among the agreed ones: correct it, "
                    "or start the run again with it."
                )
        parts.append(cells.astype(np.float64))
    return np.hstack(parts)


def _targets(tables: Sequence[Table], root: Path) -> tuple[Tensor, tuple[str, ...]]:
    """Return all labels and the classes' names; or, if any has a fraction, numbers to predict."""
    name, labels = printable(tables[0].label), [table.labels for table in tables]
    fractions = [table.site for table in tables if table.labels.dtype != object]
    sites = {
        table.labels.dtype != object or are_whole(set(table.labels.tolist())): table.site
        for table in reversed(tables)
    }
    if len(sites) > 1:
        kind = "fractions" if fractions else "whole numbers"
        raise ValueError(
            f"column {name} has {kind} in {(*fractions, sites[True])[0]}, but texts in "
            f"{sites[False]}: write numbers, or classes, at all sites."
        )
    if fractions:
        return torch.from_numpy(np.concatenate([x.astype(np.float64) for x in labels])), (name,)
    classes = list_classes(labels)
    if len(classes) < 2:
        raise ValueError(
            f'all rows in {root} have the label "{printable(classes[0])}", but at least two '
            "classes are needed: choose another column by label."
        )
    return torch.from_numpy(label_indices(np.concatenate(labels), classes)), classes


def list_classes(labels: Iterable[NDArray[Any]]) -> tuple[str, ...]:
    """Return the names of all sites' classes: whole numbers by their size, texts sorted."""
    names = {name for values in labels for name in values.tolist()}
    if len(names) > MOST_CLASSES:
        raise ValueError(
            f"the label has {len(names):,} different values, but at most {MOST_CLASSES:,} classes "
            "are possible: give another column by label, or, of numbers to predict, set "
            f"target={NUMBER_TARGET}."
        )
    by_size = are_whole(names)
    return tuple(sorted(names, key=lambda name: (int(name) if by_size else 0, name)))


def label_indices(labels: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Return labels, names of classes, as indices into these."""
    index = {name: number for number, name in enumerate(classes)}
    return np.array([index[name] for name in labels], dtype=np.int64)


def notes_on_classes(trained: Tensor, tested: Tensor, classes: tuple[str, ...]) -> Iterator[str]:
    """Yield notes on classes that may be a mistake; labels are indices into them."""
    untrained = [printable(classes[label]) for label in np.setdiff1d(tested, trained)]
    if untrained:
        yield (
            f"no training row has the label {listed(untrained, 5, ' or ')}, which test rows have: "
            "if rows are sorted by label, shuffle them, or add a column "
            f"{SPLIT} with train and test"
        )
    if len(classes) > _MANY and are_whole(classes):
        yield (
            f"the label has {len(classes)} different whole numbers, each of which is a class: if "
            f"it is a number to predict, set target={NUMBER_TARGET}"
        )
    if note := note_on_spellings("the classes", classes):
        yield note


def notes_on_tables(tables: Sequence[Table]) -> Iterator[str]:
    """Yield notes on columns, on the order of rows, and on test rows that training rows repeat."""
    for name in tables[0].columns:
        columns = [table.columns[name] for table in tables]
        if columns[0].dtype != np.float64:
            texts = sorted({text for column in columns for text in column.unique()})
            if note := note_on_spellings(f"the values of column {printable(name)}:", texts):
                yield note
        if sum(map(len, columns)) > _MANY and all(map(_differs_in_each_row, columns)):
            yield (
                f"column {printable(name)} has a different value in nearly each row: if it is an "
                "identifier, leave it out at all sites"
            )
    between = [table.site for table in tables if not table.is_in_time]
    if between:
        yield (
            f"column {SPLIT} has test rows before training rows in {listed(between, 5, ', ')}, so "
            "rows that validate are drawn at random: if rows are in order of time, let the last "
            "ones test"
        )
    pandas = load_extra("pandas", f'dataset="{TABLES}"')
    rows = [table.columns.assign(**{SPLIT: table.labels.astype(str)}) for table in tables]
    hashes = pandas.util.hash_pandas_object(pandas.concat(rows), index=False).to_numpy()
    is_test = np.concatenate([table.is_test for table in tables])
    copies = int(np.isin(hashes[is_test], hashes[~is_test]).sum())
    if copies:
        yield (
            f"{copies:,} of {is_test.sum():,} test rows are copies of training rows, so that a "
            "model may have learnt their labels: remove rows that occur twice"
        )


def _differs_in_each_row(column: Any) -> bool:
    """Return whether a column is texts or whole numbers, nearly all of which are different."""
    is_fraction = column.dtype == np.float64 and (column != column.round()).any()
    return not is_fraction and column.nunique() >= NEARLY_ALL * len(column)
