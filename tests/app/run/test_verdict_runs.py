"""Runs in which clients compare strategies on validation samples, simulated and on devices."""

import csv
import errno
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fl_app.cli import TRIAL, trial_presets
from fl_app.config.keywords import TRIAL_ROUNDS
from fl_app.config.run_config import OPTIONS, parse_config
from fl_app.devices import device_pool
from fl_app.devices.site.device_node import DeviceNode
from fl_app.results.reading import read_result
from fl_core.json_records import to_json
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS, run
from tests.device_images import SITES, write_sites
from tests.device_runs import run as run_devices
from tests.samples import sampled

pytestmark = pytest.mark.slow

COMPARED = {"strategy": "local,single,rcc-pfl", "validation_share": 0.25, "evaluate_every": 2}
PAIR = {"strategy": "local,single", "validation_share": 0.25}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("verdicts") / "out"
    run(out, **COMPARED, checkpoint_every=1)
    return out


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def test_each_client_gets_a_verdict_in_every_file(folder):
    summary = summary_of(folder)
    (found,) = summary["verdicts"]
    assert found["seed"] == 0
    assert [one["client"] for one in found["clients"]] == list(range(6))
    assert set(found["means"]) == {"single", "rcc-pfl"}
    for one in found["clients"]:
        gain = one["gains"][one["compared"]]
        assert gain["low"] <= gain["mean"] <= gain["high"]
        assert one["compared"] in ("single", "rcc-pfl")
    with (folder / "verdicts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == [one["verdict"] for one in found["clients"]]
    gains = [one["gains"][one["compared"]] for one in found["clients"]]
    assert [float(row["gain"]) for row in rows] == [gain["mean"] for gain in gains]
    assert [float(row["probability"]) for row in rows] == [gain["probability"] for gain in gains]
    assert json.loads(to_json(read_result(folder).verdicts[0])) == found
    kept = np.load(folder / "partition-seed-0.npz")
    for client in range(6):
        trains, validates = kept[f"train-{client}"], kept[f"validation-{client}"]
        assert len(validates) == len(kept[f"validation-labels-{client}"]) > 0
        assert not set(trains.tolist()) & set(validates.tolist())


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("local,single", "no client could compare models: raise"),
        ("local,optimum", "only local has"),
    ],
)
def test_a_run_without_verdicts_says_why(tmp_path, capsys, strategy, why):
    """Of four samples one validates, whose one difference says nothing of how much they differ."""
    for name in ("one", "two"):
        rows = [f"{x},{1 - x / 2},{2 * x}" for x in range(5)]
        (tmp_path / "sites").mkdir(exist_ok=True)
        (tmp_path / f"sites/{name}.csv").write_text("\n".join(["x,y,t", *rows]), encoding="utf-8")
    data = {"dataset": "tables", "data_dir": str(tmp_path / "sites"), "label": "t"}
    options = {**data, "target": "number", "strategy": strategy, "validation_share": 0.2}
    summary = run(tmp_path / "out", clients=2, num_server_rounds=1, **options)
    assert summary.get("verdicts", []) == []
    assert f"seed 0: there are no verdicts, as {why}" in capsys.readouterr().out
    assert not (tmp_path / "out/verdicts.csv").exists()


def test_attackers_are_neither_judged_nor_counted(tmp_path):
    summary = run(tmp_path / "out", **PAIR, attack="label-flip", malicious=0.34)
    (found,) = summary["verdicts"]
    scores = summary["runs"][0]["accuracy-per-client"]
    malicious = {client for client, one in enumerate(scores) if one is None}
    assert len(malicious) == 2
    assert {one["client"] for one in found["clients"]} == set(range(6)) - malicious


def test_a_strategy_may_end_early_and_has_done_so_when_resumed(tmp_path, capsys):
    options = {**PAIR, "early_stopping": 1, "num_server_rounds": 9, "checkpoint_every": 1}
    options["learning_rate"] = 1e-30  # nothing is learnt
    before = run(tmp_path / "out", **options)
    said = "single  seed 0  ends after round 2"
    assert said in capsys.readouterr().out
    assert all("on-its-own-data" in one for one in before["runs"])
    after = run(tmp_path / "out", **options, resume=str(tmp_path / "out"))
    for summary in (before, after):
        assert [one["rounds"] for one in summary["runs"]] == [2, 2]
    assert after["verdicts"] == before["verdicts"]
    assert said in capsys.readouterr().out


def test_seeds_may_end_after_different_rounds(tmp_path):
    options = {**PAIR, "early_stopping": 1, "learning_rate": 0.02}
    summary = run(tmp_path / "out", num_server_rounds=6, repeats=2, **options)
    rounds = [one["rounds"] for one in summary["runs"] if one["strategy"] == "single"]
    assert rounds == [3, 4]
    numbers, scores = read_result(tmp_path / "out").curves["single"]
    assert numbers.tolist() == [1, 2, 3, 4]
    assert scores[0, 2] == scores[0, 3]  # the one that has ended keeps its score
    assert scores[1, 2] != scores[1, 3]


@pytest.mark.parametrize("stops_at", sampled(["evaluate", "train"], 2))
def test_an_interrupted_run_gives_the_verdicts_of_one_that_was_not(folder, tmp_path, stops_at):
    """Stopped in the second strategy: what clients found of the first one is to be known again."""
    first_rounds = []

    def stop(message, context, answer):
        told = message.content.config_records["config"]
        if message.metadata.message_type == "train" and told["server-round"] == 1:
            first_rounds.append(told)
        if len(first_rounds) == 2 and message.metadata.message_type == stops_at:
            raise KeyboardInterrupt
        return answer

    options = {**COMPARED, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", **options, corrupt={("train", 0): stop, ("evaluate", 0): stop})
    found = run(tmp_path / "cut", **options, resume=str(tmp_path / "cut"))
    assert found["verdicts"] == summary_of(folder)["verdicts"]


def test_folds_validate_all_samples_and_the_first_one_is_reported(folder, tmp_path, capsys):
    """Of four folds of a quarter; the last one is interrupted, and resumed."""

    def stop(message, context, answer):
        sent = message.content.config_records["config"]
        if message.metadata.message_type == "evaluate" and sent.get("validation-fold") == 3:
            raise KeyboardInterrupt
        return answer

    options = {**COMPARED, "checkpoint_every": 1, "validation_folds": 4}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, **options, corrupt={("evaluate", 0): stop})
    found, one = run(tmp_path, **options, resume=str(tmp_path)), summary_of(folder)
    assert "4 validation folds: each trains 4 times" in capsys.readouterr().out
    kept = np.load(tmp_path / "partition-seed-0.npz")
    (verdicts,) = found["verdicts"]
    for verdict in verdicts["clients"]:
        client, count = verdict["client"], verdict["validation-samples"]
        held = len(kept[f"train-{client}"]) + len(kept[f"validation-{client}"])
        assert count == pytest.approx(held, rel=0.05)  # copies train where no other validates
    for run_of_one, run_of_four in zip(one["runs"], found["runs"], strict=True):
        assert run_of_four["accuracy-per-client"] == run_of_one["accuracy-per-client"]


def test_in_time_there_is_one_fold(tmp_path):
    options = {**PAIR, "dataset": "watch", "validation_folds": 3, "num_server_rounds": 1}
    summary = run(tmp_path, clients=20, **options)
    assert summary["config"]["validation-folds"] == 1


def test_validation_samples_are_for_comparing_with_staying_alone():
    wrong = {**DEFAULTS, "validation-share": 0.2, "strategy": "rcc-pfl,single"}
    with pytest.raises(ValueError, match=r"validation-share is 0\.2, .* name local and another"):
        parse_config(wrong)
    with pytest.raises(ValueError, match=r"validation-share is 0\.7, but it must be"):
        parse_config({**wrong, "validation-share": 0.7})
    pair = {**wrong, "strategy": "local,single"}
    with pytest.raises(ValueError, match=r"validation-folds is 6, .* choose at most 5"):
        parse_config({**pair, "validation-folds": 6})
    assert parse_config({**pair, "validation-folds": 5}).validation_folds == 5
    # Those whose last tests had other clients have nothing to compare.
    some = {**wrong, "strategy": "local,single", "fraction-evaluate": 0.5}
    with pytest.raises(ValueError, match=r"^fraction-evaluate is 0\.5, but with validation-share"):
        parse_config(some)


def test_a_trial_is_a_run_with_values_of_its_own():
    assert TRIAL.keys() <= OPTIONS.keys()
    config = parse_config({**DEFAULTS, **TRIAL})
    assert config.strategy[:2] == ("local", "single")
    assert TRIAL_ROUNDS.items() <= TRIAL.items()


def test_a_trial_of_natural_sites_weighs_numbers_of_groups_by_validation():
    tune = "num-clusters=auto,1,2,4"
    assert trial_presets({"dataset": "watch"}) == {**TRIAL, "tune": tune}
    for given in (
        {"dataset": "mnist-5k"},  # tasks are cut from labels
        {"dataset": "watch", "num-clusters": 3},
        {"dataset": "watch", "tune": "learning-rate=0.1,0.2"},
        {"dataset": "watch", "strategy": "local,single"},  # without groups
        {"dataset": "watch", "training-epsilon": 1.0, "strategy": "local,rcc-pfl"},
    ):
        assert trial_presets(given) == TRIAL
    small = {"dataset": "mnist-5k", "num-clients": 5, "num-server-rounds": 4}
    assert trial_presets(small) == {**TRIAL, "validation-folds": 5}  # 500 trainings
    private = {"training-epsilon": 1.0, "strategy": "local,rcc-pfl"}
    for more in ({"num-server-rounds": 5}, {"validation-share": 0.3}, private):
        assert trial_presets({**small, **more}) == TRIAL


def test_no_more_groups_than_sites_are_tried(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("x,label\n0.5,1\n", encoding="utf-8")
    found = trial_presets({"dataset": "tables", "data-dir": str(tmp_path)})
    assert found["tune"] == "num-clusters=auto,1,2"


def of_devices(tmp_path):
    """Return the folders and models of four sites, and the options of a short run with these."""
    folders = write_sites(tmp_path / "sites")
    paths = {name: tmp_path / f"kept/{name}.safetensors" for name in folders}
    return folders, paths, {**PAIR, "model_paths": paths, "num_server_rounds": 1}


def cut_short(*_):
    raise KeyboardInterrupt


def test_devices_use_the_model_of_their_verdict_and_keep_no_other(tmp_path):
    folders = write_sites(tmp_path / "sites")
    files = ("model.safetensors", "site.1", "site.2")  # of which two differ by their ending only
    kept = {
        name: tmp_path / "models" / file for name, file in zip(sorted(SITES), files, strict=False)
    }
    summary, grid = run_devices(
        tmp_path / "out",
        folders,
        strategy="rcc-pfl,single,local",
        validation_share=0.3,
        model_paths=kept,
    )
    verdicts = {one["client"]: one for one in summary["verdicts"][0]["clients"]}
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert all(one["verdict"] in page for one in verdicts.values())
    names = summary["runs"][0]["names"]
    for client, name in enumerate(names):
        if name not in kept:
            continue
        _, card = load_model(kept[name])
        assert card.strategy == verdicts[client]["strategy"]
        said = kept[name].with_name(f"{kept[name].name.partition('.saf')[0]}.verdict.json")
        assert json.loads(said.read_text(encoding="utf-8")) == verdicts[client]
    assert {path.name for path in (tmp_path / "models").iterdir()} == {
        *files,
        *("model.verdict.json", "site.1.verdict.json", "site.2.verdict.json"),
    }
    last = names[-1]
    assert summary["runs"][0]["models-not-stored"] == {str(len(names) - 1): "it has no model-path"}
    assert "query.deploy_model" in grid.asked(last)


def test_a_model_of_an_earlier_run_is_not_deployed_by_a_later_ones_verdict(tmp_path, monkeypatch):
    """The first run is cut short; berlin is not handed the model of the second."""
    folders, paths, options = of_devices(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(device_pool, "Request", cut_short)
        run_devices(tmp_path / "first", folders, model="mlp-32", **options)
    keep = DeviceNode.save_model
    monkeypatch.setattr(DeviceNode, "save_model", lambda self: self.name != "berlin" and keep(self))
    for left in (tmp_path / "kept").glob("*-candidates-1"):
        left.rename(left.with_name(left.name.replace("-1", "-0")))  # all runs here have number 1
    summary, _ = run_devices(tmp_path / "second", folders, model="logistic-regression", **options)
    assert not paths["berlin"].exists()
    (why,) = summary["runs"][0]["models-not-stored"].values()
    assert "has no model of local" in why
    assert load_model(paths["rome"])[1].architecture == "logistic-regression"


def test_a_disk_that_fills_at_the_end_leaves_model_and_verdict_of_one_run(tmp_path, monkeypatch):
    folders, _, options = of_devices(tmp_path)
    run_devices(tmp_path / "first", folders, **options)
    before = {p: p.read_bytes() for p in (tmp_path / "kept").iterdir() if p.is_file()}
    assert len(before) == 2 * len(folders)

    write = Path.write_text

    def full(path, *given, **options):
        if "verdict" in path.name and "csv" not in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *given, **options)

    monkeypatch.setattr(Path, "write_text", full)
    summary, _ = run_devices(tmp_path / "second", folders, seed=1, **options)
    reasons = summary["runs"][0]["models-not-stored"].values()
    assert len(reasons) == len(folders)
    assert all("the disk is full" in reason for reason in reasons)
    assert {path: path.read_bytes() for path in before} == before


def test_a_device_that_is_away_when_a_run_goes_on_lacks_its_model(tmp_path, monkeypatch, capsys):
    folders, _, options = of_devices(tmp_path)
    options |= {"checkpoint_every": 1, "pre_round_deadline": 1.0}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(device_pool, "Request", cut_short)
        run_devices(tmp_path / "out", folders, **options)
    del folders["rome"]
    capsys.readouterr()
    summary, _ = run_devices(tmp_path / "out", folders, resume=str(tmp_path / "out"), **options)
    last = summary["runs"][-1]
    rome = str(last["names"].index("rome"))
    assert last["models-not-stored"] == {rome: "it is not connected"}
    assert "3 of 4 devices have stored their model" in capsys.readouterr().out


def test_devices_of_a_resumed_run_get_the_verdicts_of_one_that_was_not_interrupted(tmp_path):
    """What they found of the first strategy was known in the first run alone; rome comes later."""
    folders = write_sites(tmp_path / "sites")
    options = {"strategy": "local,single", "validation_share": 0.3, "checkpoint_every": 1}
    without_rome = {name: path for name, path in folders.items() if name != "rome"}
    whole, _ = run_devices(tmp_path / "whole", without_rome, **options)
    asked = []

    def stop(message, context, answer):
        asked.append(message)
        if len(asked) == 5:  # three rounds of the first strategy, and the second one's second
            raise KeyboardInterrupt
        return answer

    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run_devices(out, without_rome, corrupt={("train", "berlin"): stop}, **options)
    found, grid = run_devices(out, without_rome, resume=str(out), **options)
    assert found["verdicts"] == whole["verdicts"]
    assert [one["bytes"] for one in found["runs"]] == [one["bytes"] for one in whole["runs"]]
    assert grid.asked("berlin").count("evaluate") == 1 + 2  # the first strategy only to compare

    later, _ = run_devices(out, folders, resume=str(out), **options)
    assert later["verdicts"] == whole["verdicts"]


def test_a_device_that_joins_later_gets_a_model_that_it_has(tmp_path):
    """It comes while the second strategy trains, and so has no model of the first."""
    folders = write_sites(tmp_path / "sites")
    paths = {name: tmp_path / f"{name}.safetensors" for name in folders}
    summary, _ = run_devices(
        tmp_path / "out",
        folders,
        strategy="rcc-pfl,local,single",
        validation_share=0.3,
        num_server_rounds=2,
        away={"rome": range(5)},
        model_paths=paths,
    )
    first, *others = summary["runs"]
    assert "rome" not in first["names"]
    assert all("rome" in one["names"] for one in others)
    assert all(one["models-not-stored"] == {} for one in summary["runs"])
    rome = others[0]["names"].index("rome")
    (of_rome,) = [one for one in summary["verdicts"][0]["clients"] if one["client"] == rome]
    assert set(of_rome["gains"]) == {"single"}
    assert load_model(paths["rome"])[1].strategy == of_rome["strategy"]
    rows = (tmp_path / "out/verdicts.csv").read_text(encoding="utf-8").splitlines()
    assert sum(",rome," in row for row in rows) == 1
    read_result(tmp_path / "out")


def test_devices_keep_the_model_of_the_values_that_were_chosen(tmp_path):
    options = {"strategy": "rcc-pfl,local", "validation_share": 0.3}
    folders = write_sites(tmp_path / "sites")
    names, kept = sorted(SITES), {name: tmp_path / f"{name}.safetensors" for name in SITES}
    tune = "learning-rate=0.00001,0.01"  # of which the lower one learns nothing
    summary, _ = run_devices(tmp_path / "out", folders, tune=tune, model_paths=kept, **options)
    assert [one["tuned"]["values"] for one in summary["runs"]] == 2 * [{"learning-rate": 0.01}]
    clusters = {one["strategy"]: one["clusters"] for one in summary["runs"]}
    verdicts = {one["client"]: one["strategy"] for one in summary["verdicts"][0]["clients"]}
    assert "rcc-pfl" in verdicts.values()
    for client, name in enumerate(names):
        strategy = verdicts[client]
        file = f"{strategy}/seed-0/cluster-{clusters[strategy][client]}.safetensors"
        wanted = load_file(tmp_path / "out/models" / file)
        found = load_file(kept[name])
        assert all((found[key] == wanted[key]).all() for key in wanted)
    assert not list(tmp_path.glob("*-candidates"))
