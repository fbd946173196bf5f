"""How samples were prepared before training, saved beside a model: columns and scale."""

from dataclasses import dataclass, field

from torch import Tensor

from fl_core.data.scaling import ColumnStatistics, Scaling
from fl_core.data.settings import ALL_SITES, NOT_STANDARDISED, SITE
from fl_core.json_records import STRICT

CategoriesByColumn = dict[str, tuple[str, ...]]
"""Each column's name to the values of a category, both sorted; a column of numbers to nothing."""


def sample_columns(columns: CategoriesByColumn) -> tuple[str, ...]:
    """Return a name for each number of a sample: of a category, `colour=red` for each value."""
    return tuple(
        f"{name}={value}" if values else name
        for name, values in columns.items()
        for value in values or ("",)
    )


@dataclass(frozen=True)
class Preparation:
    """What was done to samples before training."""

    __pydantic_config__ = STRICT
    columns: CategoriesByColumn = field(default_factory=dict)  # of tables, those of all sites
    label: str = ""  # of tables, the column of the label, if one was configured
    standardise: str = NOT_STANDARDISED
    scaling: Scaling | None = None  # absent with "site", where a model is of several sites

    def __post_init__(self) -> None:
        if list(self.columns) != sorted(self.columns):
            raise ValueError("the columns of its samples are not sorted")
        if self.standardise not in (NOT_STANDARDISED, SITE, ALL_SITES):
            raise ValueError(f"standardise must be one of {NOT_STANDARDISED}, {SITE}, {ALL_SITES}")
        if self.standardise == NOT_STANDARDISED and self.scaling is not None:
            raise ValueError("its samples have a scaling, but standardise is none")
        if self.standardise == ALL_SITES and self.scaling is None:
            raise ValueError("its samples were standardised, but the scaling is missing")

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what each number of a sample is, for rows of tables."""
        return sample_columns(self.columns)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a ValueError unless samples of this shape can have been prepared so."""
        if self.columns and (len(self.column_names),) != shape:
            raise ValueError("its samples have more or fewer numbers than its columns say")
        if self.scaling is not None and len(self.scaling.mean) != shape[0]:
            raise ValueError("its samples have more or fewer columns than its scaling")

    def prepare_samples(self, rows: Tensor) -> Tensor:
        """Prepare unprepared samples, floats (n, …), for the model, which takes float32.

        With "site" and an unknown scaling, the statistics of these samples scale them.
        """
        if self.standardise == NOT_STANDARDISED:
            return rows.float()
        scaling = self.scaling or Scaling.fit(ColumnStatistics.of(rows))
        return scaling.transform(rows)


NO_PREPARATION = Preparation()
