"""Adapt the stored cells to a change of the options: `python -m experiments.upgrade`.

A cell has the value of every option that it was run with, so a changed default needs nothing here:
write the old value into the TOML files to keep the numbers. For the other changes, after the code
has changed::

    python -m experiments.upgrade OLD=NEW            # an option has a new name
    python -m experiments.upgrade --drop KEY=VALUE   # it is gone: cells with another value go, too
    python -m experiments.upgrade --value KEY:A=B    # its value A is now called B
    python -m experiments.upgrade                    # there is a new option, whose default changes
                                                     # no number: its default is added

The TOML files are changed by hand.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.experiment_file import Experiment
from fl_app.sweeps.store import Cell, read_cells, resolved_options, write_cells
from fl_core.options import Scalar, typed

RESULTS = Path("experiments/results")
Options = dict[str, Scalar]


@dataclass
class Upgrade:
    """The changes of options; values are as they are typed."""

    renamed: Mapping[str, str] = field(default_factory=dict)  # from old names of options to new
    # From an option that is gone to the value at which it changed no number.
    dropped: Mapping[str, str] = field(default_factory=dict)
    # From an option and its old value to the new one.
    values: Mapping[tuple[str, str], str] = field(default_factory=dict)
    _known: dict[str, Options] = field(default_factory=dict)

    def cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells with the current options, without those that have none."""
        found = []
        for cell in cells:
            if (options := self._options(cell["options"])) is not None:
                found.append({**cell, "options": options})
        return found

    def _options(self, stored: Mapping[str, Scalar]) -> Options | None:
        options: Options = {}
        for old, value in stored.items():
            key, text = self.renamed.get(old, old), typed(value)
            if key not in self.dropped:
                options[key] = self.values.get((key, text), value)
            elif text != self.dropped[key]:
                return None
        seed = options.pop("seed")
        same = json.dumps(options, sort_keys=True)
        if same not in self._known:
            self._known[same] = resolved_options(Experiment.config({**options, "seed": 0}))
        return {**self._known[same], "seed": seed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the files with changed cells, and print how many cells are left and removed."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.upgrade", description="Adapt stored cells to changed options."
    )
    parser.add_argument("renamed", nargs="*", metavar="OLD=NEW")
    parser.add_argument("--drop", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--value", action="append", default=[], metavar="KEY:OLD=NEW")
    given = parser.parse_args(arguments)
    values = {}
    for word in given.value:
        key, _, pair = word.partition(":")
        old, _, new = pair.rpartition("=")
        values[key, old] = new
    upgrade = Upgrade(_pairs(given.renamed), _pairs(given.drop), values)
    for path in sorted(RESULTS.glob("*.json.xz")):
        before = read_cells(path)
        try:
            after = upgrade.cells(before)
        except ValueError as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            return 2
        if after != before:
            write_cells(path, after)
            print(f"{path.name}: {len(after)} cells, {len(before) - len(after)} are gone")
    return 0


def _pairs(words: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


if __name__ == "__main__":
    sys.exit(main())
