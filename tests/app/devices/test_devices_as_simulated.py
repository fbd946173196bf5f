"""The same tables on devices and in a simulation: what validates, what scales, what is a class."""

import numpy as np
import pandas
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from PIL import Image

from fl_app.devices.site.device_node import DeviceNode
from fl_core.agreement.agreement import Survey
from fl_core.agreement.local_data import survey_images
from fl_core.agreement.vote import agree, outvoted
from fl_core.data.datasets import load_dataset
from fl_core.messages import protocol
from fl_core.partitions.federation import simulate_federation
from fl_core.partitions.settings import FederationSettings
from tests.app_runs import DEFAULTS
from tests.device_tables import device

LABELS = ("x", "y")


def table(values=range(50), labels=LABELS):
    """Rows in order of time, with each label three times in turn."""
    rows = (f"{one},{labels[place // 3 % len(labels)]}" for place, one in enumerate(values))
    return "\n".join(["hour,outcome", *rows, ""])


def devices(folder, **texts):
    """Return what each device is, and what all tell of their tables."""
    owners = {name: device(folder, name, text) for name, text in texts.items()}
    surveys = {
        name: Survey.from_config(config.survey().as_config()) for name, config in owners.items()
    }
    return owners, surveys


def node(folder, name, surveys, path="", **options):
    """Return a device that has a message."""
    config = {protocol.SEED: 0, protocol.SERVER_ROUND: 0, protocol.NUM_CLIENTS: len(surveys)}
    content = RecordDict({protocol.CONFIG: ConfigRecord({**config, **agree(surveys).as_config()})})
    config = {"name": name, "data-path": str(folder / (path or f"{name}.csv")), "label": "outcome"}
    words = {**DEFAULTS, "dataset": "devices", "strategy": "local,single"}
    words |= {key.replace("_", "-"): value for key, value in options.items()}
    context = Context(1, 1, config, RecordDict(), words)
    return DeviceNode(Message(content, dst_node_id=1, message_type="query"), context)


def simulated(folder, **options):
    where = {"dataset": "tables", "data_dir": str(folder), "label": "outcome"}
    return simulate_federation(FederationSettings(**where, num_clients=2, seed=0, **options))


def test_the_last_rows_of_a_table_in_order_of_time_validate(tmp_path):
    _, surveys = devices(tmp_path, berlin=table(), oslo=table())
    one = node(tmp_path, "berlin", surveys, validation_share=0.2)
    found = simulated(tmp_path, validation_share=0.2)
    hours = found.dataset.train_samples[:, 0].numpy()
    for config, theirs in (
        (one.training_data(), found.partition.train[0]),
        (one.validation_data(), found.validation[0]),
    ):
        assert sorted(config[0][:, 0].tolist()) == sorted(hours[theirs].tolist())
    assert min(one.validation_data()[0][:, 0].tolist()) >= 32


def test_rows_that_test_before_others_train_say_nothing_of_time(tmp_path):
    lines = table().splitlines()
    split = "\n".join([f"{lines[0]},split", f"{lines[1]},test", *(f"{x},train" for x in lines[2:])])
    _, surveys = devices(tmp_path, berlin=f"{split}\n", oslo=table())
    drawn = node(tmp_path, "berlin", surveys, validation_share=0.2).validation_data()
    assert min(drawn[0][:, 0].tolist()) < 32
    # The other one's rows are in order of time all the same, on its device and simulated.
    last = node(tmp_path, "oslo", surveys, validation_share=0.2).validation_data()
    found = simulated(tmp_path, validation_share=0.2)
    hours = found.dataset.train_samples[:, 0].numpy()
    assert sorted(last[0][:, 0].tolist()) == [*range(32, 40)]
    assert sorted(hours[found.validation[1]].tolist()) == [*range(32, 40)]
    assert min(hours[found.validation[0]].tolist()) < 32


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_rows_that_validate_do_not_scale(tmp_path, share):
    """They are the last ones, the largest."""
    squares = table([hour**2 for hour in range(50)])
    _, surveys = devices(tmp_path, berlin=squares, oslo=squares)
    alone = node(tmp_path, "berlin", surveys, validation_share=share, standardise="site")
    found = simulated(tmp_path, validation_share=share, standardise="site")
    assert alone.scaling() == found.dataset.scalings[0]
    of_all = node(
        tmp_path, "berlin", surveys, validation_share=share, standardise="all"
    ).column_statistics()
    assert of_all.mean.tolist() == pytest.approx(list(alone.scaling().mean))
    assert of_all.num_rows == (40 if not share else len(alone.training_data()[1]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "rcc-pfl", "pre_round_epsilon": 1.0}, "pre-round-epsilon is 1, and this cl"),
        ({"strategy": "rcc-pfl", "training_epsilon": 2.0}, "training-epsilon is 2, and this clie"),
    ],
)
def test_no_means_are_sent_where_noise_must_hide_each_row(tmp_path, options, reason):
    _, surveys = devices(tmp_path, berlin=table(), oslo=table())
    with pytest.raises(ValueError, match=reason):
        node(tmp_path, "berlin", surveys, **options).column_statistics()


def test_a_devices_log_names_transparent_images_once(tmp_path, caplog):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 28, 28, 4), np.uint8)
    for place, one in enumerate(pixels):
        (tmp_path / f"berlin/{'ab'[place % 2]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(one).save(tmp_path / f"berlin/{'ab'[place % 2]}/{place}.png")
    surveys = {"berlin": survey_images(tmp_path / "berlin")}
    one = node(tmp_path, "berlin", surveys, path="berlin")
    again = node(tmp_path, "berlin", surveys, path="berlin")
    again.context.state = one.context.state
    for each in (one, again):
        each.training_data()
    (said,) = caplog.messages
    assert said.startswith(f"berlin: in {tmp_path / 'berlin'}, 4 of 4 images are transparent")


def test_a_devices_log_has_the_warnings_of_a_simulation(tmp_path, caplog):
    rows = "".join(f"{hour},{'x' if hour < 8 else 'y'}\n" for hour in range(10))
    device(tmp_path, "berlin", f"hour,outcome\n{rows}").survey()
    assert caplog.messages == [
        "berlin.csv: no training row has the label y, which test rows have: if rows are sorted "
        "by label, shuffle them, or add a column split with train and test"
    ]


@pytest.mark.parametrize("texts", [["1", "2"], ["1.0", "2.0"]])
def test_whole_numbers_are_the_same_classes_however_they_are_stored(tmp_path, texts):
    frame = pandas.DataFrame({"hour": range(40), "outcome": texts * 20})
    frame.to_parquet(tmp_path / "lyon.parquet")
    owners, surveys = devices(tmp_path, berlin=table(labels=["1", "3"]), oslo=table(labels=[1, 2]))
    owners["lyon"] = owners["oslo"]._replace(name="lyon", path=tmp_path / "lyon.parquet")
    surveys["lyon"] = owners["lyon"].survey()
    assert outvoted(surveys) == {}
    names = agree(surveys).class_names
    assert names == load_dataset("tables", str(tmp_path), label="outcome").class_names
    assert names == ("1", "2", "3")
    assert all(owner.read(agree(surveys)).class_names == names for owner in owners.values())


def test_a_device_whose_labels_are_texts_among_whole_numbers_is_left_out(tmp_path):
    names = ("berlin", "lyon", "oslo")
    labels = (["0", "1"], ["0", "1"], ["no", "yes"])
    texts = {name: table(labels=config) for name, config in zip(names, labels, strict=True)}
    _, surveys = devices(tmp_path, **texts)
    assert outvoted(surveys) == {
        "oslo": "its samples are tables of hour with labels that are texts, but those of most "
        "devices are tables of hour with labels that are whole numbers: convert them, or exclude "
        "this device from the run."
    }
    del surveys["lyon"]
    with pytest.raises(ValueError, match="as many devices have one kind of samples as another"):
        outvoted(surveys)


@pytest.mark.parametrize(
    ("name", "value"), [("age\u00a0[years]", "1"), ("word", "\u0645\u06cc\u200c\u062e")]
)
def test_a_device_may_call_columns_and_values_what_a_simulation_may(tmp_path, name, value):
    text = f"{name},outcome\n" + f"{value},x\n{value},y\n" * 5
    owners, surveys = devices(tmp_path, berlin=text, oslo=text)
    simulated_names = load_dataset("tables", str(tmp_path), label="outcome").column_names
    assert agree(surveys).column_names == simulated_names
    assert len(owners["oslo"].read(agree(surveys)).train_labels) == 8
