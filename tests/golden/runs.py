"""The golden runs: each fills a folder with its results."""

from __future__ import annotations

import csv
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_breast_cancer

from fl_app.cli import TRIAL, main
from tests.app_runs import DEFAULTS, run, undrawn_pictures
from tests.device_images import write_sites
from tests.device_runs import run as run_on_devices
from tests.own_modules import run_alone

STRATEGIES = "rcc-pfl,fedkin,optimum,fedavg,local"


def readme(folder: Path) -> None:
    """Run what `make run` does, with the first of its three seeds."""
    run(
        folder,
        clients=25,
        strategy=STRATEGIES,
        noise="class-dependent",
        num_server_rounds=20,
        evaluate_every=4,
        learning_rate=0.003,
        batch_size=32,
    )


def every_strategy(folder: Path) -> None:
    """Run all strategies, those with an objective of their own too, with two seeds."""
    encoder = {"encoder": "mnist-5k", "fine_tune": "refresh"}  # `auto` would need files
    run(folder / "groupings", strategy="all", repeats=2, **encoder)
    run(folder / "objectives", strategy="fedprox,ditto,fedper,fedrep", model="mlp-32")


def trial_on_tables(folder: Path) -> None:
    """Give ten sites of breast cancer data their verdicts."""
    _write_tables(folder / "sites")
    options = {"dataset": "tables", "data-dir": str(folder / "sites"), "label": "target"}
    options |= {"num-clients": 10, "num-server-rounds": 4, "tune": "learning-rate=0.001,0.01"}
    run_alone({**DEFAULTS, **TRIAL, **options, "output-dir": str(folder / "out")})


def group_and_place(folder: Path) -> None:
    """Group the sites but one, which is placed then."""
    sites = folder / "sites"
    _write_tables(sites)
    (folder / "newcomer/sites").mkdir(parents=True)
    newcomer = (sites / "jena.csv").rename(folder / "newcomer/sites/jena.csv")
    data = ("dataset=tables", f"data-dir={sites}", "features=raw")
    given = ("num-clusters=2", "keep-spectra=true")
    _fedkin("group", *data, *given, f"output-dir={folder / 'out'}")
    with (folder / "placed.txt").open("w") as file, redirect_stdout(file):
        _fedkin("place", str(folder / "out"), "--data-path", str(newcomer))
    _fedkin("group", *data, "num-clusters=auto", f"output-dir={folder / 'auto'}")


def resumed(folder: Path) -> None:
    """Interrupt a run in the second of its strategies, and resume it."""
    starts = []

    def stop(message: Any, context: Any, answer: Any) -> Any:
        told = message.content.config_records["config"]
        if message.metadata.message_type == "train" and told["server-round"] == 2:
            starts.append(told)
        if len(starts) == 2:
            raise KeyboardInterrupt
        return answer

    options: dict[str, Any] = {"strategy": "local,fedhc,ifca,fedprox", "checkpoint_every": 1}
    options |= {"validation_share": 0.25, "num_server_rounds": 3}
    with pytest.raises(KeyboardInterrupt):
        run(folder, **options, corrupt={("train", 0): stop})
    run(folder, **options, resume=str(folder))


def devices(folder: Path) -> None:
    """Train on four devices with images of their own."""
    folders = write_sites(folder / "sites")
    kept = {name: folder / f"models/{name}.safetensors" for name in folders}
    (folder / "models").mkdir()
    options = {"strategy": "rcc-pfl,local", "validation_share": 0.25, "model-paths": kept}
    run_on_devices(folder / "out", folders, **options)


def _write_tables(folder: Path) -> None:
    """Cut scikit-learn's breast cancer table into ten sites, half of which measure in inches."""
    names = ["athens", "berlin", "cairo", "delhi", "essen"]
    names += ["fes", "genoa", "hanoi", "izmir", "jena"]
    data = load_breast_cancer()
    folder.mkdir()
    columns = [str(name) for name in data.feature_names]
    for place, name in enumerate(names):
        with (folder / f"{name}.csv").open("w", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, "laboratory", "target"])
            for row in range(place, len(data.target), len(names)):
                lengths = 2.54 if place % 2 else 1.0
                numbers = [
                    repr(value / lengths if "radius" in column else value)
                    for column, value in zip(columns, map(float, data.data[row]), strict=True)
                ]
                label = ("malignant", "benign")[data.target[row]]
                writer.writerow([*numbers, ("north", "south")[row % 3 % 2], label])


def _fedkin(*words: str) -> None:
    with undrawn_pictures():
        status = main([*words])
    if status:
        raise RuntimeError(f"fedkin {words[0]} ended with {status}")


RUNS = {
    "readme": readme,
    "all": every_strategy,
    "trial": trial_on_tables,
    "group": group_and_place,
    "resumed": resumed,
    "devices": devices,
}
