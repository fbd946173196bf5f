"""Does a new client find its cluster, or that it fits nobody? `python -m benchmarks.placing`.

docs/measured/grouping.md has what this prints with the missed energy. Each client in turn is new to
the clusters of all others (their true tasks), and each client of a task is new to those of the
other tasks. No model is trained and no message is sent.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.certainty import FEDERATIONS, sites
from benchmarks.writing import markdown, write
from clients.signatures.spectrum import leading_spectrum
from fl_app.group.placing import place
from fl_app.results.spectra import KeptSpectra, SpectraCard
from fl_core.relevance import MISSED_ENERGY, PAPER, USUAL_EIGENVECTORS

IMAGES = (10, 40)


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each federation, number of images and formula."""
    for options, images in product(FEDERATIONS, IMAGES):
        for formula in (PAPER, MISSED_ENERGY):
            k = USUAL_EIGENVECTORS[formula]
            known: dict[str, list[bool]] = {"right": [], "fits": [], "sure": [], "strange": []}
            for seed in range(seeds):
                own = sites(images, seed, **options)
                vectors = [leading_spectrum(one, k).eigenvectors for one in own.features]
                for client, features in enumerate(own.features):
                    task = own.tasks[client]
                    at_home = np.flatnonzero(np.arange(len(vectors)) != client)
                    abroad = np.flatnonzero(own.tasks != task)
                    for others, is_home in ((at_home, True), (abroad, False)):
                        card = SpectraCard(
                            *("rcc-pfl", seed, "hog", formula, k, (1, 28, 28), False),
                            names=tuple(map(str, others)),
                        )
                        kept = KeptSpectra(card, own.tasks[others], [vectors[o] for o in others])
                        found = place(features, kept, resamples=20 if is_home else 0)
                        if is_home:
                            known["right"].append(found.cluster == task)
                            known["fits"].append(found.fits)
                            known["sure"].append(found.share >= 0.9)
                        else:
                            known["strange"].append(not found.fits)
            yield {
                **options,
                "images": images,
                "relevance": formula,
                **{name: round(float(np.mean(values)), 3) for name, values in known.items()},
            }


def table(measured: Mapping[str, Any]) -> str:
    """Return the shares of each federation with the missed energy, as Markdown."""
    kinds = ("right", "fits", "strange")
    heads = ["federation", *(f"{count} images: {kind}" for count in IMAGES for kind in kinds)]
    rows: dict[str, list[str]] = {}
    for cell in measured["cells"]:
        if cell["relevance"] == MISSED_ENERGY:
            minority = f", minority {cell['minority']}" if "minority" in cell else ""
            name = f"{cell['dataset']}, {cell['num_tasks']} tasks{minority}"
            rows.setdefault(name, []).extend(f"{cell[kind]:.2f}" for kind in kinds)
    return markdown(heads, ((name, *own) for name, own in rows.items()))


def main() -> None:
    """Measure, print a row for each cell, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    rows = []
    for row in measure(options.seeds):
        print(json.dumps(row), flush=True)
        rows.append(row)
    if options.output is not None:
        write({"seeds": options.seeds, "cells": rows}, options.output)


if __name__ == "__main__":
    main()
