"""Local objectives by their options, on real images: what is tested, kept and given back."""

import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_app.classify import classify
from fl_app.config.run_config import parse_config
from fl_app.results.layout import file_name, models_folder
from fl_app.simulation.simulated_clients import Simulation
from fl_core.data.datasets import load_dataset
from fl_core.models.checkpoint import load_checkpoint
from tests.app_runs import ALL_STEPS, DEFAULTS, LARGE_STEPS, SGD, models_of, of_strategy, run
from tests.processes import fedkin, wait_for_line

TESTED = (
    "single,fedprox,ditto,fedper,fedrep,fedbn,fedavg-ft,pacfl,apfl,pfedme,scaffold,"
    "spectral+graph+ditto"
)
KEEPING = "ditto,fedper,spectral+mean+private-head"
SMALL = {**LARGE_STEPS, "model": "mlp-32", "head_epochs": 1, "clients": 6}
HEAD = (32 * 10 + 10) * 4  # bytes of mlp-32's last layer
MODEL = (784 * 32 + 32) * 4 + HEAD


def config(**options):
    return parse_config({**DEFAULTS, **{k.replace("_", "-"): v for k, v in options.items()}})


class KilledError(BaseException):
    """Not an exception that anything on the way would survive."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    options = {"strategy": KEEPING, "num_server_rounds": 5, "checkpoint_every": 2}
    return folder, run(folder, **SMALL, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPING.split(","))
def test_what_is_private_is_not_sent(whole, name):
    one = of_strategy(whole[1], name)
    keeps_head = name != "ditto"
    sent = MODEL - HEAD if keeps_head else MODEL
    up, down = one["bytes"]["train-up"], one["bytes"]["train-down"]
    assert 5 * 6 * sent < up < 5 * 6 * sent * 1.02
    assert down - 5 * 6 * sent < (6 * HEAD if keeps_head else 0) + 5 * 6 * sent * 0.02
    assert one["accuracy"] > 0.6


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """Return a run's results, and a folder of each client's test images by class."""
    folder = tmp_path_factory.mktemp("tested")
    options = {**LARGE_STEPS, "model": "cnn-norm", "head_epochs": 1, "pfedme_weight": 1.0}
    summary = run(folder / "out", strategy=TESTED, clients=3, num_tasks=2, **options)
    data, parts = load_dataset("mnist-5k"), np.load(folder / "out/partition-seed-0.npz")
    for client in range(3):
        for index in parts[f"test-{client}"]:
            path = folder / f"{client}/{data.test_labels[index]}/{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.test_samples[index, 0].numpy()).save(path)
    return folder, summary


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTED.split(","))
def test_a_saved_model_is_the_one_that_was_tested(tested, name):
    folder, summary = tested
    one = of_strategy(summary, name)
    for client, accuracy in enumerate(one["accuracy-per-client"]):
        models = models_folder(folder / "out", name, 0)
        names = (f"client-{client}", f"cluster-{one['clusters'][client]}")
        (path,) = [p for n in names if (p := models / f"{n}.safetensors").exists()]
        assert classify(path, folder / str(client), output=folder / "rows.csv") == 0
        with (folder / "rows.csv").open() as file:
            right = [Path(row["path"]).parent.name == row["class"] for row in csv.DictReader(file)]
        assert np.mean(right) == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.slow
@pytest.mark.faults
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(whole, tmp_path, monkeypatch):
    """Clients have trained further than the checkpoint of round 2 knows."""
    folder, undisturbed = whole
    options = {**SMALL, "strategy": KEEPING, "num_server_rounds": 5, "checkpoint_every": 2}
    usual = Simulation.after_round

    def after_round(self, report, strategy, show):
        usual(self, report, strategy, show)
        if report.round == 3:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "after_round", after_round)
        with pytest.raises(KilledError):
            run(tmp_path / "out", **options)
    summary = run(tmp_path / "out", **options, resume=str(tmp_path / "out"), output_dir="")
    for name in KEEPING.split(","):
        found, wanted = (of_strategy(one, name) for one in (summary, undisturbed))
        assert {**found, "seconds": 0} == {**wanted, "seconds": 0}
        ours, theirs = models_of(tmp_path / "out", name), models_of(folder, name)
        assert {n: {k: a.tobytes() for k, a in m.items()} for n, m in ours.items()} == {
            n: {k: a.tobytes() for k, a in m.items()} for n, m in theirs.items()
        }


@pytest.mark.slow
def test_a_checkpoint_has_each_clients_own_part(whole):
    folder, _ = whole
    path = folder / "checkpoints" / f"{KEEPING.split(',')[1]}-seed-0.safetensors"
    states = load_checkpoint(path)["states"]
    assert list(states) == list(range(6))
    assert {tuple(sorted(s["arrays"])) for s in states.values()} == {
        ("output.bias", "output.weight")
    }
    assert {state["round"] for state in states.values()} == {5}
    assert len({state["arrays"]["output.bias"].tobytes() for state in states.values()}) == 6


@pytest.mark.slow
def test_newcomers_keep_their_own_part_too(tmp_path):
    options = {**SMALL, "clients": 8, "newcomers": 2, "newcomer_round": 2}
    options |= {"strategy": "fedper,spectral+mean+ditto", "num_server_rounds": 3}
    summary = run(tmp_path, **options, checkpoint_every=3)
    for name in ("fedper", "spectral+mean+ditto"):
        one = of_strategy(summary, name)
        assert one["failures"] == []
        assert len(one["newcomers"]) == 2
        path = tmp_path / f"checkpoints/{file_name(name)}-seed-0.safetensors"
        assert len(load_checkpoint(path)["states"]) == 8


@pytest.mark.slow
def test_fedbn_keeps_norms_and_fedprox_is_fedavg_without_a_pull(tmp_path):
    options = {**SGD, "clients": 4, "num_tasks": 2, "num_server_rounds": 1, "model": "cnn-norm"}
    summary = run(
        tmp_path, strategy="fedbn,fedprox,fedavg", local_epochs=1, prox_weight=0, **options
    )
    first, second = (models_of(tmp_path, "fedbn")[f"client-{client}"] for client in range(2))
    differ = {name for name in first if not np.array_equal(first[name], second[name])}
    assert differ == {name for name in first if name.startswith("norm")}
    prox, plain = (models_of(tmp_path, name)["cluster-0"] for name in ("fedprox", "fedavg"))
    assert {n: a.tobytes() for n, a in prox.items()} == {n: a.tobytes() for n, a in plain.items()}
    assert "norm1.running_mean" in plain
    assert np.isfinite(of_strategy(summary, "fedbn")["accuracy-per-client"]).all()


@pytest.mark.slow
@pytest.mark.faults
def test_ditto_without_a_pull_is_every_client_alone(tmp_path):
    options = {**SMALL, "ditto_weight": 0, "num_server_rounds": 2}
    summary = run(tmp_path, strategy="ditto,local,tasks+mean+ditto", **options)
    alone = of_strategy(summary, "local")["accuracy-per-client"]
    assert of_strategy(summary, "ditto")["accuracy-per-client"] == alone
    assert of_strategy(summary, "tasks+mean+ditto")["accuracy-per-client"] == alone


@pytest.mark.slow
@pytest.mark.faults
def test_what_fedper_trains_has_noise_if_training_epsilon_says_so(tmp_path):
    options = {**SMALL, "clients": 3, "strategy": "single+mean+private-layers"}
    options |= {"num_server_rounds": 1, "local_epochs": 1, "batch_size": 1000}
    found = {}
    for epsilon in (0, 8):
        summary = run(tmp_path / str(epsilon), training_epsilon=epsilon, **options)
        assert [one["failures"] for one in summary["runs"]] == [[]]
        found[epsilon] = models_of(tmp_path / str(epsilon), "single+mean+private-layers")
    plain, noisy = (found[epsilon]["client-0"]["hidden.weight"] for epsilon in (0, 8))
    # Of two pixels that no image has ink in, all that gradients do is the same, noise is not.
    differences = noisy - plain
    assert np.abs(differences[:, 0] - differences[:, 1]).max() > 1e-5


DP = {"training_epsilon": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "scaffold"}, "optimizer is adam, but scaffold assumes SGD without momentum"),
        (
            {"strategy": "spectral+graph+scaffold", "optimizer": "sgd"},
            "scaffold needs means of arrays beside the model, and the aggregation graph makes a",
        ),
        ({"strategy": "single+mean+ditoo"}, 'local objective is "ditoo", .*Did you mean ditto'),
        (
            {"strategy": "ditto", **DP},
            "training-epsilon is 1, but ditto has the local objective ditto, and noise does not",
        ),
        ({"strategy": "single+mean+private-head", **DP}, "has the local objective private-head"),
        (
            {"model": "cnn-norm", "strategy": "single", **DP},
            "model is cnn-norm, but with training-epsilon",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        config(**{"strategy": "single", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "fedrep", "model": "mlp-32", "private_layers": "outptu"},
            'private-layers names "outptu", but the model\'s layers are hidden, output',
        ),
        (
            {
                "strategy": "spectral+lps-gps+private-layers",
                "model": "mlp-32",
                "private_layers": "hidden",
            },
            'keeps the layer "hidden" at the clients, but common-layers shares it among all',
        ),
    ],
)
def test_what_a_model_cannot_keep_is_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.faults
def test_a_simulation_killed_with_its_workers_goes_on_as_an_undisturbed_one(tmp_path):
    """A real SuperLink and two Ray workers, `kill -9`, and new ones that resume the run."""
    words = ["strategy=fedper", "num-clients=3", "num-tasks=1", "num-server-rounds=3"]
    words += ["model=mlp-32", "checkpoint-every=1", "optimizer=sgd", "learning-rate=0.1"]
    out = tmp_path / "out"
    command = ["run", *words, "--workers", "2"]
    with fedkin([*command, f"output-dir={out}"]) as running:
        wait_for_line(running, "round   1/3")
        while not (out / "checkpoints/fedper-seed-0.safetensors").exists():
            time.sleep(0.05)
        running.kill()
        running.communicate()
    with fedkin([*command, f"resume={out}"]) as resumed:
        said, _ = resumed.communicate()
    assert resumed.returncode == 0, said
    options = {"strategy": "fedper", "num_tasks": 1, "num_server_rounds": 3, **ALL_STEPS, **SGD}
    wanted = run(tmp_path / "whole", clients=3, model="mlp-32", **options)["runs"][0]
    found = json.loads((out / "summary.json").read_text(encoding="utf-8"))["runs"][0]
    assert {**found, "seconds": 0} == {**wanted, "seconds": 0}
    for client in range(3):
        file = f"models/fedper/seed-0/client-{client}.safetensors"
        assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
