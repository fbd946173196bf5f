"""How samples were prepared for a model, kept beside it: the columns of tables, and their scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from fl_core.data.scaling import Scaling, moments, scaling_in
from fl_core.data.settings import ALL_SITES, NOBODY, SITE

Columns = dict[str, tuple[str, ...]]
"""Each column's name to the values of a category, both sorted; to nothing, if it has numbers."""


def sample_columns(columns: Columns) -> tuple[str, ...]:
    """Return a name for each number of a sample: a category has one for each of its values.

    Examples
    --------
    >>> sample_columns({"age [years]": (), "colour": ("blue", "red")})
    ('age [years]', 'colour=blue', 'colour=red')
    """
    return tuple(
        f"{name}={value}" if values else name
        for name, values in columns.items()
        for value in values or ("",)
    )


@dataclass(frozen=True)
class Preparation:
    """What was done to samples before anybody trained.

    Attributes
    ----------
    columns : dict
        Of tables, those of all sites; empty of all else.
    label : str
        Of tables, the column that holds the label, if somebody named one.
    standardise : {"none", "site", "all"}
    scaling : Scaling, optional
        By which samples were standardised. With `site`, there is none where the model is of several
        sites, each of which has its own.

    Raises
    ------
    ValueError
        If a value is not of these.
    """

    columns: Columns = field(default_factory=dict)
    label: str = ""
    standardise: str = NOBODY
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        # Any JSON value may stand here: it is read from a file that anybody can write.
        columns = self.columns
        right = {
            "columns": isinstance(columns, dict)
            and list(columns) == sorted(columns)
            and all(
                isinstance(values, tuple) and all(isinstance(value, str) for value in values)
                for values in columns.values()
            ),
            "label": isinstance(self.label, str),
            "standardise": self.standardise in (NOBODY, SITE, ALL_SITES),
            "scaling": self.scaling is None or self.standardise != NOBODY,
        }
        for name, is_right in right.items():
            if not is_right:
                raise ValueError(f"the {name} of its samples are not what this app writes")
        if self.standardise == ALL_SITES and self.scaling is None:
            raise ValueError("its samples were standardised, but it does not say how")

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what each number of a sample is, if it is a row of a table."""
        return sample_columns(self.columns)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a ValueError unless samples of this shape can have been made so."""
        if self.columns and (len(self.column_names),) != shape:
            raise ValueError("its columns are not as many as its samples have numbers")
        if self.scaling is not None and len(self.scaling.mean) != shape[0]:
            raise ValueError("its means are not as many as its samples have columns")

    def of_samples(self, rows: Tensor) -> Tensor:
        """Return somebody's samples, as they come, (n, …), as the model takes them.

        With `site` and no scaling known, by these samples' own.
        """
        if self.standardise == NOBODY:
            return rows
        scaling = self.scaling or Scaling.of(moments(rows))
        return scaling.samples(rows)

    def as_json(self) -> dict[str, Any]:
        """Return what JSON can hold; empty if nothing was done."""
        return {} if self == AS_THEY_COME else asdict(self)


AS_THEY_COME = Preparation()


def preparation_in(fields: object) -> Preparation:
    """Undo `Preparation.as_json`, after JSON has made lists of tuples.

    Raises
    ------
    ValueError
        If it is not what this app writes.
    """
    if not isinstance(fields, Mapping):
        raise ValueError("what was done to its samples cannot be read")
    known: dict[str, Any] = dict(fields)
    if isinstance(known.get("columns"), dict):
        known["columns"] = {
            name: tuple(values) if isinstance(values, list) else values
            for name, values in known["columns"].items()
        }
    if known.get("scaling") is not None:
        known["scaling"] = scaling_in(known["scaling"])
    try:
        return Preparation(**known)
    except TypeError as error:  # keys that it does not have
        raise ValueError("what was done to its samples cannot be read") from error
