"""Results folders as runs leave them, made by hand for reports."""

import csv
import json
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from fl_app.results.layout import similarity_path
from fl_app.results.schema import Run
from fl_core.json_records import checker
from tests.app_runs import DEFAULTS

EVIL = "</script><img src=x onerror=alert(1)>"
BYTES = ("pre-round-up", "pre-round-down", "train-up", "train-down", "evaluate-up", "evaluate-down")


def read_runs(entries):
    """Return runs from their entries in a summary.json."""
    return checker(list[Run]).validate_python(entries)


def failed(client, reason, step="describe", rounds=(0,)):
    """Return a failure as a run of a summary.json has it."""
    return {"client": client, "step": step, "rounds": list(rounds), "reason": reason}


def reasons_of(run):
    """Return why clients were left out of a run of a summary.json, by client."""
    return {
        one["client"]: one["reason"]
        for one in run["failures"]
        if run["clusters"][one["client"]] < 0
    }


def write_results(
    folder: Path,
    *,
    clients=6,
    seeds=2,
    strategies=("rcc-pfl", "single"),
    names=None,
    late=0,
    options=None,
    change=None,
):
    """Write what a run leaves of so many clients in two tasks, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(clients)
    runs, rows = [], []
    for seed in range(seeds):
        tasks = [client % 2 for client in range(clients)]
        for strategy in strategies:
            grouped = strategy not in ("single",)
            accuracies = np.round(rng.uniform(0.8 if grouped else 0.5, 1, clients), 3).tolist()
            clusters = tasks if grouped else [0] * clients
            runs.append(
                {
                    "strategy": strategy,
                    "seed": seed,
                    "num-clients": clients,
                    "rounds": 2,
                    "accuracy": float(np.mean(accuracies)),
                    "accuracy-per-client": accuracies,
                    "accuracy-variance": float(np.var(accuracies)),
                    "clusters": list(clusters),
                    **({"names": list(names), "models-not-stored": {}} if names else {}),
                    **({} if names else {"tasks": tasks, "ari": 1.0 if grouped else 0.0}),
                    "bytes": dict.fromkeys(BYTES, 1000 * clients),
                    "seconds": {"pre-round": 1.0, "train": 2.0, "evaluate": 0.5, "total": 4.0},
                    "failures": [],
                }
            )
            rows += [(strategy, seed, number, 0.4 * number) for number in (1, 2)]
            if grouped:
                write_matrix(folder, strategy, seed, tasks, late)
    summary = {
        "version": 1,
        "config": {**DEFAULTS, "strategy": ",".join(strategies), **(options or {})},
        "versions": {"python": "3.11.2", "fedkin": "0.1.0"},
        "runs": runs,
        "table": [],
    }
    if change:
        change(summary)
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("strategy", "seed", "round", "accuracy"))
        writer.writerows(rows)
    return folder


def write_matrix(folder, strategy, seed, tasks, late=0):
    """Write the similarity of clients; the last `late` of them came later."""
    clients = len(tasks)
    if clients > 2000:
        return
    values = np.where(np.equal.outer(tasks, tasks), 0.9, 0.4) + 0.01 * seed
    np.fill_diagonal(values, 1)
    first = clients - late
    values[first:, first:] = np.nan
    merges = linkage(squareform(1 - values[:first, :first], checks=False), "average")
    np.savez_compressed(
        similarity_path(folder, strategy, seed),
        clients=np.arange(clients),
        similarity=values,
        merges=merges,
        measure=np.array("relevance"),
    )


def write_grouping(folder: Path, names, change=None):
    """Write what a grouping without training leaves, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(names)
    clusters = [client % 2 for client in range(count)]
    near = np.where(np.equal.outer(clusters, clusters), 0.9, 0.4)
    np.fill_diagonal(near, 1)
    cut = fcluster(linkage(squareform(1 - near, checks=False), "average"), 2, "maxclust")
    assert len(set(cut)) == 2
    found = {
        "version": 1,
        "clients": list(names),
        "clusters": clusters,
        "together": near.tolist(),
        "relevance": near.tolist(),
        "certainty": [0.99] * (count - 1) + [0.61],
        "in_doubt": [
            {"client": names[-1], "cluster": clusters[-1], "other_cluster": 0, "share": 0.39}
        ],
        "num_clusters": {
            "chosen": 2,
            "why": "the widest gap between merges is after 2",
            "candidates": [
                {"num_clusters": 2, "score": 0.5, "resamples": 0.9},
                {"num_clusters": 3, "score": 0.1, "resamples": 0.1},
            ],
        },
        "bytes": {"pre_round_per_client": 26000, "round_per_client": 355000},
        "outliers": {},
        "resamples": 100,
        "command": "fedkin group num-clients=6",
    }
    if change:
        change(found)
    (folder / "grouping.json").write_text(json.dumps(found), encoding="utf-8")
    return folder
