"""What `fedkin run` refuses before it starts anything."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app.api import simulate
from fl_app.cli import main
from fl_app.config.run_config import OPTIONS, parse_config
from fl_app.config.unused_options import find_unused_options
from fl_core.data.dataset_info import dataset_info, num_labels
from fl_core.data.datasets import load_dataset
from fl_core.options import SYNONYMS
from strategies.catalogue import SYSTEMS
from tests.app_runs import DEFAULTS, run

BASE = ["num-clients=12", "strategy=single"]


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, tmp_path):
    def start(*_, **__):
        raise AssertionError("something was started")

    monkeypatch.setattr("fl_app.plan.Plan.run", start)
    monkeypatch.chdir(tmp_path)


def test_what_others_call_something_is_no_word_of_ours_and_what_is_meant_is():
    ours = {*OPTIONS, *SYSTEMS}
    assert set(SYNONYMS.values()) <= ours
    assert not ours & set(SYNONYMS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strategy=singel"], 'strategy is "singel", .* Did you mean single\\?'),
        (["strategy=FedAvg"], 'strategy is "FedAvg", .* Did you mean fedavg\\?'),
        (["rounds=3"], "rounds is not a run-config key. Did you mean num-server-rounds?"),
        (["dataset=cifar-10"], 'dataset is "cifar-10", .* Did you mean cifar10\\?'),
        (["seed=99999999999999999999999"], "seed is 9{23}, .* at most 4294967295"),
        (["num-clients=99999999999999999999"], 'num-clients is "9{20}", .* at least 1, below 2.63'),
        (["strategy=flt", "encoder=none.safetensors"], "none.safetensors does not exist: give the"),
        (
            ["dataset=devices"],
            'dataset is "devices", the images of real devices, but fedkin run simulates',
        ),
        (["num-tasks=11"], "num-tasks is 11, but mnist-5k has 10 classes: choose 1 to 10"),
        (["standardise=all"], 'standardise is "all", but the samples of mnist-5k are pixels'),
        (
            ["tasks=0,1|0,1,2,3", "noise=class-independent"],
            "noise is .* but task 1 has all labels: set noise to none, or choose other tasks",
        ),
        (["dataset=mnist", "data-dir=mistyped"], "data-dir is mistyped, which is not a folder"),
        (["strategy=rcc-pfl", "num-clusters=13"], "num-clusters is 13, but there are 12"),
        (
            ["strategy=rcc-pfl", "num-eigenvectors=325"],
            "num-eigenvectors is 325, but hog features of these images have 324 dimensions",
        ),
        (
            ["strategy=pacfl", "num-eigenvectors=785"],
            "num-eigenvectors is 785, but raw features of these images have 784 dimensions",
        ),
        (["strategy=fedper"], 'private-layers is "last", which is all layers of the model'),
        (["strategy=fedbn", "model=mlp"], "needs norm layers, but mlp has none"),
        (["dataset=mnist+cifar10"], "joins images of the shapes 1×28×28 and 3×32×32"),
        (["dataset=rotated-mnist", "noise=class-independent"], "all tasks have the same labels"),
    ],
)
def test_a_wrong_word_is_refused_in_one_line(words, said, capsys):
    assert main(["run", *BASE, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("command", ["run", "dry run", "group", "sweep", "simulate"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dataset": "folder"}, "cat in .*pets has no images, files end"),
        ({"device": "cuda"}, 'device is "cuda", but'),
        (
            {"num-clusters": 5, "num-tasks": 9},
            "num-clients is 4, fewer than the 9 tasks, .*\n"
            ".*num-clusters is 5, but there are 4 clients",
        ),
    ],
)
def test_every_command_asks_the_same(tmp_path, monkeypatch, capsys, command, options, said):
    (tmp_path / "pets/cat").mkdir(parents=True)
    monkeypatch.setenv("FL_DATA_DIR", str(tmp_path / "pets"))
    monkeypatch.setattr("fl_core.extras.find_spec", lambda _: True)
    words = ["num-clients=4", "strategy=rcc-pfl", *(f"{k}={v}" for k, v in options.items())]
    if command == "simulate":
        given = {key.replace("-", "_"): value for key, value in options.items()}
        with pytest.raises((ValueError, OSError), match=said):
            simulate(num_clients=4, strategy="rcc-pfl", progress=False, **given)
        return
    if command == "dry run":
        words = ["run", "--dry-run", *words]
    else:
        words = [command, *words, *(["seed=1,2"] if command == "sweep" else [])]
    assert main(words) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_folder_in_use_is_known_before_the_start(tmp_path, capsys):
    (tmp_path / "used").mkdir()
    (tmp_path / "used/summary.json").touch()
    (tmp_path / "full/checkpoints").mkdir(parents=True)
    words = ["num-clients=4", "strategy=rcc-pfl"]
    for command in (["run"], ["run", "--dry-run"], ["group"]):
        assert main([*command, *words, "output-dir=used"]) == 2
        assert "used, which has results already: give another" in capsys.readouterr().err
    # The disk was full for the first checkpoint: there is nothing to resume, nothing to store.
    assert main(["run", "--dry-run", *words, "output-dir=full"]) == 0
    (tmp_path / "full/checkpoints/single-seed-0.safetensors").touch()
    assert main(["run", "--dry-run", *words, "output-dir=full"]) == 2
    assert "full, which has results already: give another" in capsys.readouterr().err


def test_one_refusal_names_all_that_is_wrong(capsys):
    assert main(["run", "sede=1", "seed=-1", "repeats=0", "strategy=rcc-pfl"]) == 2
    assert [line[:22] for line in capsys.readouterr().err.splitlines()] == [
        "error: sede is not a r",
        "       seed is -1, but",
        "       repeats is 0, b",
    ]
    both = ["newcomers=1", "newcomer-round=11", "weighted-mean=true"]
    assert main(["run", *both, "strategy=spectral+median"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert "error: weighted-mean is true, but spectral+median weights all clients equally" in error
    assert "\n       newcomer-round is 11, but it must be at most num-server-rounds" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("noise-rate=0.3", "noise-rate=0.3 has no effect: it is used only if noise is not none."),
        ("noise-rate=0.25 malicious=0.20", ""),  # the defaults
        ("tasks=0,1|2,3|4,5 num-tasks=5", "num-tasks=5 has no effect: .* if tasks is empty."),
        ("tasks=0,1|2,3|4,5 momentum=0.9", "momentum=0.9 has no effect: .* if optimizer is sgd."),
        ("strategy=pfedme optimizer=sgd", "optimizer=sgd has no effect: .* such as rcc-pfl."),
        ("strategy=fedrep model=mlp local-epochs=1", "local-epochs=1 .* such as rcc-pfl."),
        ("attack=sign-flip", ""),
        ("attack=random-signature", "attack=random-signature .* such as rcc-pfl."),
        ("attack=random-signature strategy=rcc-pfl", ""),
        ("attack=sign-flip strategy=local", "attack=sign-flip .* train together, as with single."),
        ("attack=sign-flip attack-scale=2", "attack-scale=2 .* if attack is scaled-update."),
        ("num-clusters=3", "num-clusters=3 .* for a strategy such as rcc-pfl."),
        ("features=raw strategy=pacfl", "features=raw .* for a strategy such as rcc-pfl."),
        ("num-clusters=3 strategy=pacfl", "num-clusters=3 .* if angle-threshold is never."),
        ("num-clusters=3 strategy=pacfl angle-threshold=never", ""),
        ("encoder=mnist", "encoder=mnist .* for a strategy such as flt."),
        ("dirichlet-alpha=9 partition=equal", ".* if partition is label or quantity."),
        (
            "num-server-rounds=0 strategy=rcc-pfl,local validation-share=0.2",
            "validation-share=0.2 .* only in rounds of training.",
        ),
    ],
)
def test_what_changes_nothing_is_said(words, said, capsys):
    strategy = [] if "strategy" in words else ["strategy=single"]
    with pytest.raises(AssertionError, match="something was started"):
        main(["run", "num-clients=12", *strategy, *words.split()])
    warned = capsys.readouterr().err
    assert re.fullmatch(f"warning: {said}\n" if said else "", warned), warned


def test_what_only_rounds_or_a_spread_need_changes_nothing_without_them():
    def said(**given):
        given = {key.replace("_", "-"): value for key, value in given.items()}
        return find_unused_options(given, parse_config({**DEFAULTS, **given}))

    group = {"strategy": "rcc-pfl", "num_server_rounds": 0}
    assert said(**group, learning_rate=0.1, checkpoint_every=2, fraction_train=0.5) == [
        f"{what} has no effect: it is used only in rounds of training."
        for what in ("learning-rate=0.1", "checkpoint-every=2", "fraction-train=0.5")
    ]
    spread = {"partition": "equal", "minority": 0.3, "min_samples": 5, "client_test": "own"}
    assert said(strategy="single", **spread) == []
    warned = said(strategy="single", dataset="flights", **spread)
    assert len(warned) == 4
    (tasks,) = said(strategy="single", dataset="watch", num_tasks=4)
    assert tasks.startswith("num-tasks=4 has no effect: it is used only where samples are spread")
    writers = {"dataset": "femnist", "partition": "writer", "min_samples": 9, "minority": 0.3}
    assert said(strategy="single", **writers) == [
        "minority=0.3 has no effect: it is used only if partition is not writer."
    ]
    assert warned[1] == (
        "minority=0.3 has no effect: it is used only where samples are spread over clients, but "
        "flights has a partition."
    )


def test_other_commands_warn_too_and_a_sweep_of_what_changes_nothing_in_every_cell(capsys):
    words = ["strategy=rcc-pfl", "noise-rate=0.3"]
    said = "warning: noise-rate=0.3 has no effect: it is used only if noise is"
    for command in (["run", "--dry-run"], ["group", "attack=sign-flip", "--resamples", "0"]):
        assert main([*command, "num-clients=4", *words, f"output-dir={command[0]}"]) == 0
        warned = capsys.readouterr().err.splitlines()
        assert said in warned[-1]
    assert warned[0].endswith(
        "attack=sign-flip has no effect: it is used only in rounds of training."
    )
    cells = ["optimizer=sgd,adam", "num-clients=4,5", "momentum=0.5"]
    assert main(["sweep", "--dry-run", *cells, *words]) == 0
    printed = capsys.readouterr().out
    assert printed.count("warning:") == printed.count(said) == 1


def test_what_an_option_needs_is_an_option_and_what_it_may_be():
    assert {key for key, one in OPTIONS.items() if one.needs} > {"noise-rate", "num-tasks"}
    for needs in (one.needs for one in OPTIONS.values() if one.needs):
        other, equals, values = needs.partition("=")
        for value in values.split("|") if equals else ():
            assert OPTIONS[other].rule.read(other, value) == value
        assert other in OPTIONS


def test_a_package_of_a_strategy_is_missed_before_the_start(monkeypatch, capsys):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        "fl_core.extras.find_spec", lambda name: None if name in ("umap", "opacus") else there(name)
    )
    for words, package in ((["strategy=flt"], "umap"), (["training-epsilon=1"], "opacus")):
        assert main(["run", *BASE, *words]) == 2
        assert f"needs the package {package}, which is not installed" in capsys.readouterr().err


def test_a_data_folder_that_is_only_in_the_variable(monkeypatch, capsys):
    monkeypatch.setenv("FL_DATA_DIR", "/nowhere/at/all")
    assert main(["run", *BASE, "dataset=mnist"]) == 2
    assert "the variable FL_DATA_DIR is /nowhere/at/all, which is no" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="something was started"):
        main(["run", *BASE])  # mnist-5k is in the package


def test_a_trial_without_samples_to_compare_on_is_none(capsys):
    for word, said in (
        ("validation-share=0", "validation-share is 0, but fedkin trial compares models"),
        ("num-server-rounds=0", "num-server-rounds is 0, which only groups clients: choose"),
    ):
        assert main(["trial", *BASE, "strategy=rcc-pfl,local", word, "--dry-run"]) == 2
        assert said in capsys.readouterr().err


def test_other_options_than_those_of_the_run_to_resume_are_refused_before_it_starts(
    tmp_path, monkeypatch, capsys
):
    options = {"strategy": "single", "num_clients": 6, "num_server_rounds": 1, "model": "mlp-32"}
    run(tmp_path / "out", **options, checkpoint_every=1)
    monkeypatch.setattr("fl_app.plan.Plan.run", None)
    words = ["strategy=single", "num-clients=4", "model=mlp-32", "num-server-rounds=1"]
    assert main(["run", *words, f"resume={tmp_path / 'out'}"]) == 2
    assert re.search(r"is .*, but the run in .* was started with", capsys.readouterr().err)


def test_a_run_that_is_stopped_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def stop(*_, **__):
        (tmp_path / "out/checkpoints").mkdir(parents=True)
        (tmp_path / "out/checkpoints/single-seed-0.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("fl_app.plan.Plan.run", stop)
    words = ["strategy=single", "num-clients=4", "checkpoint-every=1", "keep-spectra=false"]
    assert main(["run", *words, f"output-dir={tmp_path / 'out'}"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    again, stopped = err.splitlines()
    assert again == f"to resume: fedkin run {' '.join(words)} resume={tmp_path / 'out'}"
    assert stopped == "stopped."


def test_ctrl_c_while_commands_are_loaded_is_no_traceback(monkeypatch, capsys):
    class Interrupted:
        def find_spec(self, name, *_):
            if name == "fl_app.run.watch":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "fl_app.run.watch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["--version"]) == 130
    assert capsys.readouterr().err == "stopped.\n"


@pytest.mark.parametrize("command", [["run"], ["run", "--dry-run"], ["group"], ["sweep"]])
def test_a_folder_of_images_that_cannot_be_one(tmp_path, monkeypatch, capsys, command):
    def refused(folder):
        data = f"data-dir={folder}"
        swept = "num-clients=4,5" if command == ["sweep"] else "num-clients=4"
        assert main([*command, "strategy=rcc-pfl", swept, "dataset=folder", data]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        with pytest.raises((ValueError, OSError)) as raised:
            load_dataset("folder", str(folder))
        assert f"{raised.value}\n" in error  # the same sentence as in a run
        return error

    pets = tmp_path / "pets"
    assert "pets is not a folder: give one with train/CLASS/* or CLASS/* and" in refused(pets)
    pets.mkdir()
    (pets / "1.png").touch()
    assert "pets has no class folders: give a folder with train/CLASS/*" in refused(pets)
    (pets / "cat").mkdir()
    assert "cat in " in refused(pets)
    (tmp_path / "pets.tar").write_bytes(b"no archive" * 100)
    assert "pets.tar is not a folder: " in refused(tmp_path / "pets.tar")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FL_DATA_DIR", raising=False)
    assert f"{tmp_path / 'cache' / 'data'} is not a folder: " in refused("")


def test_files_that_cannot_be_used_are_named_without_a_number(tmp_path, capsys):
    for site in ("a", "b"):
        (tmp_path / f"{site}.csv").mkdir()
    table = ["run", "strategy=rcc-pfl", "dataset=tables", f"data-dir={tmp_path}"]
    for words, said in (
        (table, f"{tmp_path / 'a.csv'} cannot be used: Is a directory."),
        (["classify", "no.safetensors", "."], "no.safetensors cannot be used: No such file or dir"),
    ):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", "is a file: give another folder"),
        ("file/below", "is a file: give another folder"),
        ("a\x7fb", r"a\x7fb, but must be printable text: give another folder."),
        (os.fsdecode(b"caf\xe9"), r"caf\udce9, but must be printable text: give another folder."),
        ("here", "but you may not write to"),
    ],
)
def test_folders_for_results_that_cannot_be(tmp_path, monkeypatch, capsys, name, said):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    if name == "here":
        monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert main(["run", *BASE, f"output-dir={name}"]) == 2
    assert said in capsys.readouterr().err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_a_dry_run_says_what_would_run_and_starts_nothing(tmp_path, capsys):
    words = ["strategy=single,local", "repeats=3", "seed=4", "output-dir=out", "num-tasks=3"]
    assert main(["run", "--dry-run", *words]) == 0
    said = capsys.readouterr().out
    assert "strategies: single, local\nseeds from 4: 6 training(s) of 10 rounds\n" in said
    assert "25 clients, data set mnist-5k, model logistic-regression" in said
    assert f"results would go to {tmp_path / 'out'}" in said
    assert f"given: {' '.join(words)}\n" in said
    assert main(["run", "--dry-run", "strategy=local,fedkin", "relevance=paper"]) == 0
    held = "num-clusters=auto relevance=paper relevance-at=server outliers=separate"
    assert f"strategies: local, fedkin ({held})\n" in capsys.readouterr().out
    assert main(["run", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "seeds from 0: 2 training" in said
    assert "given: the defaults" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"flwr", "numpy", "httpx", "uvicorn", "cryptography", "rich", "asyncio"}),
        (["watch", "none", "--once"], {"flwr", "torch", "scipy", "sklearn"}),
    ],
)
def test_what_answers_at_once_loads_nothing_that_takes_long(words, heavy):
    program = f"import sys\nfrom fl_app.cli import main\ntry:\n    main({words!r})\nfinally:\n"
    program += f"    print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert done.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "name",
    [
        *("mnist-5k", "mnist", "fashion-mnist", "rotated-mnist"),
        pytest.param("cifar10", marks=[pytest.mark.slow, pytest.mark.faults]),
    ],
)
def test_what_is_known_before_the_images_are_read_is_true(name):
    if name != "mnist-5k" and "FL_DATA_DIR" not in os.environ:
        pytest.skip("FL_DATA_DIR is not set")
    read = load_dataset(name, download=False)
    assert num_labels(name) == len(read.group_names)
    assert dataset_info(name)[:2] == (read.sample_shape, read.num_classes)


def test_as_many_as_can_be_are_not_refused():
    for words in (
        ["strategy=rcc-pfl", "num-clusters=12", "num-eigenvectors=324"],
        ["strategy=pacfl", "num-eigenvectors=784"],
        ["strategy=single", "num-clusters=13", "num-eigenvectors=999"],  # which needs neither
    ):
        with pytest.raises(AssertionError, match="something was started"):
            main(["run", *BASE, *words])
