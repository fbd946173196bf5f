"""The app on devices with images of their own, in this process: no SuperLink, the same handlers."""

import csv
import io
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from flwr.app import Array
from PIL import Image
from safetensors.torch import load_file

from fl_app.config.run_config import parse_config
from fl_app.report.comparisons import COMPARISONS
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS, undrawn_pictures, untrained_encoder
from tests.device_images import SITES, TOGETHER, write_sites
from tests.device_runs import OPTIONS, Devices, groups, run, run_on_devices
from tests.samples import sampled
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
        "status.json",
        "summary.json",
        "metrics.csv",
        "clients.csv",
        *(f"{name}.png" for name in COMPARISONS),
        "accuracy-per-cluster.png",
        "models",
        "report.html",
        "grouping.json",
        "spectra-rcc-pfl-seed-0.safetensors",
        "similarity-rcc-pfl-seed-0.npz",
        "similarity-rcc-pfl-seed-0.png",
    }
    said = capsys.readouterr().out
    assert "4 devices: berlin, lyon, oslo, rome" in said
    assert "6 classes: digit 0, digit 1, digit 2, digit 4, digit 6, digit 8" in said
    assert "ARI" not in said
    assert "berlin lyon" in said  # in the table of clusters


SHARES = ("accuracy", "macro-f1", "balanced-accuracy")

ALSO_OF_TWO = {"num_clusters": "elbow"}  # by `auto`, two devices stay together: nothing tells


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
    run(tmp_path / "out", folders, spoil={(kind, "rome"): note for kind in kinds})
    assert answers == {
        "query.describe": {"client-index", "name", "survey"},
        "query.spectrum": {"eigenvectors"},
        "query.relevance": {"relevances"},
        "train": {*parameters, "num-examples", "loss"},
        "evaluate": {"num-examples", "loss", *SHARES},
    }


def test_a_class_that_only_some_sites_have_and_sizes_that_differ(tmp_path):
    sites = {"berlin": (0, 2, 4), "lyon": (0, 2), "oslo": (6, 8, 1), "rome": (6, 8)}
    folders = write_sites(tmp_path / "sites", sites, sides={"berlin": 40, "rome": 64})
    summary, _ = run(tmp_path / "out", folders, model_paths={"lyon": tmp_path / "m.safetensors"})
    assert groups(summary["runs"][0]) == TOGETHER
    assert "on-its-" not in json.dumps(summary)  # a device has one test set
    _, card = load_model(tmp_path / "m.safetensors")
    # Sides 40, 28, 28, 64: their median is 34, and 36 is the multiple of 4 that is nearest.
    assert card.image_shape in {(1, 32, 32), (1, 36, 36)}
    assert card.class_names == tuple(f"digit {d}" for d in (0, 1, 2, 4, 6, 8))


def test_each_device_keeps_the_model_of_its_cluster(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    paths = {name: tmp_path / f"disk/{name}/model.safetensors" for name in ("berlin", "oslo")}
    summary, _ = run(tmp_path / "out", folders, strategy="rcc-pfl,single", model_paths=paths)
    one, single = summary["runs"]
    assert one["models-not-kept"] == {"1": "it has no model-path", "3": "it has no model-path"}
    assert single["models-not-kept"] == {}
    assert "lyon did not keep its model: it has no model-path" in capsys.readouterr().out
    for name, path in paths.items():
        model, card = load_model(path)
        cluster = one["clusters"][one["names"].index(name)]
        assert (card.strategy, card.cluster, card.num_rounds) == ("rcc-pfl", cluster, 3)
        state = model.state_dict()
        on_server = load_file(tmp_path / f"out/models/rcc-pfl/seed-0/cluster-{cluster}.safetensors")
        assert state.keys() == on_server.keys()
        assert all((state[key] == on_server[key]).all() for key in on_server)


def _in_colour(folder):
    for path in Path(folder).rglob("*.png"):
        with Image.open(path) as image:
            image.convert("RGB").save(path)


@pytest.mark.slow  # runs
def test_most_devices_decide_between_grey_and_colour(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites", images=6)
    _in_colour(folders["oslo"])
    summary, grid = run(tmp_path / "out", folders, num_server_rounds=1)
    (one,) = summary["runs"]
    assert "samples are colour images in folders, but most devices' are grey images" in caplog.text
    assert sorted(name for group in groups(one) for name in group) == ["berlin", "lyon", "rome"]
    assert "train" not in grid.asked("oslo")


def test_as_many_grey_as_colour_end_the_run(tmp_path):
    folders = write_sites(tmp_path / "sites", images=4)
    for name in ("lyon", "oslo"):
        _in_colour(folders[name])
    said = r"^grey images in folders \(berlin, rome\) and colour images in folders \(lyon, oslo\)"
    with pytest.raises(ValueError, match=said):
        run(tmp_path / "out", folders)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("name", 'dataset is "own", but this node has no name'),
        ("data-path", 'dataset is "own", but this node has no data-path'),
    ],
)
def test_a_node_without_name_or_images_is_told_so(tmp_path, missing, reason, caplog):
    folders = write_sites(tmp_path / "sites", images=6)
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(tmp_path / "out")}
    grid = Devices(folders, run_config)
    del grid.contexts[grid.node_of(2)].node_config[missing]
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    assert reason in caplog.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["runs"][0]["names"] == ["berlin", "lyon", "rome"]


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


def test_the_table_says_how_many_were_tested(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    run(tmp_path / "all", folders)
    whole = capsys.readouterr().out
    run(tmp_path / "out", folders, spoil={("query.spectrum", "lyon"): fail})
    fewer = capsys.readouterr().out
    assert "mean over 4 clients" in whole
    assert "mean over 3 of 4 clients" in fewer

    def kilobytes(out):
        """Of training, for a client."""
        (row,) = (line for line in out.splitlines() if line.startswith("│ rcc-pfl"))
        return row.split("│")[-3].strip()

    assert kilobytes(whole) == kilobytes(fewer)


def test_relative_paths_are_refused_since_nobody_knows_to_what(tmp_path, caplog):
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(tmp_path / "out")}
    with pytest.raises(RuntimeError, match="data-path is scans, but it must be absolute"):
        run_on_devices(run_config, Devices({"berlin": Path("scans")}, run_config))
    with pytest.raises(RuntimeError, match="nowhere"):
        run_on_devices(run_config, Devices({"berlin": tmp_path / "nowhere"}, run_config))


def test_of_two_devices_of_one_name_the_second_is_left_out(tmp_path, caplog):
    """One device alone cannot end the run of all."""
    folders = write_sites(tmp_path / "sites", images=10)
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(tmp_path / "out")}
    grid = Devices(folders, run_config)
    first, second = sorted((grid.node_of(0), grid.node_of(2)))
    grid.contexts[grid.node_of(2)].node_config["name"] = "berlin"
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    said = f"nodes {first} and {second} both say that they are berlin: give each SuperNode a name"
    assert said in caplog.text
    assert f"Node {second} is left out" in caplog.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["runs"][0]["names"] == ["berlin", "lyon", "rome"]


@pytest.mark.parametrize(
    ("of_oslo", "of_rome"),
    [
        (
            ("model.safetensors", "model-path is model.safetensors"),
            ("{}/file/model.safetensors", "rome: model-path is"),
        ),
        (
            (
                "/proc/nobody/model.safetensors",
                "cannot write there (No such file or directory): make the folder",
            ),
            ("{}/sites", "sites, which is a folder: name a file in it, such as"),
        ),
    ],
)
def test_a_model_path_that_cannot_be_written_is_known_before_the_training(
    tmp_path, of_oslo, of_rome, caplog
):
    folders = write_sites(tmp_path / "sites", images=10)
    (tmp_path / "file").touch()
    wrong = {"oslo": of_oslo, "rome": of_rome}
    paths = {name: Path(where.format(tmp_path)) for name, (where, _) in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, model_paths=paths)
    assert summary["runs"][0]["names"] == ["berlin", "lyon"]
    for _, reason in wrong.values():
        assert reason in caplog.text


def say(**entries):
    def spoil(message, context, answer):
        config = answer.content.config_records["config"]
        config["survey"] = json.dumps(json.loads(config["survey"]) | entries)
        return answer

    return spoil


@pytest.mark.parametrize(
    ("of_lyon", "of_rome"),
    [
        (
            (say(image_shape=[1, 9999, 28]), "images in folders have at most 224 pixels"),
            (say(class_names=["b", "a"]), "class names must be sorted"),
        ),
        ((say(is_float="perhaps"), "is_float"), (fail, "the disk is full")),
    ],
)
def test_a_device_that_tells_nonsense_of_its_images_is_left_out(tmp_path, of_lyon, of_rome, caplog):
    folders = write_sites(tmp_path / "sites")
    wrong = {"lyon": of_lyon, "rome": of_rome}
    spoil = {("query.describe", name): said for name, (said, _) in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, spoil=spoil, **ALSO_OF_TWO)
    for _, reason in wrong.values():
        assert reason in caplog.text
    one = summary["runs"][0]
    if of_rome[0] is fail:  # nobody knows what it is called
        assert "rome" not in one["names"]
    found = dict(zip(one["names"], one["clusters"], strict=True))
    assert 0 <= found["berlin"] != found["oslo"] >= 0


GARBAGE = {
    "NaN": with_arrays(lambda a: a["eigenvectors"].__setitem__(0, np.nan)),
    "wrong shape": with_arrays(lambda a: a.update(eigenvectors=np.ones(7, np.float32))),
    "not orthonormal": with_arrays(lambda a: a.update(eigenvectors=2 * a["eigenvectors"])),
    "too large": with_arrays(lambda a: a.update(eigenvectors=np.eye(3000, 200, dtype=np.float32))),
}


@pytest.mark.parametrize(
    "kinds", [("NaN", "wrong shape"), ("not orthonormal", "too large")], ids=" and ".join
)
def test_devices_that_answer_garbage_are_named_and_the_others_go_on(tmp_path, kinds, caplog):
    folders = write_sites(tmp_path / "sites", images=20)
    wrong = dict(zip(("lyon", "oslo"), kinds, strict=True))
    spoil = {("query.spectrum", name): GARBAGE[kind] for name, kind in wrong.items()}
    summary, grid = run(tmp_path / "out", folders, spoil=spoil, **ALSO_OF_TWO)
    one = summary["runs"][0]
    assert one["clusters"][1:3] == [-1, -1]
    assert list(one["failures"]) == ["1", "2"]
    for name in wrong:
        assert f"{name} is left out, its spectrum failed: its eigenvectors" in caplog.text
        assert grid.asked(name).count("query.spectrum") == 3  # it gets two more chances
        assert "train" not in grid.asked(name)
    assert groups(one) == [["berlin"], ["rome"]]


def test_a_device_that_comes_back_is_placed_by_its_own_scores_and_keeps_a_model(tmp_path, capsys):
    folders = write_sites(tmp_path / "sites")
    path = tmp_path / "rome.safetensors"
    away = {"rome": range(3)}  # it is there from round 2 on
    summary, grid = run(
        tmp_path / "out",
        folders,
        away=away,
        model_paths={"rome": path},
        num_clients=3,
    )
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


def test_a_newcomer_with_a_class_that_nobody_agreed_on_is_told_so(tmp_path, caplog):
    sites = {**SITES, "tunis": (3, 5)}
    folders = write_sites(tmp_path / "sites", sites)
    away = {"tunis": range(3)}
    summary, _ = run(tmp_path / "out", folders, away=away, num_clients=4)
    one = summary["runs"][0]
    assert one["clusters"][4] == -1
    assert "digit 3, digit 5" in one["failures"]["4"]
    assert "start the run again with this device" in one["failures"]["4"]
    assert groups(one) == TOGETHER


def test_devices_that_do_not_come_are_not_waited_for_longer_than_the_deadline(
    tmp_path, caplog, capsys
):
    folders = write_sites(tmp_path / "sites", {"berlin": (0, 2), "oslo": (6, 8)}, images=8)
    run(tmp_path / "out", folders, num_clients=3, pre_round_deadline=0.2, num_server_rounds=1)
    assert (
        "the run starts with 2 devices of 3, since no more have connected in 0.2 seconds"
        in caplog.text
    )
    waiting = "2 of 3 devices are connected yet, waiting up to 0.2 seconds\n"
    assert capsys.readouterr().out.count(waiting) == 1
    with pytest.raises(ValueError, match=r"no SuperNode has connected in 0\.2 seconds"):
        run(tmp_path / "none", {}, pre_round_deadline=0.2)


@pytest.mark.parametrize(
    ("key", "value", "left"),
    [
        ("noise", "class-dependent", "at none"),
        ("tasks", "0,1|2,3", "empty"),
        ("newcomers", 1, "at 0"),
        ("drift-clients", 1, "at 0"),
        ("attack", "sign-flip", "at none"),
    ],
)
def test_what_only_a_simulation_can_have_is_refused(key, value, left):
    with pytest.raises(
        ValueError, match=rf'(?m)^{key} is .*, but dataset is "own".* leave it {left}\.$'
    ):
        parse_config({**DEFAULTS, **OPTIONS, key: value})


@pytest.mark.parametrize("strategy", ["optimum", "rcc-pfl,random", "tasks+mean"])
def test_strategies_that_need_the_tasks_are_refused(strategy):
    with pytest.raises(ValueError, match="needs tasks, which devices do not know"):
        parse_config({**DEFAULTS, **OPTIONS, "strategy": strategy})


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
    wanted, _ = run(tmp_path / "whole", folders, **options)

    class Cut(Devices):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            if any(
                m.metadata.message_type == "train" and m.metadata.group_id == "3" for m in messages
            ):
                raise PowerCutError
            return super().send_and_receive(messages, timeout=timeout)

    keys = {key.replace("_", "-"): value for key, value in options.items()}
    run_config = {**DEFAULTS, **OPTIONS, **keys, "output-dir": str(tmp_path / "cut")}
    with undrawn_pictures(), pytest.raises(PowerCutError):
        run_on_devices(run_config, Cut(folders, run_config))
    assert [p.name for p in (tmp_path / "cut/checkpoints").iterdir()] == [
        "rcc-pfl-seed-0.safetensors"
    ]
    with pytest.raises(ValueError, match="go on with an interrupted run by resume"):
        run(tmp_path / "cut", folders, **options)
    with pytest.raises(ValueError, match=r"learning-rate is 0\.5, but the run in .* with 0\.003"):
        run(tmp_path / "cut", folders, resume=str(tmp_path / "cut"), learning_rate=0.5, **options)
    capsys.readouterr()
    found, grid = run(tmp_path / "cut", folders, resume=str(tmp_path / "cut"), **options)
    assert "rcc-pfl  seed 0  resumed after round 2" in capsys.readouterr().out
    assert "query.spectrum" not in grid.asked("berlin")
    for one, other in zip(found["runs"], wanted["runs"], strict=True):
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
    _, grid = run(
        tmp_path / "out",
        folders,
        resume=str(tmp_path / "out"),
        checkpoint_every=2,
        model_paths={"lyon": path},
    )
    assert set(grid.asked("lyon")) == {"query.describe", "query.keep_model"}
    assert load_model(path)[1].num_rounds == 3


def test_a_folder_in_which_a_run_goes_on_is_left_alone(tmp_path, monkeypatch):
    """A SuperLink that is killed leaves its ServerApp running for half a minute."""
    monkeypatch.setattr("fl_app.run.checkpoints.PATIENCE", 0.1)
    folders = write_sites(tmp_path / "sites", images=4)
    run(tmp_path / "out", folders, checkpoint_every=3)
    before = (tmp_path / "out/summary.json").read_bytes()
    with FileLock(tmp_path / "out/.lock"), pytest.raises(RuntimeError, match="another run goes on"):
        run(tmp_path / "out", folders, resume=str(tmp_path / "out"), checkpoint_every=3)
    assert (tmp_path / "out/summary.json").read_bytes() == before


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        run(tmp_path / "out", {}, resume=str(tmp_path))


def test_warnings_of_devices_use_their_names(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites", images=10)
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "out", folders, spoil={("train", "oslo"): fail})
    assert "oslo failed in round 1 and is left out of it: the disk is full" in caplog.text


ODD_NAMES = (("$x^$", "[/b]", "<b>", "=1+1"), ("$\\foo{$", "[red]"))


@pytest.mark.parametrize("names", ODD_NAMES, ids=range(2))
def test_a_name_is_shown_as_it_is_whatever_it_means_to_a_library(tmp_path, names, capsys):
    folders = write_sites(tmp_path / "sites", images=10)
    for name in names:
        folders[name] = folders.pop(next(iter(folders)))
    summary, _ = run(tmp_path / "out", folders)
    assert set(names) <= set(summary["runs"][0]["names"])
    shown = capsys.readouterr().out.split("clusters found")[1]
    assert all(name in shown for name in names)
    assert (tmp_path / "out/similarity-rcc-pfl-seed-0.png").exists()


def bytes_for(name, data):
    """Answer with an array whose bytes are not what they say."""

    def spoil(message, context, answer):
        record = answer.content.array_records["arrays"]
        true = record[name]
        record[name] = Array(true.dtype, true.shape, true.stype, data)
        return answer

    return spoil


def npz():
    stream = io.BytesIO()
    np.savez(stream, x=np.ones(3))
    return stream.getvalue()


HUGE = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(117) + b"\n"
)


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    sampled(
        [
            (*of, data)
            for of in (("train", "output.bias"), ("query.spectrum", "eigenvectors"))
            for data in ((npz(), b"PK\x03\x04junk"), (HUGE, b""))
        ],
        3,
    ),
)
def test_bytes_that_are_no_array_cost_only_the_devices_that_sent_them(
    tmp_path, kind, name, data, caplog
):
    folders = write_sites(tmp_path / "sites", images=40)
    wrong = dict(zip(("lyon", "rome"), data, strict=True))
    spoil = {(kind, device): bytes_for(name, sent) for device, sent in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, spoil=spoil, **ALSO_OF_TWO)
    for device in wrong:
        assert f"{device} failed in" in caplog.text or f"{device} is left out" in caplog.text
    assert summary["runs"][0]["clusters"][::2] == [0, 1]
    assert summary["runs"][0]["rounds"] == 3


def test_eigenvectors_of_another_type_are_kept_as_float32(tmp_path):
    folders = write_sites(tmp_path / "sites")
    wide = with_arrays(lambda a: a.update(eigenvectors=a["eigenvectors"].astype(np.longdouble)))
    summary, _ = run(
        tmp_path / "out", folders, spoil={("query.spectrum", "rome"): wide}, checkpoint_every=1
    )
    assert groups(summary["runs"][0]) == TOGETHER


def test_devices_that_agree_on_nonsense_do_not_outvote_the_others(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites")
    tiny = with_arrays(lambda a: a.update(eigenvectors=np.ones((1, 1), np.float32)))
    spoil = {("query.spectrum", name): tiny for name in ("berlin", "rome")}
    summary, _ = run(tmp_path / "out", folders, spoil=spoil, **ALSO_OF_TWO)
    assert groups(summary["runs"][0]) == [["lyon"], ["oslo"]]
    assert "its features have 1 dimensions, the others' 324" in caplog.text


def test_a_device_that_always_fails_does_not_block_the_rounds_in_which_it_is_drawn(
    tmp_path, caplog
):
    folders = write_sites(tmp_path / "sites", images=20)
    summary, _ = run(
        tmp_path / "out",
        folders,
        spoil={("train", "rome"): fail},
        fraction_train=0.25,
        num_server_rounds=8,
    )
    assert summary["runs"][0]["rounds"] == 8
    assert "is lost: no participant sent a usable model" in caplog.text
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 1"):
        run(tmp_path / "none", folders, spoil={("train", name): fail for name in folders})


def test_a_device_that_comes_back_under_another_name_is_one_device(tmp_path, caplog):
    folders = write_sites(tmp_path / "sites")

    def renamed(message, context, answer):
        if message.content.config_records["config"]["server-round"]:
            answer.content.config_records["config"]["name"] = "rouen"
        return answer

    summary, grid = run(
        tmp_path / "out",
        folders,
        spoil={("query.describe", "rome"): renamed},
        away={"rome": {2}},
        num_server_rounds=4,
    )
    one = summary["runs"][0]
    assert "rome is left out: its node says now that it is rouen" in caplog.text
    assert grid.asked("rome").count("train") == 3
    assert one["names"] == ["berlin", "lyon", "oslo", "rome", "rouen"]
    assert one["models-not-kept"]["3"] == "its node says now that it is rouen"


def test_a_device_that_was_left_out_has_no_model(tmp_path):
    folders = write_sites(tmp_path / "sites")
    bad = with_arrays(lambda a: a["eigenvectors"].__setitem__(0, np.nan))
    paths = {name: tmp_path / f"{name}.safetensors" for name in folders}
    summary, _ = run(
        tmp_path / "out", folders, spoil={("query.spectrum", "rome"): bad}, model_paths=paths
    )
    kept = summary["runs"][0]["models-not-kept"]
    assert kept == {"3": "its eigenvectors are not all finite numbers"}


def test_what_a_killed_process_had_begun_to_write_is_no_checkpoint(tmp_path):
    folders = write_sites(tmp_path / "sites", images=10)
    run(tmp_path / "out", folders, checkpoint_every=3)
    stray = tmp_path / "out/checkpoints/.rcc-pfl-seed-0-zzz.safetensors"
    stray.write_bytes(b"half")
    run(tmp_path / "out", folders, checkpoint_every=3, resume=str(tmp_path / "out"))
    (tmp_path / "out/checkpoints/rcc-pfl-seed-0.safetensors").unlink()
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        run(tmp_path / "out", folders, checkpoint_every=3, resume=str(tmp_path / "out"))


@pytest.mark.faults
def test_every_strategy_begins_with_the_devices_that_are_there(tmp_path):
    folders = write_sites(tmp_path / "sites")
    summary, _ = run(
        tmp_path / "out", folders, away={"rome": range(3)}, num_clients=3, strategy="rcc-pfl,local"
    )
    first, second = summary["runs"]
    assert first["failures"] == second["failures"] == {}
    assert second["clusters"] == [0, 1, 2, 3]


NAMES = (None, 7, "", "a\nb", "x" * 101)


@pytest.mark.parametrize("names", [NAMES[:2], NAMES[2:4], NAMES[4:]], ids=range(3))
def test_a_device_without_a_name_that_can_be_used_is_left_out_for_good(tmp_path, names, caplog):
    """Whatever number it says it is."""

    def nameless(name):
        def spoil(message, context, answer):
            said = answer.content.config_records["config"]
            said.pop("name")
            if name is not None:
                said["name"] = name
            answer.content.metric_records["metrics"]["client-index"] = 1
            return answer

        return spoil

    folders = write_sites(tmp_path / "sites")
    wrong = dict(zip(("rome", "lyon"), names, strict=False))
    spoil = {("query.describe", device): nameless(name) for device, name in wrong.items()}
    summary, _ = run(tmp_path / "out", folders, spoil=spoil, **ALSO_OF_TWO)
    assert caplog.text.count("it gave no name that can be used") >= len(names)
    others = sorted(set(SITES) - set(wrong))
    alike = ["berlin", "lyon"] if "lyon" in others else ["berlin"]
    assert groups(summary["runs"][0]) == [alike, ["oslo"]]
    assert summary["runs"][0]["names"] == others
