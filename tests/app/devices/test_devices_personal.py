"""Private state of devices: on their disks, across restarts, and in no message."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, RecordDict

from clients import handlers
from fl_core.messages import protocol
from fl_core.models.model_file import load_model
from tests.device_images import write_sites
from tests.device_runs import Devices, run

pytestmark = pytest.mark.slow

NAMES = ("berlin", "oslo")


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    folders = write_sites(tmp_path / "sites", images=10)
    return {name: folders[name] for name in NAMES}


def disks(folder):
    return {name: folder / name / "model.safetensors" for name in NAMES}


def run_listening(folder, sites, monkeypatch, *, forgetful=False, **options):
    """Run, and return the summary, all replies, and the stored models' state dicts by name.

    `forgetful`: every device restarts between two messages.
    """
    replies, usual = [], Devices.send_and_receive

    def send_and_receive(self, messages, *, timeout=None):
        if forgetful:
            for node, one in list(self.contexts.items()):
                node_config, config = dict(one.node_config), dict(one.run_config)
                self.contexts[node] = Context(1, node, node_config, RecordDict(), config)
        found = list(usual(self, messages, timeout=timeout))
        replies.extend(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Devices, "send_and_receive", send_and_receive)
        paths = disks(folder / "disks")
        summary, _ = run(folder / "out", sites, model_paths=paths, **options)
    models = {name: load_model(path)[0].state_dict() for name, path in paths.items()}
    return summary, replies, models


def test_a_device_stores_a_model_with_a_private_last_layer(tmp_path, sites, monkeypatch):
    summary, replies, models = run_listening(
        tmp_path, sites, monkeypatch, strategy="fedper", checkpoint_every=1
    )
    assert summary["runs"][0]["models-not-stored"] == {}
    records = [one for reply in replies for one in reply.content.array_records.values()]
    assert {name for record in records for name in record} == {"hidden.weight", "hidden.bias"}
    berlin, oslo = (models[name] for name in NAMES)
    assert torch.equal(berlin["hidden.weight"], oslo["hidden.weight"])
    assert not torch.equal(berlin["output.weight"], oslo["output.weight"])
    (personal,) = (tmp_path / "disks/berlin/model-personal").iterdir()
    assert "latest.safetensors" in {path.name for path in personal.iterdir()}


@pytest.mark.parametrize("strategy", ["ditto", "fedavg-ft"])
def test_a_device_stores_the_model_that_it_tested_last(tmp_path, sites, monkeypatch, strategy):
    tested, usual = [], handlers.evaluate_both

    def evaluate_both(model, *given):
        tested.append({name: one.numpy().tobytes() for name, one in model.state_dict().items()})
        return usual(model, *given)

    monkeypatch.setattr(handlers, "evaluate_both", evaluate_both)
    models = run_listening(tmp_path, sites, monkeypatch, strategy=strategy)[2]
    for state in models.values():
        stored = {name: one.numpy().tobytes() for name, one in state.items()}
        assert stored in tested[-2:]
    assert tested[-1] != tested[-2]


def test_what_a_device_says_when_it_is_told_to_keep_its_layers_is_not_read(tmp_path, sites, caplog):
    """A device should send nothing here, so an answer may be anything."""

    def junk(message, context, answer):
        array = Array("float32", (3,), "numpy.ndarray", b"junk")
        answer.content[protocol.ARRAYS] = ArrayRecord({"output.weight": array})
        return answer

    corrupt = {("query.save_state", "oslo"): junk}
    options = {"strategy": "fedper", "checkpoint_every": 1, "corrupt": corrupt}
    summary, _ = run(tmp_path / "out", sites, **options)
    assert np.isfinite(summary["runs"][0]["accuracy"])
    assert "oslo did not save its private layers for this checkpoint" in caplog.text


def test_devices_that_restart_between_all_messages_end_with_the_same_models(
    tmp_path, sites, monkeypatch
):
    options = {"strategy": "fedper"}
    one = run_listening(tmp_path / "one", sites, monkeypatch, **options)[2]
    two = run_listening(tmp_path / "two", sites, monkeypatch, **options, forgetful=True)[2]
    for name in NAMES:
        for array, other in zip(one[name].values(), two[name].values(), strict=True):
            assert torch.equal(array, other)


def test_a_device_without_a_disk_says_that_it_lost_its_layers(tmp_path, sites, caplog):
    """It is sent first ones again, so it trains in every second round."""

    def lose(message, context, answer):
        context.state.clear()
        return answer

    corrupt = {("evaluate", "berlin"): lose}
    options = {"strategy": "fedper", "num_server_rounds": 4, "corrupt": corrupt}
    summary, _ = run(tmp_path / "out", sites, **options)
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    said = [message for message in warned if "berlin could not train" in message]
    assert len(said) == 2
    assert "this client has lost its private layers; it gets initial ones" in said[0]
    assert np.isfinite(summary["runs"][0]["accuracy"])


def test_a_device_takes_no_private_state_and_gives_none(tmp_path, sites):
    _, grid = run(tmp_path / "out", sites, strategy="fedper", num_server_rounds=1)
    kinds = [m.metadata.message_type for m in grid.sent]
    message = next(m for m in grid.sent if m.metadata.message_type == "train")
    refusals = {
        protocol.RESTORE_STATE: "reads its private state from its disk only",
        protocol.TESTED_MODEL: "the model of a device stays on the device",
    }
    for action, refusal in refusals.items():
        assert protocol.query(action) not in kinds
        message.metadata.message_type = protocol.query(action)
        (answer,) = grid.send_and_receive([message])
        assert refusal in answer.error.reason
    assert not (tmp_path / "out/models").exists()
