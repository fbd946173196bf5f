"""`simulate`, its results as data frames, and strategies in a file of one's own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedkin
from fedkin import load_results, load_sweep, simulate, sweep
from fl_app.results.frames import Picture, Results
from fl_core.user_code import unload_user_modules
from tests.app_runs import ROOT, run
from tests.report_data import write_results


def test_the_package_is_light():
    """A device has no pandas, and a command's help needs no torch."""
    heavy = "{'torch', 'pandas', 'ray', 'matplotlib', 'flwr'} & set(sys.modules)"
    code = f"import sys, fedkin; fedkin.__all__; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(ImportError, match="cannot import name 'simulat'"):
        from fedkin import simulat  # noqa: F401, PLC0415


def test_each_public_name_is_there():
    assert all(getattr(fedkin, name) for name in fedkin.__all__)


@pytest.mark.parametrize("files", [["clients/__init__.py"], ["strategies/mine.py"]])
def test_a_folder_that_hides_a_package_is_named(tmp_path, files):
    for name in files:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    script = tmp_path / "mine.py"
    script.write_text("import fedkin", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    hidden = tmp_path / files[0].partition("/")[0]
    is_package = files[0].endswith("__init__.py")
    assert (f"{hidden} hides fedkin's package" in done.stderr) == is_package


# ---------------------------------------------------------------------------------------- a run


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Let nothing be started: a run says its lines and leaves an empty summary."""
    calls = []

    def play(plan, show, *_):
        calls.append(plan)
        show("rcc-pfl  round 1\n")
        folder = plan.folder
        if folder.name == "fail":
            show("error: the disk is full.\n")
            return False
        if folder.name == "silent":
            return False
        write_results(folder, seeds=1, strategies=("single",))
        return True

    monkeypatch.setattr("fl_app.plan.Plan._run_on_ray", play)
    monkeypatch.chdir(tmp_path)
    return calls


@pytest.fixture
def bare_machine(monkeypatch):
    """Let there be no GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_options_are_keys_with_underscores(played, capsys):
    results = simulate(
        strategy=["rcc-pfl", "single"],
        noise="class-dependent",
        noise_rate=np.float64(0.3),
        output_dir=Path("here"),
        workers=2,
    )
    plan = played[0]
    assert plan.options["strategy"] == "rcc-pfl,single"
    assert (plan.options["noise-rate"], plan.options["num-clients"]) == (0.3, 25)
    assert plan.config.simulated_clients == 25
    assert results.folder == Path("here").absolute()
    assert capsys.readouterr().out == "rcc-pfl  round 1\n"
    lines = []
    simulate(progress=lines.append, workers=1)
    simulate(progress=False, workers=2)
    assert lines == ["rcc-pfl  round 1\n"]
    assert capsys.readouterr().out == ""
    assert played[1].workers == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strateg": "single"}, r"strateg is not a run-config key\. Did you mean strategy"),
        ({"strategy": "singel"}, "Did you mean single"),
        ({"noise_rate": 2}, "noise-rate is 2, but it must be a number"),
        ({"noise_rate": [0, 0.2]}, r"noise_rate is \[0, 0\.2\], but it must be text, a number"),
        ({"num_tasks": 11}, "num-tasks is 11, but mnist-5k has 10 classes"),
        ({"dataset": "devices"}, "the images of real devices"),
        ({"num_server_rounds": 0}, "num-server-rounds is 0, .* use fedkin group"),
        ({"device": "cuda"}, 'device is "cuda", but PyTorch sees no GPU'),
        ({"workers": -1}, "workers is -1, but it must be a whole number of at least 0"),
        ({"workers": 2.0}, r"workers is 2\.0, but it must be a whole number"),
        ({"workers": "two"}, "workers is 'two', but it must be a whole number"),
        (
            {"strategy": "nowhere:Mine"},
            'strategy is "nowhere:Mine", but there is no module nowhere',
        ),
        (
            {"model": "fl_core.text:printabel"},
            r"text\.py has no printabel\. Did you mean printable",
        ),
    ],
)
def test_a_wrong_word_is_refused_before_anything_starts(options, message, played, bare_machine):
    with pytest.raises(ValueError, match=message):
        simulate(**options)
    assert played == []


def test_a_wrong_word_of_a_sweep_is_refused(played):
    with pytest.raises(ValueError, match="nothing is swept"):
        sweep(strategy=["rcc-pfl", "single"], num_tasks=3)
    with pytest.raises(ValueError, match="processes is 0"):
        sweep(num_tasks=[2, 3], processes=0)


def test_a_run_that_fails_says_why(played):
    with pytest.raises(RuntimeError, match=r"^the disk is full\.$"):
        simulate(output_dir="fail", progress=False, workers=2)
    with pytest.raises(RuntimeError, match="the run failed:\nrcc-pfl  round 1"):
        simulate(output_dir="silent", progress=False, workers=2)


# -------------------------------------------------------------------------------------- results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    run(folder, strategy="single,rcc-pfl", repeats=2, evaluate_every=2, batch_size=128)
    return load_results(folder)


def test_rounds_and_clients_are_frames(results):
    assert len(results.accuracy) == 2 * 2 * 2  # strategies, seeds, rounds
    tested = results.accuracy.dropna(subset="accuracy")
    assert list(tested["round"]) == [2] * 4
    of_clients = results.clients.groupby(["strategy", "seed", "round"])["accuracy"].mean()
    for row in tested.itertuples():
        assert of_clients[row.strategy, row.seed, row.round] == pytest.approx(row.accuracy)
    assert len(results.clients) == 4 * 6
    assert results.table.loc["rcc-pfl", "ari-mean"] == 1
    assert repr(results).startswith("Results(single, rcc-pfl in ")


def test_clusters_are_those_of_the_summary(results):
    clusters = results.clusters
    assert list(clusters.columns) == ["strategy", "seed", "client", "cluster", "task"]
    for one in results.summary.runs:
        mine = clusters.query(f"strategy == '{one.strategy}' and seed == {one.seed}")
        assert list(mine["cluster"]) == one.clusters
        assert list(mine["task"]) == one.tasks


def test_names_of_clients_are_texts(tmp_path):
    """As those of files 001.csv and NA.csv, and of one that a spreadsheet would calculate."""
    lines = ["strategy,seed,client,name,accuracy", "single,0,0,001,0.5", "single,0,1,NA,nan"]
    lines += ["single,0,3,'-1 ward,1"]
    for name in ("clients", "verdicts"):
        (tmp_path / f"{name}.csv").write_text(
            "\n".join([*lines, "single,0,2,,1"]), encoding="utf-8"
        )
        table = getattr(Results(tmp_path, {}), name)
        assert table["name"].tolist()[:3] == ["001", "NA", "-1 ward"]
        assert table["name"].isna().tolist() == [False, False, False, True]
        assert table["accuracy"].isna().tolist() == [False, True, False, False]
        assert list(table.columns) == lines[0].split(",")


def test_relevance_is_a_square_of_clients(results):
    found = results.relevance()
    assert list(found.index) == list(found.columns) == list(range(6))
    assert np.allclose(found, found.T)
    with np.load(results.folder / "similarity-rcc-pfl-seed-1.npz") as kept:
        np.testing.assert_array_equal(results.relevance("rcc-pfl", 1), kept["similarity"])
    for asked in (("single",), ("rcc-pfl", 7)):
        with pytest.raises(ValueError, match="has no relevance matrix of"):
            results.relevance(*asked)


def test_pictures_are_those_that_the_run_drew(results, tmp_path):
    pictures = results.figures()
    assert {"accuracy-per-round", "labels-per-client", "similarity-rcc-pfl-seed-0"} <= set(pictures)
    shown = {}
    for name, content in (("png", b"a picture"), ("svg", b"<svg/>"), ("pdf", b"%PDF")):
        (tmp_path / f"one.{name}").write_bytes(content)
        shown |= Picture(tmp_path / f"one.{name}")._repr_mimebundle_()
    assert shown == {
        "image/png": "YSBwaWN0dXJl",
        "image/svg+xml": "<svg/>",
        "application/pdf": "JVBERg==",
    }


def test_a_sweep_over_an_empty_text_has_it_in_its_table(tmp_path):
    header = "cell,loss,strategy,seed,measure,value\n"
    rows = "loss=,,single,0,accuracy,80.0\nloss=m:f,m:f,single,0,accuracy,\n"
    (tmp_path / "sweep.csv").write_text(header + rows, encoding="utf-8")
    table = load_sweep(tmp_path).table
    assert table["loss"].tolist() == ["", "m:f"]
    assert table["value"].isna().tolist() == [False, True]


def test_folders_that_hold_no_results(tmp_path):
    with pytest.raises(ValueError, match=r"has no summary\.json"):
        load_results(tmp_path)
    with pytest.raises(ValueError, match=r"has no sweep\.csv"):
        load_sweep(tmp_path)
    (tmp_path / "summary.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a valid result file"):
        load_results(tmp_path)


# ----------------------------------------------------------------------------- one's own strategy

BIAS = (ROOT / "examples/own_strategy/bias_app/bias.py").read_text(encoding="utf-8")


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """Return a file of the working directory that is a module, for as long as the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # of a file that changes within a second
    (tmp_path / "mine.py").write_text(BIAS, encoding="utf-8")
    yield tmp_path / "mine.py"
    unload_user_modules()


def test_a_clustering_of_ones_own_runs_beside_others(own_file, tmp_path):
    own = "mine:BiasClustering"
    strategies = f"{own},{own}+median,single"
    summary = run(tmp_path / "out", strategy=strategies, model="mlp-32", optimizer="sgd")
    found = {one["strategy"]: one["ari"] for one in summary["runs"]}
    assert found == {own: 1, f"{own}+median": 1, "single": 0}
    assert summary["config"]["strategy"] == strategies


def test_a_changed_file_is_read_again_by_the_next_call(own_file, played):
    simulate(strategy="mine:BiasClustering", progress=False, workers=2)
    own_file.write_text(BIAS.replace("BiasClustering", "TiltClustering"), encoding="utf-8")
    simulate(strategy="mine:TiltClustering", progress=False, workers=2)
    assert len(played) == 2
    with pytest.raises(ValueError, match=r"mine\.py has no BiasClustering\. Did you mean Tilt"):
        simulate(strategy="mine:BiasClustering", progress=False, workers=2)


def test_a_changed_folder_of_tables_is_read_again_by_the_next_call(tmp_path, played):
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = "age,label\n" + "1,x\n2,y\n" * 30
    for site in ("berlin", "oslo"):
        (tables / f"{site}.csv").write_text(rows, encoding="utf-8")
    tabular = {"dataset": "tables", "data_dir": tables, "strategy": "single", "progress": False}
    simulate(**tabular, workers=2)
    (tables / "rome.csv").write_text(rows.replace("age", "height"), encoding="utf-8")
    with pytest.raises(ValueError, match="but rome does not"):
        simulate(**tabular)
    with pytest.raises(ValueError, match="but rome does not"):
        sweep(**tabular, seed=[0, 1])
    assert len(played) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1 / 0",
            r"mine cannot be imported: ZeroDivisionError: division by zero \(mine\.py, line 1",
        ),
        ("x = (", r"mine cannot be imported: SyntaxError"),
        ("x = 1", r"mine\.py has no BiasClustering\.$"),
        ("BiasClustering = 3", "is of type int: it must be a function or a class"),
        ("def BiasClustering(): pass", "which is not a subclass of strategies.Clustering"),
        (
            "from strategies import Clustering\nclass BiasClustering(Clustering): pass",
            "lacks the method find: define it",
        ),
    ],
)
def test_what_is_no_strategy_is_refused(text, message, own_file, played):
    own_file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f'^strategy is "mine:BiasClustering", .*{message}'):
        simulate(strategy="mine:BiasClustering", progress=False, workers=2)
    assert played == []


def test_a_field_that_nobody_knows_needs_a_default(own_file, tmp_path):
    text = BIAS.replace("    num_clusters: int\n", "    num_clusters: int\n    how_much: float\n")
    assert text != BIAS
    own_file.write_text(text, encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"mine:BiasClustering, but its field how_much has no default"
    ):
        run(tmp_path / "out", strategy="mine:BiasClustering", model="mlp-32")
