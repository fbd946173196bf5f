"""What the fields of files are read as: text that does no harm, numbers that may be missing."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, PlainValidator

from fl_core.text import one_line, printable

Text = Annotated[str, BeforeValidator(lambda value: printable(str(value)))]
Line = Annotated[str, BeforeValidator(lambda value: one_line(str(value)))]
Long = Annotated[str, BeforeValidator(lambda value: one_line(str(value), 2000))]
Option = bool | int | float | Annotated[str, AfterValidator(printable)]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
Array = Annotated[NDArray[np.float64], PlainValidator(lambda value: np.array(value, np.float64))]
Reasons = dict[int, Line]
