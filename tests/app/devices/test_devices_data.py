"""Devices with user-defined functions that return their data: whole runs, in this process."""

import re
from pathlib import Path

import numpy as np
import pytest

from fl_app.devices.site.check import describe_data
from fl_app.devices.site.device_node import NodeConfig
from fl_core.agreement.agreement import Agreement, Survey
from fl_core.models.model_file import load_model
from tests.device_runs import groups, run
from tests.own_modules import own_modules
from tests.report_data import reasons_of
from tests.samples import sampled

SITES = """
import numpy as np


def site(kind, seed, names=("ill", "well"), width=6, dtype=np.float32):
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % len(names)
    rows = rng.normal(size=(60, width))
    rows[:, kind] += 30
    rows[:, 2 + kind] += 5 * (np.array(names)[labels] == "well")
    rows = rows.astype(dtype) if dtype is np.float32 else (100 + 5 * rows).astype(dtype)
    return rows[:40], labels[:40], rows[40:], labels[40:], list(names)


berlin = lambda: site(0, 1)
lyon = lambda: site(0, 2, ("well", "ill"))
oslo = lambda: site(1, 3)
rome = lambda: site(1, 4)
wide = lambda: site(1, 5, width=9)
pixels = lambda: site(1, 6, dtype=np.uint8)
dead = lambda: site(1, 7, ("dead", "well"))
numbered = lambda: site(1, 8)[:4]
broken = lambda: 3
unlike = lambda: site(0, None)
"""

NAMES = ("berlin", "lyon", "oslo", "rome")
DEVICES = {name: f"sites:{name}" for name in NAMES}
TABLES = {"num_clusters": 2, "num_eigenvectors": 2, "learning_rate": 0.01}


@pytest.fixture(autouse=True)
def sites(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    with own_modules(tmp_path, sites=SITES):
        yield


def device(name, **config):
    return NodeConfig.of({"name": name, **{k.replace("_", "-"): v for k, v in config.items()}})


@pytest.mark.slow  # runs
@pytest.mark.parametrize("model", sampled(["sites_model:make_model", "mlp-32"], 2))
def test_devices_with_tables_are_grouped_by_kind_and_learn(tmp_path, capsys, model):
    """Whichever order a device has its classes in; no `own-code` is needed for its data."""
    stored = tmp_path / "lyon.safetensors"
    config = {"own_code": model} if ":" in model else {}
    text = "from torch import nn\ndef make_model(s, n): return nn.Linear(*s, n)"
    Path("sites_model.py").write_text(text, encoding="utf-8")
    summary, _ = run(
        *(tmp_path / "out", DEVICES),
        **TABLES | {"model": model, "learning_rate": 0.05, "num_server_rounds": 12} | config,
        model_paths={"lyon": stored},
    )
    (one,) = summary["runs"]
    assert one["names"] == list(NAMES)
    assert summary["config"]["features"] == "fourier"
    assert groups(one) == [["berlin", "lyon"], ["oslo", "rome"]]
    assert one["accuracy"] > 0.9
    said = capsys.readouterr().out
    assert f"float32 of shape 6; 2 classes: ill, well\n{model}; " in said
    card = load_model(stored, model if ":" in model else "")[1]
    assert (card.sample_shape, card.class_names) == ((6,), ("ill", "well"))


@pytest.mark.slow  # a run
def test_devices_whose_data_do_not_fit_are_left_out(tmp_path, caplog):
    wrong = {
        "wide": "its samples are float32 of shape 9, but those of most devices are float32",
        "pixels": "its samples are uint8 of shape 6, but those of most devices are float32",
        "broken": 'data is "sites:broken", but it returned unusable data: an int; it must return',
        "none": 'data is "sites:none", but ',
    }
    devices = DEVICES | {name: f"sites:{name}" for name in wrong}
    summary, grid = run(tmp_path / "out", devices, **TABLES, num_server_rounds=1)
    (one,) = summary["runs"]
    assert all(reason in caplog.text for reason in wrong.values())
    assert groups(one) == [["berlin", "lyon"], ["oslo", "rome"]]
    assert not any("train" in grid.asked(name) for name in wrong)


@pytest.mark.slow  # runs
def test_a_newcomer_with_other_samples_or_classes_is_refused(tmp_path, caplog):
    late = {"tunis": "sites:wide", "uppsala": "sites:dead"}
    away = dict.fromkeys(late, range(3))
    summary, _ = run(
        tmp_path / "out", DEVICES | late, **TABLES, away=away, num_clients=4, num_server_rounds=4
    )
    (one,) = summary["runs"]
    assert groups(one) == [["berlin", "lyon"], ["oslo", "rome"]]
    assert "are float32 of shape 9, but float32 of shape 6 was agreed" in reasons_of(one)[4]
    assert 'dead in the data of data="sites:dead" is not among' in reasons_of(one)[5]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data": "a:b", "data_path": "/scans"}, "a device needs a name, and either data-path or"),
        ({"data": "scans"}, 'data is "scans", but it must be empty, or an import path MODULE:NAME'),
        ({}, "either data-path or data: start its SuperNode"),
    ],
)
def test_what_an_owner_may_not_say(config, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        device("berlin", **config)


def returning(expression):
    head = "import numpy as np\nX, Y = np.zeros((4, 2), np.float32), np.arange(4) % 2\n"
    Path("other.py").write_text(f"{head}def load(): return {expression}", encoding="utf-8")
    return device("berlin", data="other:load")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("X, Y, X", "a tuple of 3; it must return (train samples, train labels, "),
        ("X.nothing", "but the call load() fails: AttributeError"),
        ("X, Y, X, Y + 5000", "labels are up to 5001, but have no names: name all classes."),
        ("X, Y, X, Y + 5, ['a', 'b']", "test labels are from 5 to 6, but it has 2 classes."),
        ("X, Y, X, Y, ['a', 'a ']", "which cannot be used: each class name must differ"),
        ("X, Y, X[:0], Y[:0]", "has no test samples."),
    ],
)
def test_what_a_function_may_not_return(expression, message):
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        returning(expression).survey()
    assert str(raised.value).startswith('data is "other:load", ')


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ("def load(): assert 0, 'Maria Muster'", "the call load() fails: AssertionError"),
        ("raise OSError('Maria Muster')", "other cannot be imported: OSError (other.py, line 1); "),
        ("Maria Muster", "other cannot be imported: SyntaxError; the text is in this site's log."),
        ("def load(row): 'Maria Muster'", "the call load() fails: TypeError; the text is in"),
    ],
)
def test_the_text_of_what_a_function_raises_stays_in_the_devices_log(body, raised, caplog):
    """A reader of rows may say which of them it cannot read."""
    Path("other.py").write_text(body, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(raised)) as error:
        device("berlin", data="other:load").survey()
    assert "Maria" not in str(error.value)
    assert "Maria" in caplog.text or "positional argument" in caplog.text


def test_without_names_classes_are_numbers_up_to_the_highest():
    survey = returning("X, Y * 10, X, Y").survey()
    assert set(survey.class_names) == {str(number) for number in range(11)}
    assert device("oslo", data="sites:numbered").survey() == Survey(("0", "1"), (6,), is_float=True)


def test_the_check_of_a_site_calls_its_function():
    counted = "float32 of shape 6, for training + for testing: ill 20 + 10, well 20 + 10"
    assert describe_data(device("lyon", data="sites:lyon")) == counted
    with pytest.raises(ValueError, match="returned other data when it was called again"):
        describe_data(device("lyon", data="sites:unlike"))


def test_labels_are_those_agreed_on():
    """Lyon has the classes in another order than the others."""
    config = device("lyon", data="sites:lyon")
    read = config.read(Agreement(("ill", "well"), (6,), is_float=True))
    assert read.train_labels.tolist() == (1 - np.arange(40) % 2).tolist()
