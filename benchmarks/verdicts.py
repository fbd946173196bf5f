"""Are verdicts right? docs/measured/verdicts.md has the tables.

Digits and clothes cut into tasks, few images for each client, trained here without messages and
tested on many images; and drawn federations, whose gains are known.
`python -m benchmarks.verdicts` needs FL_DATA_DIR.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks import harness
from benchmarks.writing import markdown
from clients.features.compute import feature_map
from fl_app.results.run_result import RunResult
from fl_app.results.verdict import JOIN, SAME, STAY, SeedVerdicts
from fl_app.results.verdicts import verdicts_of
from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.data.folders import cache_dir
from fl_core.partitions.federation import Federation, spread
from fl_core.partitions.noise import add_label_noise
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.validation import split_validation
from strategies import RoundReport
from strategies.catalogue import ALONE

WRONG, FOLDED = ", 30 % of labels wrong", ", five folds"
# By kind, its tasks. With one task no label is another task's: labels are right.
TASKS: dict[str, dict[str, Any]] = {
    "1 task": {"tasks": "0,1,2,3,4,5,6,7,8,9"},
    **{f"{count} tasks{words}": {"num_tasks": count} for words in ("", WRONG) for count in (3, 5)},
    f"3 tasks{FOLDED}": {"num_tasks": 3},
}
DATASETS = ("mnist", "fashion-mnist")
CLIENTS = (8, 20, 60)
SEEDS = range(8)
IMAGES = 2_500
ROUNDS, STEPS, RATE = 6, 8, 0.01  # steps of Adam on all samples, in each round
TARGET = "drawn: gains of 5 ± 4 points, 60 samples"
# By kind, clients' gains by the first of four strategies; the others bring 3/4, 1/2 and 1/4.
DRAWN: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    TARGET: lambda rng, n: rng.normal(0.05, 0.04, n),
    "drawn: four of five +8 points, one −8": lambda rng, n: np.where(
        np.arange(n) % 5 == 4, -0.08, 0.08
    ),
    "drawn: no site gains": lambda rng, n: np.zeros(n),
}
DRAWS = 40
MANY = 10**9  # samples of a test without noise
SHARED = ("single", "optimum", "ditto", "optimum+ditto")
MEANS = ("gain", "observed", "width")
SUMS = (*MEANS, "sites", "lost", "covered", "behind", JOIN, SAME, STAY)
Row = dict[str, Any]


@lru_cache
def _features(name: str) -> tuple[Tensor, Tensor]:
    """Return HoG features, and a 1, of a data set's training images and test images."""
    data, find = load_dataset(name, ""), feature_map("hog", cache_dir=cache_dir())
    found = [find(images) for images in (data.train_samples, data.test_samples)]
    train, test = (torch.cat([rows, torch.ones(len(rows), 1)], dim=1) for rows in found)
    return train, test


def _drawn(name: str, made: Federation, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return each client's images, drawn from its mix of classes.

    They are as many as it had. That mix was exact: an image held out would be missing in training.
    """
    had, truth = (data.train_labels.numpy() for data in (made.dataset, load_dataset(name, "")))
    pools = [rng.permutation(np.flatnonzero(truth == label)) for label in range(10)]
    starts = np.zeros(10, dtype=np.int64)
    found = []
    for mine in made.partition.train:
        mix = np.bincount(had[mine], minlength=10) / len(mine)
        counts = rng.multinomial(len(mine), mix)
        taken = zip(pools, starts, counts, strict=True)
        found.append(np.concatenate([pool[start : start + count] for pool, start, count in taken]))
        starts += counts
    return found


def _stacked(rows: Tensor, labels: Sequence[NDArray[np.int64]], indices: Any) -> tuple[Tensor, ...]:
    """Return clients' samples, labels and weights; the shorter ones are filled up with weight 0."""
    longest = max(map(len, labels))
    samples = torch.zeros(len(labels), longest, rows.shape[1])
    classes = torch.zeros(len(labels), longest, dtype=torch.int64)
    weights = torch.zeros(len(labels), longest)
    for client, (own, where) in enumerate(zip(labels, indices, strict=True)):
        samples[client, : len(own)] = rows[torch.from_numpy(where)]
        classes[client, : len(own)] = torch.from_numpy(own)
        weights[client, : len(own)] = 1 / len(own)
    return samples, classes, weights


def _trained(data: tuple[Tensor, ...], start: Tensor, pulled_to: Tensor | None = None) -> Tensor:
    """Return each client's model after one round; with Ditto's term where it is pulled."""
    samples, classes, weights = data
    models = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([models], RATE)
    for _ in range(STEPS):
        outputs = torch.bmm(samples, models).transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(outputs, classes, reduction="none")
        loss = (losses * weights).sum()
        if pulled_to is not None:
            loss = loss + ((models - pulled_to) ** 2).sum() / 2
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return models.detach()


def _models(data: tuple[Tensor, ...], tasks: NDArray[np.int64], sizes: Tensor) -> dict[str, Tensor]:
    """Return the models of each strategy, clients × features × classes."""
    groups = {"single": np.zeros_like(tasks), "optimum": tasks, ALONE: np.arange(len(tasks))}
    found = {}
    for name, labels in groups.items():
        same = torch.from_numpy(labels[:, None] == labels) * sizes
        mean = same / same.sum(dim=1, keepdim=True)
        shared = torch.zeros(len(tasks), data[0].shape[2], 10)
        personal = shared
        for _ in range(ROUNDS):
            if name != ALONE:
                personal = _trained(data, personal, pulled_to=shared)
            shared = torch.einsum("kj,jfc->kfc", mean, _trained(data, shared))
        found[name] = shared
        if name != ALONE:
            found["ditto" if name == "single" else f"{name}+ditto"] = personal
    return found


def _counts(
    models: dict[str, Tensor], rows: Tensor, labels: Sequence[NDArray[np.int64]], indices: Any
) -> dict[str, list[list[int]]]:
    """Return by strategy, of each client, how often only its model is right, and only the local."""
    right = {
        name: [
            ((rows[torch.from_numpy(where)] @ model).argmax(dim=1).numpy() == own)
            for model, own, where in zip(of_clients, labels, indices, strict=True)
        ]
        for name, of_clients in models.items()
    }
    return {
        name: [
            [int((one & ~alone).sum()), int((alone & ~one).sum())]
            for one, alone in zip(of_clients, right[ALONE], strict=True)
        ]
        for name, of_clients in right.items()
        if name != ALONE
    }


def trained(kind: str, dataset: str, clients: int, seed: int) -> Row:
    """Train a federation; return each client's samples and counts, of validation and of the test.

    Of odd seeds, twice as many samples validate; of folds, all, and the first one's are tested.
    """
    rng = np.random.default_rng(seed)
    options = TASKS[kind] | {"num_clients": clients, "seed": seed, "client_test": "own"}
    made = spread(FederationSettings(dataset=dataset, **options), _part_of(dataset, rng))
    part, data, wrong = made.partition, load_dataset(dataset, ""), kind.endswith(WRONG)
    truth, rows = (data.train_labels.numpy(), data.test_labels.numpy()), _features(dataset)

    def noisy(client: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return labels of which the same one is wrong at a client, whatever the labels."""
        task = part.tasks[part.client_tasks[client]]
        draw = np.random.default_rng([seed, client])
        name = "class-independent" if wrong else "none"
        return add_label_noise(labels, task, part.unintended(client), name, 0.3, draw)

    indices = _drawn(dataset, made, rng)
    labels = [noisy(client, truth[0][mine]) for client, mine in enumerate(indices)]
    tested = [truth[1][where] for where in part.test]
    samples, counts = np.zeros(clients, np.int64), np.zeros((len(SHARED), clients, 2), np.int64)
    is_folded, drawn_by = kind.endswith(FOLDED), rng.bit_generator.state
    for fold in reversed(range(5 if is_folded else 1)):
        rng.bit_generator.state = drawn_by
        share = 0.4 if seed % 2 and not is_folded else 0.2
        masks = [split_validation(own, share, rng, fold) for own in labels]
        train, validation = (
            (
                [own[mask[at]] for own, mask in zip(labels, masks, strict=True)],
                [mine[mask[at]] for mine, mask in zip(indices, masks, strict=True)],
            )
            for at in (0, 1)
        )
        sizes = torch.tensor([len(own) for own in train[0]], dtype=torch.float32)
        models = _models(_stacked(rows[0], *train), part.client_tasks, sizes)
        samples += [len(own) for own in validation[0]]
        found = _counts(models, rows[0], *validation)
        counts += [found[name] for name in SHARED]
    row = {
        "kind": kind,
        "dataset": dataset,
        "seed": seed,
        "samples": samples.tolist(),
        "tests": [len(own) for own in tested],
        "counts": dict(zip(SHARED, counts.tolist(), strict=True)),
        "test": _counts(models, rows[1], tested, part.test),
    }
    if wrong:
        labels = [noisy(client, own) for client, own in enumerate(tested)]
        row["noisy test"] = _counts(models, rows[1], labels, part.test)
    return row


def _part_of(name: str, rng: np.random.Generator) -> Dataset:
    """Return few training images of a data set, and all its test images."""
    data = load_dataset(name, "")
    few = torch.from_numpy(rng.choice(len(data.train_labels), IMAGES, replace=False))
    return replace(data, train_samples=data.train_samples[few], train_labels=data.train_labels[few])


def measure(numbers: harness.Numbers, seeds: list[int]) -> Iterator[str]:
    """Train the federations that are not there yet."""
    harness.one_thread()
    rows = numbers.setdefault("rows", [])
    done = {(row["kind"], row["dataset"], len(row["tests"]), row["seed"]) for row in rows}
    for seed, clients, dataset, kind in product(seeds, CLIENTS, DATASETS, TASKS):
        is_large = kind.endswith(FOLDED) and clients == max(CLIENTS)  # not by default
        if (kind, dataset, clients, seed) not in done and not is_large:
            rows.append(trained(kind, dataset, clients, seed))
            yield f"{kind}, {dataset}, {clients} clients, seed {seed}"
    known = (drawn(*of) for of in product(DRAWN, CLIENTS, range(DRAWS)))
    numbers["judged"] = [judged(row) for row in (*rows, *known)]
    yield "all are judged"


def drawn(kind: str, clients: int, seed: int) -> Row:
    """Return a federation with known gains by four strategies, in place of those of a test."""
    rng = np.random.default_rng([seed, clients, list(DRAWN).index(kind)])
    samples = np.full(clients, 60) if kind == TARGET else rng.integers(5, 121, clients)
    counts, test = {}, {}
    for share, name in zip((1, 0.75, 0.5, 0.25), SHARED, strict=True):
        gains = share * DRAWN[kind](rng, clients)
        differing = np.maximum(0.2 * rng.uniform(0.5, 1.5, clients), np.abs(gains) + 0.01)
        wins = rng.binomial(samples, (differing + gains) / 2)
        losing = (differing - gains) / (2 - differing - gains)
        counts[name] = np.stack([wins, rng.binomial(samples - wins, losing)], axis=1).tolist()
        exact = np.rint(MANY * np.stack([differing + gains, differing - gains], axis=1) / 2)
        test[name] = exact.tolist()
    return {
        "kind": kind,
        "seed": seed,
        "samples": samples.tolist(),
        "tests": [MANY] * clients,
        "counts": counts,
        "test": test,
    }


def _verdicts(row: Row) -> SeedVerdicts:
    """Return the verdicts of a federation by its clients' counts."""
    runs = []
    for name in (ALONE, *row["counts"]):
        pairs = row["counts"].get(name, [None] * len(row["samples"]))
        validated = {
            client: {"": [count, 0.5, 0.0], **({ALONE: pair} if pair else {})}
            for client, (count, pair) in enumerate(zip(row["samples"], pairs, strict=True))
            if count
        }
        report = RoundReport(1, 0, validated=validated)
        clusters = dict.fromkeys(range(len(pairs)), 0)
        runs.append(RunResult.of_reports(name, 0, len(pairs), clusters, [report], label=name))
    return cast("SeedVerdicts", verdicts_of(runs))


def judged(row: Row) -> Row:
    """Return what is counted of a federation: sums over its clients.

    Gains are those of the test, whose noise an interval may miss; with its labels as wrong as those
    of the client, if they are, for the interval alone.
    """
    found, tests = _verdicts(row), np.array(row["tests"])
    known = row["noisy test" if "noisy test" in row else "test"]
    true, labelled = (
        {name: np.array(pairs) @ (1, -1) / tests for name, pairs in of_test.items()}
        for of_test in (row["test"], known)
    )
    pooled = max(found.means, key=lambda name: found.means[name][0])
    sums: dict[str, float] = defaultdict(float)
    for one in found.clients:
        client, name, shown = one.client, one.compared, one.gain
        gain, measured = true[name][client], labelled[name][client]
        noise = (sum(known[name][client]) / tests[client] - measured**2) / tests[client]
        reach = np.hypot(
            (shown.low if measured < shown.mean else shown.high) - shown.mean,
            1.96 * np.sqrt(max(noise, 0)),
        )
        best = true[pooled][client] if found.means[pooled][0] > 0 else 0
        advised = 0 if one.strategy == ALONE else true[one.strategy][client]
        sums[one.verdict] += 1
        sums["lost"] += one.verdict == JOIN and gain <= 0
        sums["covered"] += abs(measured - shown.mean) <= reach
        values = (gain, shown.observed, shown.high - shown.low, 1, best - advised)
        for key, value in zip((*MEANS, "sites", "behind"), values, strict=True):
            sums[key] += value
    return {"kind": row["kind"], "seed": row["seed"], **{k: float(v) for k, v in sums.items()}}


def _share(top: NDArray[np.float64], of: NDArray[np.float64]) -> str:
    """Return the share of sums in percent, and its interval over federations."""
    if not of.sum():
        return "–"
    draws = np.random.default_rng(0).integers(len(of), size=(1000, len(of)))
    shares = top[draws].sum(axis=1) / np.maximum(of[draws].sum(axis=1), 1)
    low, high = 100 * np.quantile(shares, (0.025, 0.975))
    return f"{100 * top.sum() / of.sum():.1f} ({low:.1f} to {high:.1f})"


def outcomes(rows: Sequence[Row]) -> str:
    """Return a row for each kind: what clients are advised, how often it is wrong, what it gains.

    Intervals of 95 % are those of 1,000 draws of as many federations, with replacement.
    """
    heads = (
        *("federations", "sites", "mean gain", "observed", "join %", "of them lose %"),
        *("no difference", "stay alone", "intervals with the gain %", "their width"),
        "advice below best for all",
    )
    lines = []
    for kind in (*TASKS, *DRAWN):
        some = [row for row in rows if row["kind"] == kind]
        if not some:
            continue
        sums = {key: np.array([row.get(key, 0.0) for row in some]) for key in SUMS}
        sites = sums["sites"]
        gain, observed, width = (100 * sums[k].sum() / sites.sum() for k in MEANS)
        lines.append(
            [
                *(f"{kind}: {len(some)}", f"{sites.sum():,.0f}"),
                *(f"{value:+.1f}" for value in (gain, observed)),
                *(_share(sums[JOIN], sites), _share(sums["lost"], sums[JOIN])),
                *(f"{sums[word].sum():.0f}" for word in (SAME, STAY)),
                *(_share(sums["covered"], sites), f"{width:.1f}", _share(sums["behind"], sites)),
            ]
        )
    return markdown(heads, lines)


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the tables of docs/measured/verdicts.md."""
    return {
        title: outcomes([row for row in numbers["judged"] if row["seed"] % 4 in seeds])
        for title, seeds in {"chosen on": (0, 1), "confirmed on": (2, 3)}.items()
    }


if __name__ == "__main__":
    harness.command(__doc__, "verdicts", measure, tables, seeds=list(SEEDS))
