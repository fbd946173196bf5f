"""What the ± of FLT's tables are: how well one accuracy is known, not how much runs differ."""

import math
import tomllib
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TABLES = ("flt-1", "flt-1-cifar10", "flt-2", "flt-2-cifar10", "flt-5")  # I, II and V
TEST_IMAGES = 10_000  # of MNIST, and of CIFAR-10


def published(name):
    """Yield the accuracies of a table, in percent, with their ±."""
    experiment = tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text(encoding="utf-8"))
    for columns in experiment["published"]["accuracy"].values():
        for methods in columns.values():
            yield from methods.values()


def test_they_are_standard_errors_of_a_share_of_the_test_images():
    cells = [cell for name in TABLES for cell in published(name)]
    errors = [100 * math.sqrt(a / 100 * (1 - a / 100) / TEST_IMAGES) for a, _ in cells]
    others = [
        cell
        for cell, error in zip(cells, errors, strict=True)
        if abs(cell[1] - error) > 0.011  # one in the last digit
    ]
    assert len(cells) == 46
    assert others == [[75.35, 0.4], [96.58, 0.17], [72.55, 0.46]]
