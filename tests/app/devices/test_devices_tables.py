"""Devices with a table each: what they tell, what is agreed, whole runs in this process."""

import re

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fl_app.devices.site.check import describe_data
from fl_app.devices.site.device_node import DeviceNode
from fl_core.agreement.agreement import Agreement, Survey
from fl_core.agreement.vote import agree, outvoted
from fl_core.data.scaling import standardise_site
from fl_core.messages import protocol
from tests.altered import altered
from tests.app_runs import DEFAULTS
from tests.device_runs import groups, run
from tests.device_tables import BERLIN, OSLO, device


def agreed(**devices):
    return agree(
        {name: Survey.from_config(site.survey().as_config()) for name, site in devices.items()}
    )


def test_columns_and_their_values_are_agreed_from_what_devices_tell(tmp_path):
    berlin, oslo = device(tmp_path, "berlin", BERLIN), device(tmp_path, "oslo", OSLO)
    assert oslo.survey() == Survey(
        ("well",), (2,), is_float=True, columns={"age": (), "colour": ("green",)}
    )
    one = agreed(berlin=berlin, oslo=oslo)
    assert Agreement.from_config(one.as_config()) == one == agreed(oslo=oslo, berlin=berlin)
    assert (one.class_names, one.sample_shape, one.is_float) == (("ill", "well"), (4,), True)
    assert one.column_names == ("age", "colour=blue", "colour=green", "colour=red")
    read = oslo.read(one)
    assert read.train_samples.tolist() == [[20, 0, 1, 0]]
    assert (read.test_samples.tolist(), read.test_labels.tolist()) == ([[30, 0, 1, 0]], [1])
    assert berlin.read(one).train_labels.tolist() == [1, 1, 0, 1]


def test_site_standardises_by_the_devices_own_training_rows(tmp_path):
    """Ages 40, 60, 50, 50: mean 50, deviation √50; three of four rows are red."""
    site = device(tmp_path, "berlin", BERLIN)
    one = agreed(berlin=site, oslo=device(tmp_path, "oslo", OSLO))
    read, _, _ = standardise_site(site.read(one), np.ones(4, bool))
    np.testing.assert_allclose(read.train_samples[:, 0], [-(2**0.5), 2**0.5, 0, 0], rtol=1e-6)
    assert read.train_samples[:, 2:].tolist() == [[0, 0.25], [0, -0.75], [0, 0.25], [0, 0.25]]
    assert read.test_samples.tolist() == [[0, -0.25, 0, 0.25]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BERLIN.replace("age", "Age"), "tunis has the column Age, but berlin does not"),
        (re.sub(r"(\d0),", r"over \1,", BERLIN), "column age has numbers in berlin, but texts in"),
    ],
)
def test_a_device_with_other_columns_is_left_out_by_name(tmp_path, text, message):
    texts = {"berlin": BERLIN, "lyon": BERLIN, "tunis": text}
    reasons = outvoted({name: device(tmp_path, name, one).survey() for name, one in texts.items()})
    assert list(reasons) == ["tunis"]
    assert message in reasons["tunis"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BERLIN.replace("blue", "grey"), "column colour of tunis has a text in row 2 that is not"),
        (BERLIN.replace("ill", "dead"), "dead in .*tunis.csv is not among the agreed classes"),
        (BERLIN.replace("age", "Age"), "tunis.csv has the column Age, but the agreement does not"),
    ],
)
def test_what_was_agreed_without_a_device_is_told_to_it(tmp_path, text, message):
    one = agreed(berlin=device(tmp_path, "berlin", BERLIN))
    with pytest.raises(ValueError, match=message):
        device(tmp_path, "tunis", text).read(one)


@pytest.mark.parametrize("key", ["pre-round-epsilon", "training-epsilon"])
def test_texts_that_would_be_sent_without_noise_are_refused_with_noise(tmp_path, key):
    numbers = "age,outcome\n20,well\n30,ill\n40,well\n"
    for name, text, refused in (("berlin", BERLIN, True), ("oslo", numbers, False)):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
        site = {"name": name, "data-path": str(tmp_path / f"{name}.csv"), "label": "outcome"}
        words = {**DEFAULTS, "dataset": "devices", "strategy": "rcc-pfl", key: 1.0}
        content = RecordDict({protocol.CONFIG: ConfigRecord({protocol.SEED: 0})})
        message = Message(content, dst_node_id=1, message_type="query")
        node = DeviceNode(message, Context(1, 1, site, RecordDict(), words))
        if refused:
            message = "berlin: column colour has texts, and all different ones are sent, but ε is 1"
            with pytest.raises(ValueError, match=message):
                node.description()
        else:
            assert Survey.from_config(node.description()).columns == {"age": ()}


TABLE = Survey(("a",), (2,), is_float=True, columns={"x": (), "y": ("u",)})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"columns": "x"}, "columns is 'x', but it must be"),
        ({"columns": {"x": [], "y": "u"}}, "columns.y is 'u', but it must be a list"),
        ({"columns": {"y": ["u"], "x": []}}, "each name of a column must differ"),
        ({"columns": {"x\n": [], "y": ["u"]}}, "name of a column 'x\\n' must be one line"),
        ({"is_regression": True, "class_names": ["a", "b"]}, "there are 2 classes, but from 1 to"),
        ({"columns": {"x": [], "y": ["u" * 201]}}, "each value of column y must be one line"),
        ({"sample_shape": [3]}, "its samples have more or fewer numbers than its columns"),
        (
            {"columns": {f"{i:05}": [] for i in range(10_001)}, "sample_shape": [10_001]},
            "10001 columns, but at most 10000",
        ),
    ],
)
def test_a_survey_of_a_table_is_checked(changed, message):
    assert Survey.from_config(TABLE.as_config()) == TABLE
    with pytest.raises(ValueError, match=re.escape(message)):
        Survey.from_config(altered(TABLE, **changed))


def test_a_cell_of_free_text_is_not_sent(tmp_path):
    text = "note,outcome\n" + "".join(f'"Maria{row}\nborn 4.5.",{row % 2}\n' for row in range(60))
    with pytest.raises(ValueError, match="each value of column note must be one") as raised:
        device(tmp_path, "berlin", text).survey()
    assert "Maria" not in str(raised.value)


@pytest.mark.parametrize("label", ["outcome", "outcom", ""])
@pytest.mark.parametrize("row", ["Maria Muster,born 4.5.,ill", "4711,4711,ill", "Maria;4.5;ill"])
def test_the_first_row_of_a_file_without_names_is_not_sent(tmp_path, row, label):
    with pytest.raises(ValueError, match=r"^(label is .*|)berlin\.csv") as raised:
        device(tmp_path, "berlin", f"{row}\n{row}\n{row}\n", label=label).survey()
    assert not re.search("Maria|4711|4.5|ill", str(raised.value))


def test_the_check_of_a_site_describes_columns_and_classes(tmp_path):
    said = describe_data(device(tmp_path, "berlin", BERLIN))
    counted = "for training + for testing: ill 1 + 1, well 3 + 0"
    assert said == f"tables of age, colour (texts), {counted}"
    with pytest.raises(ValueError, match=r"label is empty, and berlin\.csv has no column label"):
        describe_data(device(tmp_path, "berlin", BERLIN, label=""))


@pytest.mark.slow  # a run
def test_devices_with_tables_are_grouped_and_learn(tmp_path, capsys):
    rng = np.random.default_rng(0)
    sites = {}
    for name, kind in (("berlin", 0), ("lyon", 0), ("oslo", 1), ("rome", 1)):
        ill = rng.integers(0, 2, 60)
        frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=[*"abcd"])
        frame.iloc[:, kind] *= 8
        frame.iloc[:, 2 + kind] += 6 * ill
        frame["colour"] = rng.choice(["red", "blue"], 60)
        frame["outcome"] = np.where(ill, "ill", "well")
        sites[name] = tmp_path / f"{name}.csv"
        frame.to_csv(sites[name], index=False)
    options = {"features": "raw", "num_clusters": 2, "num_eigenvectors": 2, "learning_rate": 0.03}
    summary, _ = run(tmp_path / "out", sites, **options, num_server_rounds=6, label="outcome")
    (one,) = summary["runs"]
    assert one["names"] == [*sites]
    assert one["accuracy"] > 0.9
    assert groups(one) == [["berlin", "lyon"], ["oslo", "rome"]]
    said = capsys.readouterr().out
    assert "colour=red, d; 2 classes: ill, well\nmlp-32; " in said


def test_all_devices_together_may_have_more_columns_than_one(tmp_path):
    """Limits hold for one device, and not for the agreement."""
    names = [f"c{i:04}" for i in range(300)]
    one, two = (
        Survey(("ill", "well"), (6000,), True, False, dict.fromkeys(names, values))
        for values in (tuple(f"{site}{i:02}" for i in range(20)) for site in "ab")
    )
    both = agree({name: Survey.from_config(s.as_config()) for name, s in (("a", one), ("b", two))})
    assert len(Agreement.from_config(both.as_config()).column_names) == 300 * 40
