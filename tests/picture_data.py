"""Results as pictures show them, drawn at random: the same each time."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from fl_app.report.pictures import ClientScore

TWELVE = (
    *("rcc-pfl", "optimum", "random", "single", "local", "ifca", "ifca-pfl", "fedhc", "flt"),
    *("mt-hfl", "recursive bipartition of clients as in CFL", "pca+k-means+hc"),
)


def similar(clients, groups):
    """Return relevance, merges, clusters and tasks of shuffled clients."""
    rng = np.random.default_rng(clients)
    tasks = rng.permutation(np.arange(clients) % groups)
    noise = rng.normal(0, 0.02, (clients, clients))
    relevance = np.where(tasks[:, None] == tasks, 0.93, 0.45) + (noise + noise.T) / 2
    np.fill_diagonal(relevance, 1.0)
    if clients == 1:
        return relevance, np.zeros((0, 4)), [0], [0]
    merges = linkage(squareform(1 - relevance, checks=False), "average")
    clusters = fcluster(merges, groups, "maxclust")
    return relevance, merges, [int(c) for c in clusters], [int(t) for t in tasks]


def curves(names, seeds, rounds):
    rng = np.random.default_rng(seeds)
    steps = np.arange(rounds)
    top = rng.uniform(0.8, 0.97, (len(names), seeds, 1))
    return {
        name: (steps, level * (1 - np.exp(-(steps + 1) / 5)))
        for name, level in zip(names, top, strict=True)
    }


def accuracies(names, seeds, clients):
    rng = np.random.default_rng(seeds)
    return {name: rng.uniform(0.6, 1.0, (seeds, clients)) for name in names}


def costs(names, seeds):
    rng = np.random.default_rng(seeds)
    return {n: (rng.choice([25.0, 51.0], seeds), rng.uniform(0.7, 0.97, seeds)) for n in names}


def labels(clients, classes):
    """Return counts with noise, counts without and tasks."""
    rng = np.random.default_rng(clients)
    before = rng.integers(5, 200, (clients, classes))
    after = before.copy()
    moved = before[:, 0] // 4
    after[:, 0] -= moved
    after[:, -1] += moved
    return after, before, [int(t) for t in rng.permutation(np.arange(clients) % 3)]


def as_tested(found, names=None):
    """Return accuracies, (S, K) by strategy, as the picture of clients takes them."""
    return {
        name: [
            ClientScore(float(value), str(client) if names is None else names[name][seed][client])
            for seed, row in enumerate(values)
            for client, value in enumerate(row)
        ]
        for name, values in found.items()
    }


def rows_of(layer):
    """Return the data of a layer or a panel."""
    return layer["data"]["values"]


def marked(spec, mark):
    """Return the layers of a picture that have a mark."""
    found = [
        one["mark"] if isinstance(one["mark"], str) else one["mark"]["type"]
        for one in spec["layer"]
    ]
    return [one for one, kind in zip(spec["layer"], found, strict=True) if kind == mark]
