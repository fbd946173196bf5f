"""How samples were prepared for a model, kept beside it: the columns of tables, and their scale."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fl_core.data.scaling import ColumnStatistics, Scaling
from fl_core.data.settings import ALL_SITES, NOBODY, SITE
from fl_core.json_records import STRICT

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

    __pydantic_config__ = STRICT
    columns: Columns = field(default_factory=dict)
    label: str = ""
    standardise: str = NOBODY
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if list(self.columns) != sorted(self.columns):
            raise ValueError("the columns of its samples are not sorted")
        if self.standardise not in (NOBODY, SITE, ALL_SITES):
            raise ValueError(f"standardise must be one of {NOBODY}, {SITE}, {ALL_SITES}")
        if self.standardise == NOBODY and self.scaling is not None:
            raise ValueError("its samples have a scale, but nobody standardised them")
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
        scaling = self.scaling or Scaling.of(ColumnStatistics.of(rows))
        return scaling.samples(rows)


AS_THEY_COME = Preparation()
