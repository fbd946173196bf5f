"""What the seconds of devices go to: the names of the parts, and how they are read."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, NonNegativeFloat

TIMES = {
    "work": "training and tests",
    "start-up": "start of its process",
    "transfer": "messages under way",
    "waiting": "waiting for others",
}
"""What a device's seconds go to, from left to right in a picture, and what that calls it."""


def _whole(seconds: dict[str, float]) -> dict[str, float]:
    """Refuse, by a ValueError, times of a device that are not all there."""
    if set(seconds) != set(TIMES) or not all(map(math.isfinite, seconds.values())):
        raise ValueError(f"a device's seconds are those of {', '.join(TIMES)}")
    return seconds


Times = Annotated[dict[str, NonNegativeFloat], AfterValidator(_whole)]
