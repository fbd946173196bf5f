"""The app on devices with images, in this process: no SuperLink, the same handlers."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from safetensors.torch import load_file

from fl_app.config.run_config import parse_config
from fl_app.report.comparisons import COMPARISONS
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS, undrawn_pictures, untrained_encoder
from tests.device_images import SITES, TOGETHER, write_sites
from tests.device_runs import OPTIONS, Devices, groups, run, run_on_devices
from tests.toy_app import fail, with_arrays

pytestmark = pytest.mark.slow  # each a run or two, half a minute together


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))


def test_devices_find_those_that_learn_the_same_and_no_result_speaks_of_tasks(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    summary, _ = run(tmp_path / "out", folders, strategy="rcc-pfl,single", num_server_rounds=5)
    one, single = summary["runs"]
    assert one["names"] == sorted(SITES)
    assert groups(one) == TOGETHER
    assert one["accuracy"] > 0.8
    assert single["clusters"] == [0] * 4
    for run_summary in (one, single):
        assert not {"ari", "nmi", "tasks"} & set(run_summary)
    assert "ari-mean" not in summary["table"][0]
    assert summary["config"]["num-clusters"] == "auto"
    with (tmp_path / "out/metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert "ari" not in rows[0]
    assert float(rows[-1]["accuracy"]) == single["accuracy"]
    with (tmp_path / "out/clients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows[:4]] == sorted(SITES)
    assert {row["task"] for row in rows} == {""}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *(
            "status.json",
            "summary.json",
            "log.txt",
            "metrics.csv",
            "clients.csv",
            "models",
            "report.html",
        ),
        *("grouping.json", "spectra-rcc-pfl-seed-0.safetensors"),
        *(f"similarity-rcc-pfl-seed-0.{ending}" for ending in ("npz", "png")),
        *(f"{name}.png" for name in COMPARISONS),
    }
    said = capsys.readouterr().out
    assert "4 devices: berlin, lyon, oslo, rome" in said
    assert "6 classes: digit 0, digit 1, digit 2, digit 4, digit 6, digit 8" in said
    assert "ARI" not in said
    assert "berlin, lyon" in said  # in the table of clusters


ALSO_OF_TWO = {"num_clusters": "elbow"}  # by `auto`, two devices stay together


def test_a_device_is_sent_nothing_but_what_the_page_lists(tmp_path):
    """And it sends nothing but that: docs/privacy.md."""
    folders = write_sites(tmp_path / "sites", images=10)
    answers = {}

    def note(message, context, answer):
        kind = message.metadata.message_type
        said = answers.setdefault(kind, set())
        for record in answer.content.values():
            said.update(record)
        return answer

    parameters = {f"{layer}.{of}" for layer in ("hidden", "output") for of in ("weight", "bias")}
    kinds = ["query.describe", "query.spectrum", "query.relevance", "train", "evaluate"]
    run(tmp_path / "out", folders, corrupt={(kind, "rome"): note for kind in kinds})
    assert answers == {
        "query.describe": {"client-index", "name", "survey"},
        "query.spectrum": {"eigenvectors"},
        "query.relevance": {"relevances"},
        "train": {*parameters, "num-examples", "loss"},
        "evaluate": {"num-examples", "loss", "accuracy", "macro-f1", "balanced-accuracy"},
    }


def test_a_class_that_only_some_sites_have_and_sizes_that_differ(tmp_path):
    sites = {"berlin": (0, 2, 4), "lyon": (0, 2), "oslo": (6, 8, 1), "rome": (6, 8)}
    folders = write_sites(tmp_path / "sites", sites, sides={"berlin": 40, "rome": 64})
    summary, _ = run(tmp_path / "out", folders, model_paths={"lyon": tmp_path / "m.safetensors"})
    assert groups(summary["runs"][0]) == TOGETHER
    _, card = load_model(tmp_path / "m.safetensors")
    # Sides 40, 28, 28, 64: their median is 34, and 36 is the multiple of 4 that is nearest.
    assert card.sample_shape in {(1, 32, 32), (1, 36, 36)}
    assert card.class_names == tuple(f"digit {d}" for d in (0, 1, 2, 4, 6, 8))


def test_each_device_stores_the_model_of_its_cluster(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    paths = {name: tmp_path / f"disk/{name}/model.safetensors" for name in ("berlin", "oslo")}
    summary, _ = run(tmp_path / "out", folders, strategy="rcc-pfl,single", model_paths=paths)
    one, single = summary["runs"]
    assert one["models-not-stored"] == {"1": "it has no model-path", "3": "it has no model-path"}
    assert single["models-not-stored"] == {}
    assert "lyon did not store its model: it has no model-path" in capsys.readouterr().out
    for name, path in paths.items():
        model, card = load_model(path)
        cluster = one["clusters"][one["names"].index(name)]
        assert (card.strategy, card.cluster, card.num_rounds) == ("rcc-pfl", cluster, 3)
        state = model.state_dict()
        on_server = load_file(tmp_path / f"out/models/rcc-pfl/seed-0/cluster-{cluster}.safetensors")
        assert state.keys() == on_server.keys()
        assert all((state[key] == on_server[key]).all() for key in on_server)


def test_a_device_is_never_made_to_simulate(tmp_path):
    folders = write_sites(tmp_path / "sites", images=6)
    run_config = {**DEFAULTS, **OPTIONS, "num-clients": len(folders), "dataset": "mnist-5k"}
    grid = Devices(folders, run_config)
    for context in grid.contexts.values():
        del context.node_config["name"]  # forgotten as well
    with pytest.raises(RuntimeError, match=r'dataset is "mnist-5k".* --run-config pyproject-flwr'):
        run_on_devices({**run_config, "output-dir": str(tmp_path / "out")}, grid)


def test_a_device_that_cannot_start_is_named_and_the_table_counts_the_others(
    tmp_path, caplog, capsys
):
    folders = write_sites(tmp_path / "sites", images=8)
    (folders["oslo"] / "digit 6" / "note.png").write_text("no image", encoding="utf-8")
    run(tmp_path / "out", folders, num_clients=3)
    assert "could not take part: oslo: 1 of " in caplog.text
    assert "note.png (the first: it is none of BMP, GIF," in caplog.text
    assert "mean over 3 of 4 clients" in capsys.readouterr().out


def test_of_two_devices_of_one_name_the_second_is_left_out(tmp_path, caplog):
    """One device alone cannot end the run of all."""
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(tmp_path / "out")}
    grid = Devices(write_sites(tmp_path / "sites", images=10), run_config)
    grid.contexts[grid.node_of(2)].node_config["name"] = "berlin"
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    assert "both say that they are berlin: give each SuperNode a name" in caplog.text
    assert "The second is left out" in caplog.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["runs"][0]["names"] == ["berlin", "lyon", "rome"]


def test_a_model_path_that_cannot_be_written_is_known_before_the_training(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites", images=10)
    wrong = {
        "oslo": ("model.safetensors", "model-path is model.safetensors"),
        "rome": (f"{tmp_path}/sites", "sites, which is a folder: give a file in it, such as"),
    }
    paths = {name: Path(where) for name, (where, _) in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, model_paths=paths)
    assert summary["runs"][0]["names"] == ["berlin", "lyon"]
    assert all(reason in caplog.text for _, reason in wrong.values())


def say(**entries):
    def corrupt(message, context, answer):
        config = answer.content.config_records["config"]
        config["survey"] = json.dumps(json.loads(config["survey"]) | entries)
        return answer

    return corrupt


def test_a_device_with_an_invalid_survey_is_excluded(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites")
    large = (say(sample_shape=[1, 9999, 28]), "images in folders have at most 224 pixels")
    wrong = {"lyon": large, "rome": (fail, "the disk is full")}
    corrupt = {("query.describe", name): said for name, (said, _) in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, corrupt=corrupt, **ALSO_OF_TWO)
    assert all(reason in caplog.text for _, reason in wrong.values())
    one = summary["runs"][0]
    assert "rome" not in one["names"]  # its name is not known
    found = dict(zip(one["names"], one["clusters"], strict=True))
    assert 0 <= found["berlin"] != found["oslo"] >= 0


def test_a_device_that_comes_back_is_placed_by_its_own_scores_and_keeps_a_model(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    path = tmp_path / "rome.safetensors"
    away = {"rome": range(3)}  # it is there from round 2 on
    options = {"away": away, "model_paths": {"rome": path}, "num_clients": 3}
    summary, grid = run(tmp_path / "out", folders, **options)
    one = summary["runs"][0]
    assert one["names"] == ["berlin", "lyon", "oslo", "rome"]
    assert groups(one) == TOGETHER
    asked = grid.asked("rome")
    assert asked.count("query.spectrum") == asked.count("query.relevance") == 1
    assert asked.count("train") == 2
    assert load_model(path)[1].cluster == one["clusters"][3]
    said = capsys.readouterr().out
    assert f"rome joined in round 2, in cluster {one['clusters'][3]}\n" in said
    assert said.count("joined in") == 1


def test_devices_that_do_not_come_are_not_waited_for_longer_than_the_deadline(
    tmp_path, caplog, capsys
):
    folders = write_sites(tmp_path / "sites", {"berlin": (0, 2), "oslo": (6, 8)}, images=8)
    run(tmp_path / "out", folders, num_clients=3, pre_round_deadline=0.2, num_server_rounds=1)
    said = "the run starts with 2 devices of 3, since no more have connected in 0.2 seconds"
    assert said in caplog.text
    waiting = "2 of 3 devices are connected yet, waiting up to 0.2 seconds\n"
    assert capsys.readouterr().out.count(waiting) == 1
    with pytest.raises(ValueError, match=r"no SuperNode has connected in 0\.2 seconds"):
        run(tmp_path / "none", {}, pre_round_deadline=0.2)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        pytest.param("flt,mt-hfl,fedhc,cfl,pca-km-hc,local", {}, marks=pytest.mark.faults),
        ("ifca,fedsem", {"num_clusters": 2}),
    ],
)
def test_every_other_strategy_runs_on_devices(tmp_path, strategy, options, plane_without_umap):
    options = options | untrained_encoder(tmp_path)
    folders = write_sites(tmp_path / "sites", images=12)
    summary, _ = run(tmp_path / "out", folders, strategy=strategy, **options)
    assert ",".join(one["strategy"] for one in summary["runs"]) == strategy
    for one in summary["runs"]:
        assert min(one["accuracy-per-client"]) >= 0
        assert min(one["clusters"]) == 0


class PowerCutError(Exception):
    pass


def test_an_interrupted_run_on_devices_goes_on_and_ends_as_an_undisturbed_one(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites", images=20)
    options = {"checkpoint_every": 1, "fraction_train": 0.5, "strategy": "rcc-pfl,single"}
    expected, _ = run(tmp_path / "whole", folders, **options)

    class Cut(Devices):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            about = messages[0].metadata
            if (about.message_type, about.group_id) == ("train", "3"):
                raise PowerCutError
            return super().send_and_receive(messages, timeout=timeout)

    keys = {key.replace("_", "-"): value for key, value in options.items()}
    run_config = {**DEFAULTS, **OPTIONS, **keys, "output-dir": str(tmp_path / "cut")}
    with undrawn_pictures(), pytest.raises(PowerCutError):
        run_on_devices(run_config, Cut(folders, run_config))
    (left,) = (tmp_path / "cut/checkpoints").iterdir()
    assert left.name == "rcc-pfl-seed-0.safetensors"
    with pytest.raises(ValueError, match="continue an interrupted run by resume"):
        run(tmp_path / "cut", folders, **options)
    with pytest.raises(ValueError, match=r"learning-rate is 0\.5, but the run in .* with 0\.003"):
        run(tmp_path / "cut", folders, resume=str(tmp_path / "cut"), learning_rate=0.5, **options)
    capsys.readouterr()
    found, grid = run(tmp_path / "cut", folders, resume=str(tmp_path / "cut"), **options)
    assert "rcc-pfl  seed 0  resumed after round 2" in capsys.readouterr().out
    assert "query.spectrum" not in grid.asked("berlin")
    for one, other in zip(found["runs"], expected["runs"], strict=True):
        for key in ("accuracy", "accuracy-per-client", "clusters", "names", "rounds"):
            assert one[key] == other[key]
    for path in sorted((tmp_path / "whole/models").rglob("*.safetensors")):
        again = tmp_path / "cut" / path.relative_to(tmp_path / "whole")
        assert again.read_bytes() == path.read_bytes()
    whole, resumed = ((tmp_path / which / "metrics.csv").read_bytes() for which in ("whole", "cut"))
    assert whole == resumed


def test_resuming_a_finished_run_only_hands_the_models_out_again(tmp_path):
    folders = write_sites(tmp_path / "sites", images=10)
    run(tmp_path / "out", folders, checkpoint_every=2)
    path = tmp_path / "late.safetensors"
    again = {"resume": str(tmp_path / "out"), "checkpoint_every": 2}
    _, grid = run(tmp_path / "out", folders, **again, model_paths={"lyon": path})
    assert set(grid.asked("lyon")) == {"query.describe", "query.save_model"}
    assert load_model(path)[1].num_rounds == 3


def test_a_folder_in_which_a_run_goes_on_is_left_alone(tmp_path, monkeypatch):
    """A SuperLink that is killed leaves its ServerApp running for half a minute."""
    monkeypatch.setattr("fl_app.run.checkpoints.PATIENCE", 0.1)
    folders = write_sites(tmp_path / "sites", images=4)
    run(tmp_path / "out", folders, checkpoint_every=3)
    before = (tmp_path / "out/summary.json").read_bytes()
    with FileLock(tmp_path / "out/.lock"), pytest.raises(RuntimeError, match="another run uses"):
        run(tmp_path / "out", folders, resume=str(tmp_path / "out"), checkpoint_every=3)
    assert (tmp_path / "out/summary.json").read_bytes() == before


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        run(tmp_path / "out", {}, resume=str(tmp_path))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("noise", "class-dependent", 'dataset is "devices".* leave it at none'),
        ("attack", "sign-flip", 'dataset is "devices".* leave it at none'),
        ("strategy", "rcc-pfl,random", "needs tasks, which devices do not know"),
    ],
)
def test_what_only_a_simulation_can_have_is_refused(key, value, reason):
    with pytest.raises(ValueError, match=rf"(?m)^{key} is .*{reason}"):
        parse_config({**DEFAULTS, **OPTIONS, key: value})


def test_a_name_is_shown_as_it_is_in_every_library(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites", images=10)
    names = ("$x^$", "[/b]", "<b>", "=1+1")
    summary, _ = run(tmp_path / "out", dict(zip(names, folders.values(), strict=True)))
    assert set(names) == set(summary["runs"][0]["names"])
    shown = capsys.readouterr().out.split("rcc-pfl, seed 0")[-1]
    assert all(name in shown for name in names)


def test_devices_that_agree_on_nonsense_do_not_outvote_the_others(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites")
    tiny = with_arrays(lambda a: a.update(eigenvectors=np.ones((1, 1), np.float32)))
    corrupt = {("query.spectrum", name): tiny for name in ("berlin", "rome")}
    summary, _ = run(tmp_path / "out", folders, corrupt=corrupt, **ALSO_OF_TWO)
    assert groups(summary["runs"][0]) == [["lyon"], ["oslo"]]
    assert "its features have 1 dimensions, the others' 324" in caplog.text


def test_a_device_that_always_fails_does_not_block_the_rounds_in_which_it_is_drawn(
    tmp_path, caplog
):
    folders = write_sites(tmp_path / "sites", images=20)
    options = {"fraction_train": 0.25, "num_server_rounds": 8}
    summary, _ = run(tmp_path / "out", folders, corrupt={("train", "rome"): fail}, **options)
    assert summary["runs"][0]["rounds"] == 8
    assert "is lost: no participant sent a usable model" in caplog.text
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 1"):
        run(tmp_path / "none", folders, corrupt={("train", name): fail for name in folders})


@pytest.mark.faults
def test_every_strategy_begins_with_the_devices_that_are_there(tmp_path):
    folders = write_sites(tmp_path / "sites")
    options = {"away": {"rome": range(3)}, "num_clients": 3, "strategy": "rcc-pfl,local"}
    summary, _ = run(tmp_path / "out", folders, **options)
    first, second = summary["runs"]
    assert first["failures"] == second["failures"] == []
    assert second["clusters"] == [0, 1, 2, 3]
