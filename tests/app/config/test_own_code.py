"""Code of somebody's own in whole runs: who may run it, what is tried beforehand, what is shown."""

import csv
import html
import json
import re

import numpy as np
import pytest

from fl_app.cli import main
from fl_app.config.allowed_code import ALLOWED_CODE, allowed_paths, check_code_allowed
from fl_app.config.run_config import parse_config
from fl_app.config.tuning import combinations
from fl_app.devices.site.check import import_code
from fl_app.results.layout import file_name
from fl_app.simulation.preflight import check_simulation
from fl_app.sweeps.plan import plan_sweep, read_words
from fl_app.sweeps.running import identifying_options
from fl_core.data.datasets import clear_data_caches
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS
from tests.own_modules import TABLE, own_modules, run_alone
from tests.report_data import reasons_of
from tests.toy_app import fail

OWN = {"dataset": "own:load", "num-clients": 8, "num-tasks": 2}
OWN |= {"min-samples": 5, "num-server-rounds": 2, "num-eigenvectors": 3}

PARTITIONS = """
import numpy as np
from fl_core.data.user_data import Partitions

def load(tasks=None, names=None):
    rng = np.random.default_rng(0)
    clients = []
    for client in range(6):
        labels = np.arange(40) % 3
        rows = rng.normal(size=(40, 5)).astype(np.float32)
        rows[:, client % 2] += 9
        rows[np.arange(40), 2 + labels] += 5
        clients.append((rows[:30], labels[:30], rows[30:], labels[30:]))
    return Partitions(clients, tasks, names=names)

def with_tasks():
    return load([0, 1] * 3)

def with_names():
    return load(names=["Zoë, left", "Zoë, right", "=x", "Ann", "Bob", "Cy"])
"""


@pytest.fixture
def own(tmp_path):
    with own_modules(tmp_path, own=TABLE, parts=PARTITIONS):
        yield tmp_path


def summary_of(folder, **options):
    """Run the app in this process and return its summary."""
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return run_alone({**DEFAULTS, **OWN, **given, "output-dir": str(folder / "out")})


# -------------------------------------------------------------------------------------- whole runs


def test_a_table_is_clustered_and_learnt(own, capsys):
    found = summary_of(own, strategy="rcc-pfl,optimum", local_epochs=10)
    by_name = {one["strategy"]: one for one in found["runs"]}
    assert found["config"]["model"] == "mlp"
    assert found["config"]["features"] == "fourier"
    said = "features=auto: fourier, since samples are float32 of shape 6\n"
    assert capsys.readouterr().out.count(said) == 1
    assert by_name["rcc-pfl"]["ari"] == 1
    assert by_name["rcc-pfl"]["accuracy"] == by_name["optimum"]["accuracy"] > 0.8


def test_model_and_features_of_ones_own_do_what_they_say(own):
    options = {"strategy": "rcc-pfl,single", "model": "own:make_model", "features": "own:phi"}
    found = summary_of(own, **options)
    assert [one["ari"] for one in found["runs"]] == [1, 0]
    files = sorted((own / "out/models/single").rglob("*.safetensors"))
    model, card = load_model(files[0], "own:make_model")
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear"]
    assert (card.architecture, card.sample_shape) == ("own:make_model", (6,))
    with pytest.raises(ValueError, match='its model is "own:make_model", user-defined code'):
        load_model(files[0])
    with pytest.raises(ValueError, match="which a file may not start"):
        load_model(files[0], "own:other")


def test_partitions_without_tasks_show_no_ari(own):
    given = {"dataset": "parts:load", "num_clients": 6, "strategy": "rcc-pfl,single"}
    found = summary_of(own, **given)
    for one in found["runs"]:
        assert not {"ari", "nmi", "tasks"} & one.keys()
    assert found["config"]["num-clusters"] == "num-tasks"
    assert [len(set(one["clusters"])) for one in found["runs"]] == [2, 1]
    assert found["runs"][0]["clusters"] == [0, 1] * 3
    with (own / "out/metrics.csv").open(encoding="utf-8") as file:
        assert "ari" not in next(csv.reader(file))
    assert "client-tasks" not in np.load(own / "out/partition-seed-0.npz")


def test_clients_go_by_their_names_wherever_devices_do(own, capsys, caplog):
    options = {"dataset": "parts:with_names", "num-clients": 6, "strategy": "rcc-pfl,single"}
    given = {**DEFAULTS, **OWN, **options, "output-dir": str(own / "out")}
    found = run_alone(given, corrupt={("query.spectrum", 3): fail})
    names = ["Zoë, left", "Zoë, right", "=x", "Ann", "Bob", "Cy"]
    assert "clients: Zoë, left; Zoë, right; =x; Ann; Bob; Cy\n" in capsys.readouterr().out
    for one in found["runs"]:
        assert one["names"] == names
        assert "models-not-stored" not in one  # which devices have
    assert list(reasons_of(found["runs"][0])) == [3]
    assert "Ann is left out" in caplog.text
    assert json.loads((own / "out/grouping.json").read_text(encoding="utf-8"))["clients"] == names
    with (own / "out/clients.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["strategy"] == "single"]
    assert [row["name"] for row in rows][:3] == ["Zoë, left", "Zoë, right", "'=x"]
    assert "Zoë, left; =x; Bob" in (own / "out/report.html").read_text(encoding="utf-8")


def test_data_that_come_in_partitions_say_how_many_clients_there_are(own, capsys):
    words = ["dataset=parts:with_names", "features=raw", "num-eigenvectors=3", "output-dir=out"]
    assert main(["run", "--dry-run", "strategy=rcc-pfl", *words]) == 0
    assert "6 clients, data set parts:with_names" in capsys.readouterr().out
    assert main(["group", *words, "--resamples", "3"]) == 0
    found = json.loads((own / "out/grouping.json").read_text(encoding="utf-8"))
    assert found["clients"][0] == "Zoë, left"
    words[-1] = "output-dir=other"
    assert main(["group", *words, "num-clients=7"]) == 2
    said = "num-clients is 7, but parts:with_names comes in 6 partitions: set num-clients to 6"
    assert said in capsys.readouterr().err


# ------------------------------------------------------------------------------------- who may run


MODELS = """
import torch
from torch import nn


class Twice(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, count)])
        self.net = nn.Sequential(*self.layers)

    def forward(self, x):
        return self.net(x)


def twice(shape, count):
    return Twice(count)


def tied(shape, count):
    found = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, count))
    found[1].weight = found[2].weight
    return found


def frozen(shape, count):
    found = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, count))
    found[0].requires_grad_(False)
    return found


class head_first(nn.Module):
    def __init__(self, shape, count):
        super().__init__()
        self.head, self.body = nn.Linear(8, count), nn.Linear(6, 8)

    def forward(self, samples):
        return self.head(self.body(samples))
"""
DATA = ["dataset=own:load", "num-clients=8", "num-tasks=2"]
ONE = "but in models:twice they are one tensor: register each layer once"


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("twice", "strategy=fedbn", f"layers.1.weight and net.1.weight differently, {ONE}"),
        ("twice", "strategy=fedper", f"layers.2.weight differently, {ONE}"),
        ("twice", "strategy=mt-hfl common-layers=layers.0", f"net.0.weight differently, {ONE}"),
        ("tied", "strategy=fedper private-layers=2,3", "treats 2.weight and 1.weight differently"),
        ("tied", "strategy=fedper private-layers=1,2", ""),
        ("head_first", "strategy=fedrc num-clusters=2", "fedrc takes the last layer, body, for"),
        ("head_first", "strategy=lcfed num-clusters=2", "lcfed takes the last layer, body, for"),
        ("frozen", "strategy=fedrep", "one of the two has nothing to train in models:frozen"),
    ],
)
def test_what_layers_do_not_suit_is_said_before_anything_starts(own, capsys, model, words, said):
    words = [*DATA, f"model=models:{model}", *words.split()]
    with own_modules(own, models=MODELS):
        assert main(["run", "--dry-run", *words]) == (2 if said else 0)
    assert said in capsys.readouterr().err


NOISY = """
from torch import nn


class Mixed(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class Last(nn.Module):
    def forward(self, x):
        return x[0][:, -1]


def norm(shape, count):
    return nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, count))


def tracked(shape, count):
    tracked = nn.InstanceNorm1d(3, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (3, 2)), tracked, nn.Flatten(), nn.Linear(6, count))


def mixed(shape, count):
    return Mixed(6, count)


def lstm(shape, count):
    return nn.Sequential(nn.Unflatten(1, (6, 1)), nn.LSTM(1, count, batch_first=True), Last())
"""


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("norm", "keeps statistics of batches, but training-epsilon is 1"),
        ("tracked", "keeps statistics of batches, but training-epsilon is 1"),
        ("mixed", "mixes the samples of a batch, but training-epsilon is 1"),
        ("lstm", "cannot be trained with training-epsilon 1. Opacus says: We do not"),
    ],
)
def test_what_noise_does_not_suit_is_said_before_anything_starts(own, capsys, model, said):
    words = ["run", "--dry-run", *DATA, "strategy=single", f"model=noisy:{model}"]
    with own_modules(own, noisy=NOISY):
        assert main(words) == 0
        assert not capsys.readouterr().err
        assert main([*words, "training-epsilon=1"]) == 2
        assert f'model is "noisy:{model}", which {said}' in capsys.readouterr().err


@pytest.mark.parametrize("allowed", ["", "own:phi, spy.sub:phi"])
def test_a_node_runs_only_what_its_owner_allows(own, allowed):
    ran = own / "ran"
    spy = f"{TABLE}\n\nopen({str(ran)!r}, 'a').close()\n"
    options = {"dataset": "mnist-5k", "model": "mlp-32", "features": "spy:phi", "num-clients": 2}
    config = {**DEFAULTS, **options, "strategy": "single", "output-dir": str(own / "out")}
    said = 'features is "spy:phi", code that the owner of this node does not allow'
    with own_modules(own, spy=spy), pytest.raises(RuntimeError, match=said):
        run_alone(config, allowed)
    assert not ran.exists()


OBJECTIVE = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from strategies import LocalObjective

@dataclass(frozen=True)
class Constant(LocalObjective):
    has_state: ClassVar[bool] = True
    first: float = 3.0

    def train(self, model, local):
        stored = local.load() or {"number": torch.tensor(self.first)}
        local.save({"number": stored["number"] + 1})
        return local.fit(model)

    def personalise(self, model, local):
        for weight in model.parameters():
            weight.data.fill_(float(local.load()["number"]))
"""


def test_an_objective_of_ones_own_trains_stores_and_says_what_is_tested(own):
    name = "single+mean+mine:Constant"
    with own_modules(own, mine=OBJECTIVE):
        found = summary_of(own, strategy=f"{name},single", num_server_rounds=2)
        own_one, plain = found["runs"]
        assert own_one["failures"] == []
        model, _ = load_model(own / f"out/models/{file_name(name)}/seed-0/client-7.safetensors")
        assert {float(n) for one in model.state_dict().values() for n in one.flatten()} == {5}
        assert own_one["bytes"] == plain["bytes"]
        # Whose owner allows nothing runs nothing.
        config = {**DEFAULTS, **OWN, "strategy": name, "dataset": "mnist-5k"}
        said = 'strategy is "mine:Constant", code that the owner of this node does not allow'
        with pytest.raises(RuntimeError, match=said):
            run_alone({**config, "output-dir": str(own / "other")}, "own:load")


OPTION = """
from dataclasses import dataclass
from fl_core.options import number, option
from strategies import ClusterMean

@dataclass(frozen=True)
class Scaled(ClusterMean):
    factor: float = option(1.0, number(float, 0, 2), "by which means grow", key="mean-factor")

    def of_updates(self, updates):
        mean = super().of_updates(updates)
        return {name: array * array.dtype.type(self.factor) for name, array in mean.items()}

@dataclass(frozen=True)
class Clash(ClusterMean):
    seed: float = option(1.5, number(float, 0, 2), "another meaning of a key")
"""


def test_an_option_of_ones_own_is_a_key(own, capsys):
    with own_modules(own, mine=OPTION):
        given = {**DEFAULTS, **OWN, "strategy": "single+mine:Scaled,single"}
        assert parse_config(given).as_run_config()["mean-factor"] == 1
        assert parse_config({**given, "mean-factor": 0.5}, at_client=True)
        for wrong, said in (
            ({"mean-factor": 3}, "mean-factor is 3, but it must be a number of at least 0"),
            ({"mean-facto": 1}, "mean-facto is not a run-config key. Did you mean mean-factor?"),
            ({"strategy": "single", "mean-factor": 1}, "mean-factor is not a run-config key"),
            ({"strategy": "single+mine:Clash"}, "declares the option seed, which the app has"),
            ({"tune": "mean-facto=1,2"}, "cannot be tuned. Did you mean mean-factor?"),
        ):
            with pytest.raises(ValueError, match=re.escape(said)):
                parse_config({**given, **wrong})
        found = summary_of(own, strategy="single+mine:Scaled,single", mean_factor=0.0)
        assert found["config"]["mean-factor"] == 0
        scaled, plain = found["runs"]
        assert scaled["accuracy"] < plain["accuracy"]  # a model of zeros
        words = ["strategy=single+mine:Scaled", "mean-factor=0.5,1"]
        sweep = plan_sweep({**OWN, **read_words(words)})
        assert sweep.swept == {"mean-factor": (0.5, 1)}
        assert "mean-factor=0.5,1" in sweep.command(own)
        name = "single+mine:Scaled"
        tried = [{"mean-factor": 0.5}, {"mean-factor": 1}]
        assert combinations("mean-factor=0.5,1", name) == tried
        assert combinations("mean-factor=0.5,1", "single") == [{}]
        with pytest.raises(SystemExit):
            main(["run", words[0], "--help"])
        assert "mean-factor=1.0: by which means grow" in capsys.readouterr().out


def test_a_sweep_repeats_cells_if_the_code_of_a_strategy_or_the_data_changed(own):
    lines = "from pathlib import Path\n\nimport own\n\ndef load():\n"
    lines += "    return own.load(int(Path('seed').read_text('utf-8')))\n"
    part = "from pack.share import SHARE\nfrom strategies import ClusterMean\n\n"
    part += "class Damp(ClusterMean):\n    pass\n"
    files = {"pack/__init__.py": "", "pack/part.py": part, "pack/share.py": "SHARE = 1\n"}
    files |= {"seed": "7", "oslo.csv": "x,label\n1,0\n", "berlin.csv": "x,label\n1,0\n"}
    files |= {f"sites/{s}/{label}/1.png": "" for s in ("berlin", "oslo") for label in "ab"}
    changed = {"pack/share.py": "SHARE = 0.1\n", "seed": "8", "oslo.csv": "x,label\n1,0\n2,1\n"}
    changed |= {"sites/oslo/a/2.png": ""}
    places = {"tables": own, "sites": own / "sites", "folder": own / "sites/oslo"}
    code = {**DEFAULTS, **OWN, "strategy": "single+pack.part:Damp"}

    def write(texts):
        for name, text in texts.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(text, encoding="utf-8")

    def states():
        clear_data_caches()
        return [identifying_options(config) for config in configs]

    write(files)
    with own_modules(own, reads=lines):
        configs = [parse_config(code), parse_config({**DEFAULTS, **OWN, "dataset": "reads:load"})]
        configs += [
            parse_config({**DEFAULTS, "dataset": name, "data-dir": str(path), "num-clients": 2})
            for name, path in places.items()
        ]
        before = states()
        write({"results/log.txt": ""})  # of a sweep in this very folder
        assert states() == before
        write(changed)
        for old, new in zip(before, states(), strict=True):
            assert old != new


def test_a_client_never_imports_a_strategy(own):
    ran = own / "ran"
    with own_modules(own, spy=f"open({str(ran)!r}, 'a').close()"):
        config = {**DEFAULTS, "strategy": "spy:Mine+mean,single", "secure-aggregation": False}
        assert parse_config(config, at_client=True).strategy == ("spy:Mine+mean", "single")
        with pytest.raises(ValueError, match="their sums together can show single updates"):
            parse_config({**config, "secure-aggregation": True}, at_client=True)
        private = {**config, "strategy": "spy:Mine", "pre-round-epsilon": 1.0}
        assert parse_config(private, at_client=True).pre_round_epsilon == 1
        assert not ran.exists()
        with pytest.raises(ValueError, match=r"spy\.py has no Mine"):
            parse_config(config)
    assert ran.exists()


def test_what_a_device_allows_must_be_import_paths():
    with pytest.raises(ValueError, match=r'is "a:b, c", but "c" is not an import path'):
        allowed_paths({ALLOWED_CODE: "a:b, c"})
    assert allowed_paths({ALLOWED_CODE: "a:b,c.d:e,"}) == ("a:b", "c.d:e")
    assert allowed_paths({}) == ()


def test_the_check_of_a_site_imports_what_it_allows(own):
    assert import_code(("own:phi",)) == "may run here, and can be imported: own:phi"
    with pytest.raises(ValueError, match=r'own-code is "own:phy", but .*own\.py has no phy\. Did'):
        import_code(("own:phi", "own:phy"))


def test_a_device_that_refuses_says_its_name():
    config = parse_config({**DEFAULTS, "model": "own:make_model"})
    with pytest.raises(ValueError, match=r'^berlin: model is "own:make_model", code that the owne'):
        check_code_allowed(config, {"name": "berlin"})
    check_code_allowed(config, {"name": "berlin", ALLOWED_CODE: "own:make_model"})


# -------------------------------------------------------------------------------------- beforehand


def made(expression):
    return f"from torch import nn\ndef m(s, c): return {expression}"


def forward(body):
    """Return a model of one layer, whose output is `y`."""
    return (
        "import torch\nfrom torch import nn\nclass m(nn.Module):\n"
        "  def __init__(self, s, c):\n    super().__init__()\n    self.a = nn.Linear(6, c)\n"
        f"  def forward(self, x):\n    y = self.a(x)\n    {body}"
    )


def refused(own, text, message, **options):
    given = {**DEFAULTS, **OWN, "strategy": "rcc-pfl"}
    given |= {key.replace("_", "-"): value for key, value in options.items()}
    with own_modules(own, bad=text), pytest.raises(ValueError, match=message) as caught:
        check_simulation(parse_config(given), own / "out")
    assert str(caught.value).count("\n") == message.count("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def m(s, c): return 3", "which returned an int: .*torch.nn.Module"),
        ("def m(): pass", r"but the call m\(shape, num_classes\) fails"),
        (
            made("nn.Linear(6, c + 1)"),
            r"output is torch\.float32 \(3, 5\) for .* \(3, 4\), a logit",
        ),
        (made("nn.Linear(5, c)"), r"which fails on samples of shape \(3, 6\): RuntimeError: mat1"),
        (made("nn.Linear(6, c).double()"), r"its weight is torch\.float64: weights must"),
        (made("nn.LazyLinear(c)"), "which has lazy layers"),
        (made("nn.Flatten()"), "which has no weights that can be trained"),
        (forward("return {}['head']"), r"fails on .*: KeyError: 'head' \(bad\.py, line 9\)\.$"),
        (forward("return [y]"), r"its output is a list for .* must be a float32 tensor \(3, 4\)"),
        (forward("x -= 3; return y"), "which changes its input"),
        (forward("return (y, y) if self.training else y"), "its output is a tuple in training"),
        (forward("return y.detach()"), "PyTorch finds no gradient of its output"),
        (forward("return y.squeeze(0)"), r"\(4,\) for 1 samples of 4 classes: it must be"),
        (
            forward("return y") + "\n  def get_extra_state(self): return 1",
            "its _extra_state is not a tensor: weights must be float32",
        ),
        (forward("return y / 0"), "its output contains NaN or infinity: use smaller"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_before_anything_starts(text, message, own):
    refused(own, text, message, model="bad:m")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "which returned an int: it must return a ten"),
        ("return x.double()", r"returned float64 \(3, 6\) for 3"),
        ("return x[:, :0]", "d must be at least 1"),
        ("return x / 0", "infinite or NaN"),
        ("x -= x.mean(0); return x", "each row must depend on its sample only"),
        ("return x[:, :2]", "have 2 dimensions: choose 1 to 2"),
    ],
)
def test_features_that_compare_no_samples_are_refused_before_anything_starts(body, message, own):
    refused(own, f"def f(x): {body}", message, features="bad:f")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "flt"}, "strategy names flt, but its encoder takes images"),
        ({"model": "cnn"}, r"model is cnn, which needs images .* shape \(6,\): use mlp"),
        ({"num_clients": 90}, "min-samples is 5, but the 150 samples of task"),
        (
            {"features": "hog", "num_tasks": 5},
            '^num-tasks is 5, but own:load has 4 classes.*\nfeatures is "hog"',
        ),
        ({"dataset": "parts:load"}, "num-clients is 8, but parts:load comes in 6 partitions"),
        (
            {"dataset": "parts:load", "num_clients": 6, "strategy": "optimum"},
            "optimum must know the tasks of clients, and parts:load does not name them",
        ),
        ({"dataset": "bad:load"}, "returned other data when it was called again, .* a fixed seed"),
        (
            {"strategy": "bad:S"},
            "which is not a dataclass, but the app sets its fields: write @datac",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(options, message, own):
    text = (
        "from own import load as one\nimport itertools\nfrom strategies import Clustering\n"
        "seeds = itertools.count()\ndef load(): return one(next(seeds))\n"
        "class S(Clustering):\n  name = 's'\n  def __init__(self, count): self.count = count\n"
        "  def find(self, conversation): return {}"
    )
    refused(own, text, message, **options)


def test_strategies_that_lack_something_let_the_others_run(own, capsys):
    """Nobody knows the partitions' tasks, so nobody knows their number either."""
    words = {"dataset": "parts:load", "num_clients": 6, "num_clusters": "auto"}
    strategies = "optimum,rcc-pfl,ifca,single"
    found = summary_of(own, strategy=strategies, **words)
    assert [one["strategy"] for one in found["runs"]] == ["rcc-pfl", "single"]
    why = {
        "optimum": "it must know the tasks of clients, and parts:load does not name them",
        "ifca": "it needs a number of clusters, and num-clusters is auto",
    }
    assert found["left_out"] == why
    said = capsys.readouterr().out
    page = html.unescape((own / "out/report.html").read_text(encoding="utf-8"))
    for name, reason in why.items():
        assert f"{name} is left out: {reason}\n" in said
        assert f"{name} did not run: {reason}." in page
    refused(
        own, "", "^strategy is ifca,optimum, but ifca needs a", strategy="ifca,optimum", **words
    )


def test_a_model_is_tried_on_the_shape_of_a_known_data_set(own):
    given = {**DEFAULTS, "model": "own:make_model", "num-clients": 4}
    with pytest.raises(ValueError, match=r"own:make_model.*fails: ValueError: too many values"):
        check_simulation(parse_config(given), own / "out")
    for name in ("cat", "dog"):
        (own / "pets" / name).mkdir(parents=True)
        (own / "pets" / name / "0.png").touch()
    given |= {"dataset": "folder", "data-dir": str(own / "pets")}
    with pytest.raises(ValueError, match=r"own\.py has no make_it"):
        check_simulation(parse_config({**given, "model": "own:make_it"}), own / "out")
    check_simulation(parse_config(given), own / "out")
