"""What must not count for a run does not, whatever its options: to the bit.

Strategies, options and values are drawn from all that there are. A run is made again; then answers
come in another order, and after some checkpoint it is interrupted and resumed.
"""

import contextlib
import csv
import json
import random

import pytest

from fl_app.config.run_config import OPTIONS, parse_config
from fl_app.results.layout import CHECKPOINTS, WHOLE
from fl_app.run import checkpoints
from fl_core.objectives.known import OBJECTIVES
from strategies.catalogue import AGGREGATIONS, CLUSTERINGS, SYSTEMS
from tests.app_runs import DEFAULTS, models_of, run, untrained_encoder, whole_space
from tests.samples import sampled

pytestmark = pytest.mark.slow

CASES = 60
NUMBERS = (0, 1, 2, 3, 0.05, 0.3, 0.7, 5.0)
# Data, models and files that are not here, and what makes a run long or lets it diverge.
FIXED = {
    *("output-dir", "resume", "data-dir", "figure-format", "track", "device"),
    *("dataset", "label", "target", "standardise", "train-share", "features"),
    *("model", "loss", "metric", "encoder", "fine-tune", "common-layers", "private-layers"),
    *("num-clients", "clients-per-task", "tasks", "heterogeneity", "tune", "seed", "strategy"),
    *("num-server-rounds", "repeats", "checkpoint-every", "secure-aggregation"),
    *("pre-round-deadline", "round-deadline", "min-answers"),
    *("batch-size", "local-epochs", "learning-rate", "weight-decay"),
}


def allowed(key):
    """Return some values of an option."""
    found = []
    for value in (*OPTIONS[key].rule.words, True, False, *NUMBERS):
        try:
            OPTIONS[key].rule.read(key, value)
        except ValueError:
            continue
        found.append(value)
    return found


VALUES = {key: allowed(key) for key in sorted(OPTIONS) if key not in FIXED}


def drawn_strategy(rng):
    """Return a strategy's name; fedbn needs another model."""
    if rng.random() < 0.5:
        return rng.choice([name for name in SYSTEMS if name != "fedbn"])
    aggregation, objective = ([*kinds] for kinds in (AGGREGATIONS, OBJECTIVES))
    objective.remove("private-norms")
    return "+".join(map(rng.choice, ([*CLUSTERINGS], aggregation, objective)))


def draw(rng):
    """Return options that go together."""
    while True:
        names = [drawn_strategy(rng) for _ in range(3)]
        options = {key: rng.choice(VALUES[key]) for key in rng.sample([*VALUES], 6)}
        options |= {"strategy": ",".join(dict.fromkeys(names)), "num-tasks": 2, "model": "mlp-32"}
        if is_allowed(options):
            return options


def is_allowed(options):
    try:
        parse_config({**DEFAULTS, "num-clients": 6, **options})
    except ValueError:
        return False
    return True


class StoppedError(Exception):
    pass


def stop_after(count, patch):
    """Interrupt a run once it has written so many checkpoints."""
    write, written = checkpoints.save_checkpoint, []

    def save(path, state):
        write(path, state)
        written.append(path)
        if len(written) == count:
            raise StoppedError

    patch.setattr(checkpoints, "save_checkpoint", save)


def outcome(folder, options, **more):
    """Run and return all numbers and models of each strategy, or why it failed.

    None, if it is refused.
    """
    given = {key.replace("-", "_"): value for key, value in options.items()}
    try:
        summary = run(folder, **given, **more)
    except ValueError:
        return None
    except RuntimeError as error:
        return str(error)
    found = [summary["table"]]
    for name in ("metrics.csv", "clients.csv"):
        with (folder / name).open(encoding="utf-8") as file:
            rows = csv.DictReader(file)
            found += [[(k, v) for k, v in row.items() if "seconds" not in k] for row in rows]
    for one in summary["runs"]:
        found.append({k: v for k, v in one.items() if k != "seconds"})
        for name, model in models_of(folder, one["strategy"]).items():
            found.append((name, {key: array.tobytes() for key, array in model.items()}))
    return found


@pytest.mark.parametrize("case", sampled(range(CASES), 20))
def test_a_run_is_the_same_however_it_came_about(case, tmp_path, monkeypatch):
    rng = random.Random(case)  # noqa: S311
    monkeypatch.setattr("strategies.clusterings.flt.embed_signatures", whole_space)
    encoder = untrained_encoder(tmp_path)
    wanted = None
    while wanted is None:
        options = encoder | draw(rng)
        wanted = outcome(tmp_path / "plain", options)

    again = options | {"checkpoint-every": 1}
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_after(rng.randrange(1, 6), patch)
        with contextlib.suppress(StoppedError):
            outcome(folder, again, order=reversed)
    if [*(folder / CHECKPOINTS).glob(WHOLE)]:
        again["resume"] = str(folder)
    else:  # it had written no more than what clients keep
        folder = tmp_path / "again"
    found = outcome(folder, again, order=reversed)
    assert found == wanted, json.dumps(options)
