"""What spoils secure sums, and what that costs the others: `python -m benchmarks.secure_liars`.

Twelve clients of mnist-5k in one cluster, of which one or two spoil every sum that they are asked
for; the honest ones' accuracy after ten rounds. Then how far honest clients' mean updates differ in
length, and how soon, and how rightly, spoilers are found if sums are made up. Everything runs in
this process, message by message. docs/measured/robustness.md has it; half an hour of a core.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.writing import RESULTS, markdown, read, write
from fl_app.client_app import app
from fl_app.config.run_config import Config, parse_config
from fl_app.config.systems import Setting, build_strategy, initial_model
from fl_core.federation.federation import Federation, simulate_federation
from fl_core.wire import protocol
from strategies import ClusteredStrategy
from strategies.aggregations.aggregation import ClusterMean
from strategies.engine.rounds import Round
from strategies.secure.spoilers import FEWEST_SEARCHED, Fault, Outcome, Spoilers
from tests.local_grid import LocalGrid

CLIENTS, ROUNDS = 12, 10
MODELS = {"paper": "logistic regression", "mlp": "mlp"}
Change = Callable[[np.ndarray], np.ndarray]
Way = tuple[str, str, Change]

DEFAULTS = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
USUAL = DEFAULTS["tool"]["flwr"]["app"]["config"] | {
    "num-clients": CLIENTS,
    "num-tasks": 1,
    "strategy": "single",
    "num-server-rounds": ROUNDS,
    "evaluate-every": ROUNDS,
}


def _noise(array: np.ndarray) -> np.ndarray:
    bits = np.random.default_rng(1).bytes(array.nbytes)
    return np.frombuffer(bits, array.dtype).reshape(array.shape)


# The message whose answer is spoilt, and the array in it; or the attack, under the mask.
WAYS: dict[str, Way | float] = {
    "garbage as keys": (protocol.query(protocol.PUBLIC_KEYS), protocol.KEYS, _noise),
    "garbage as shares": (protocol.query(protocol.SHARE_KEYS), protocol.SHARES, _noise),
    "garbage as digests": (protocol.query(protocol.SHARE_KEYS), protocol.DIGESTS, _noise),
    "an update of another shape": (protocol.TRAIN, protocol.MASKED, lambda array: array[:1]),
    "garbage under the mask": (protocol.TRAIN, protocol.MASKED, _noise),
    "an update 100 times as long": 100.0,
    "an update 100 times as long, backwards": -100.0,
    "an update 11 times as long, backwards": -11.0,
    "garbage as revealed shares": (protocol.query(protocol.UNMASK), protocol.SHARES, _noise),
}

# Federations of honest clients: how much longer than the others' may a mean update be?
HONEST: tuple[dict[str, Any], ...] = (
    {},
    {"model": "mlp"},
    {"model": "cnn"},
    {"model": "cnn-norm"},
    {"optimizer": "sgd", "learning-rate": 0.05},
    {"optimizer": "sgd", "learning-rate": 0.05, "model": "mlp"},
    {"learning-rate": 0.0003},
    {"learning-rate": 0.03, "model": "mlp"},
    {"partition": "quantity"},
    {"num-tasks": 3, "strategy": "single"},
    {"num-tasks": 3, "strategy": "single", "model": "mlp"},
    {"num-tasks": 3, "strategy": "optimum"},
    {"fraction-train": 0.5},
    {"num-clients": 12},
)
DRAWS = 200  # of parts, in each round


class SpoiltApp(ClientApp):
    """Passes messages on to this project's app, and spoils answers of some clients."""

    def __init__(self, liars: Iterable[int], way: Way) -> None:
        super().__init__()
        self.liars = set(liars)
        self.kind, self.name, self.change = way

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer, and spoil the answer if it is one to be spoilt."""
        answer = app(message, context)
        client = int(str(context.node_config["partition-id"]))
        if client in self.liars and message.metadata.message_type == self.kind:
            arrays = protocol.to_arrays(answer.content.array_records[protocol.ARRAYS])
            spoilt = {**arrays, self.name: self.change(arrays[self.name])}
            answer.content[protocol.ARRAYS] = protocol.to_record(spoilt)
        return answer


def federation_of(config: Config) -> Federation:
    """Return who holds what, and who is malicious."""
    return simulate_federation(config.federation_settings(config.num_clients, config.seed))


def setting_of(config: Config) -> Setting:
    """Return what a strategy is built from."""
    federation = federation_of(config)
    return Setting(config, federation.dataset, config.seed, federation)


def train(
    setting: Setting, client_app: ClientApp, aggregation: ClusterMean | None = None
) -> ClusteredStrategy:
    """Run a simulation's strategy in this process, and return it."""
    config = setting.config
    strategy = build_strategy(
        config.strategy[0],
        setting,
        {
            "seed": config.seed,
            "fraction_train": config.fraction_train,
            "evaluate_every": config.evaluate_every,
            "secure_aggregation": config.secure_aggregation,
        },
    )
    if aggregation is not None:
        strategy.aggregation = aggregation
    count = config.num_clients
    told = ConfigRecord({protocol.SEED: config.seed, protocol.NUM_CLIENTS: count})
    strategy.start(
        LocalGrid(client_app, count, run_config=config.as_run_config()),
        ArrayRecord(initial_model(setting).state_dict()),
        config.num_server_rounds,
        train_config=told,
        evaluate_config=told,
    )
    return strategy


def spoilt(model: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each way to spoil, with one and with two spoilers, and one without any."""
    base = {**USUAL, "model": model, "seed": seed, "secure-aggregation": True}
    rows = []
    for liars, (way, how) in product((1, 2), {"nobody spoils": None, **WAYS}.items()):
        attack = {"attack": "scaled-update", "malicious": liars / CLIENTS}
        malicious = set(federation_of(parse_config({**base, **attack})).malicious)
        if isinstance(how, float):
            setting = setting_of(parse_config({**base, **attack, "attack-scale": how}))
            strategy = train(setting, app)
        else:
            spoiling = app if how is None else SpoiltApp(malicious, how)
            strategy = train(setting_of(parse_config(base)), spoiling)
        honest = {
            client: accuracy
            for client, accuracy in strategy.reports[-1].tested.items()
            if client not in malicious
        }
        out = [
            report.round
            for report in strategy.reports
            if report.left_out_of_sums.keys() >= malicious
        ]
        rows.append(
            {
                "model": model,
                "seed": seed,
                "liars": liars,
                "way": way,
                "accuracy": float(np.mean(list(honest.values()))),
                "left-out-after": min(out, default=None),
                "accused": sorted(strategy.reports[-1].left_out_of_sums.keys() - malicious),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


class Lengths(ClusterMean):
    """A mean that notes how long the mean updates of random parts are, beside each other's."""

    def __init__(self) -> None:
        super().__init__()
        self.among_parts = 0.0
        self.whole: dict[int, list[float]] = {}
        self.rng = np.random.default_rng(0)

    def __call__(self, state: Round) -> Any:
        """Note the lengths, then average."""
        for cluster in sorted({update.cluster for update in state.updates}):
            moved = np.array(
                [
                    np.concatenate(
                        [
                            np.subtract(update.arrays[name], before, dtype=np.float64).ravel()
                            for name, before in update.received.items()
                            if before.dtype.kind == "f"
                        ]
                    )
                    for update in state.updates
                    if update.cluster == cluster
                ]
            )
            self.note(cluster, moved @ moved.T)
        return super().__call__(state)

    def note(self, cluster: int, products: np.ndarray) -> None:
        """Compare the lengths of means over parts, by the products of the updates."""
        self.whole.setdefault(cluster, []).append(float(np.sqrt(products.mean())))
        count = len(products)
        if count < 6:
            return
        for _ in range(DRAWS):
            parts = np.array_split(self.rng.permutation(count), count // 3)
            lengths = np.array([np.sqrt(products[np.ix_(p, p)].mean()) for p in parts])
            others = [np.median(np.delete(lengths, place)) for place in range(len(lengths))]
            self.among_parts = max(self.among_parts, float((lengths / others).max()))

    @property
    def among_rounds(self) -> float:
        """Return how much longer than usual a round's mean has been, all of a cluster together."""
        longest, spoilers = 0.0, Spoilers(np.random.default_rng(0))
        alone = [Outcome(frozenset(range(FEWEST_SEARCHED)))]
        for cluster, own in self.whole.items():
            for length in own:
                if usual := spoilers.usual(cluster):
                    longest = max(longest, length / usual)
                spoilers.learn(cluster, alone, [length])
        return longest


def lengths() -> list[dict[str, Any]]:
    """Return a row for each federation of honest clients."""
    rows = []
    for options in HONEST:
        noted = Lengths()
        train(setting_of(parse_config({**USUAL, "num-clients": 24, **options})), app, noted)
        rows.append(
            {
                **options,
                "among-parts": round(noted.among_parts, 2),
                "among-rounds": round(noted.among_rounds, 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def search(clients: int, liars: int, share: float, rounds: int, seed: int) -> Mapping[str, Any]:
    """Return when spoilers were found, who else was, and how many honest updates counted.

    Each spoiler spoils in a `share` of the rounds. No message is sent: sums are right or not.
    """
    rng = np.random.default_rng(seed)
    spoilers = Spoilers(np.random.default_rng([seed, 1]))
    when: dict[int, int] = {}
    counted = 0
    for number in range(1, rounds + 1):
        here = [client for client in range(clients) if client not in spoilers.left_out]
        lying = {client for client in range(liars) if rng.random() < share}
        parts = spoilers.parts_of(0, here)
        found = [
            Outcome(frozenset(part), Fault.GARBAGE if lying & set(part) else Fault.NONE)
            for part in parts
        ]
        right = [one for one in found if one.fault is Fault.NONE]
        spoilers.learn(0, found, [1.0] * len(right))
        counted += sum(client >= liars for one in right for client in one.clients)
        for client in spoilers.left_out:
            when.setdefault(client, number)
    return {
        "found": [when.get(client, np.inf) for client in range(liars)],
        "accused": sum(client >= liars for client in when),
        "counted": counted / rounds / (clients - liars),
    }


def searches(seeds: int, rounds: int = 30) -> list[dict[str, Any]]:
    """Return a row for each number of clients and spoilers, and how often they spoil."""
    rows = []
    for clients, liars, share in product((6, 9, 12, 25, 60), (1, 2, 5), (1.0, 0.5, 0.2)):
        if 4 * liars > clients:
            continue
        found = [search(clients, liars, share, rounds, seed) for seed in range(seeds)]
        after = np.array([one["found"] for one in found])
        rows.append(
            {
                "clients": clients,
                "spoilers": liars,
                "in-rounds": share,
                "searches": seeds,
                "median-round": _finite(np.quantile(after, 0.5, method="higher")),
                "never": float(np.isinf(after).mean()),
                "accused": int(sum(one["accused"] for one in found)),
                "counted": round(float(np.mean([one["counted"] for one in found])), 3),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _finite(value: float) -> float | None:
    return None if np.isinf(value) else float(value)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return accuracies as Markdown: a row for each way, means over seeds."""
    models = sorted({row["model"] for row in rows})
    columns = list(product(models, (1, 2)))
    heads = [f"{MODELS[model]}, {liars} of {CLIENTS}" for model, liars in columns]
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        cells = []
        for model, liars in columns:
            own = [r for r in rows if (r["model"], r["liars"], r["way"]) == (model, liars, way)]
            rounds = [row["left-out-after"] for row in own]
            said = f"{100 * np.mean([row['accuracy'] for row in own]):.1f}"
            if way in WAYS:
                last = "never" if None in rounds else str(max(rounds))
                said += f" ({last})"
            cells.append(said)
        lines.append([way, *cells])
    return markdown(["what each of them does", *heads], lines)


def search_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the searches as Markdown: when spoilers were found, and who else was."""
    heads = ("clients", "spoilers", "median round", "never found", "honest left out")
    lines = []
    for kind in dict.fromkeys((row["clients"], row["spoilers"]) for row in rows):
        own = [row for row in rows if (row["clients"], row["spoilers"]) == kind]
        own.sort(key=lambda row: -row["in-rounds"])
        rounds = (row["median-round"] for row in own)
        cells = (
            *kind,
            " / ".join("–" if after is None else f"{after:.0f}" for after in rounds),
            " / ".join(f"{row['never']:.0%}" for row in own),
            " / ".join(str(row["accused"]) for row in own),
            " / ".join(f"{row['counted']:.0%}" for row in own),
        )
        lines.append(cells)
    return markdown((*heads, "honest updates that count"), lines)


def main() -> int:
    """Measure what the output file does not have yet; write and print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--output", type=Path, default=RESULTS / "secure-liars.json.xz")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in ("_run_id", "_task_id", "_node_id"):  # messages want to know who makes them
        setattr(TaskIdentity, name, 1)
    found = read(options.output)

    def measured(key: str, measure: Callable[[], list[dict[str, Any]]]) -> None:
        if key not in found:
            found[key] = measure()
            write(found, options.output)

    for model, seed in product(MODELS, range(options.seeds)):
        measured(f"{model}, seed {seed}", partial(spoilt, model, seed))
    measured("lengths", lengths)
    measured("searches", lambda: searches(options.searches))
    print(table([row for key, rows in found.items() if "seed" in key for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
