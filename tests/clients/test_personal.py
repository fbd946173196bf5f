"""What a client stores belongs to one training, and on a device's disk it survives its process."""

import os

import numpy as np
import pytest

from fl_core.messages import protocol
from tests.local_messages import context, message, personal, two_numbers


def record(value):
    return protocol.to_record({"v": np.array([value], np.float32)})


def asked(round, kind=protocol.TRAIN, identity="00ff"):
    return message(two_numbers(), round=round, kind=kind, identity=identity)


def value(found):
    return None if found is None else float(found["v"].numpy()[0])


def test_it_is_there_in_the_next_round_and_for_the_test_of_this_one():
    client = context()
    personal(asked(1), client).save(record(1))
    assert value(personal(asked(1, protocol.EVALUATE), client).load()) == 1
    assert value(personal(asked(2), client).load()) == 1
    assert personal(asked(2), client).round_of_state == 1


def test_a_round_that_is_trained_again_does_not_begin_with_its_end():
    client = context()
    personal(asked(1), client).save(record(1))
    assert personal(asked(1), client).load() is None


@pytest.mark.parametrize("other", ["", "11aa"])
def test_another_training_finds_nothing_and_leaves_nothing(other):
    client = context()
    personal(asked(1), client).save(record(1))
    assert personal(asked(2, identity=other), client).load() is None
    assert personal(asked(2), client).load() is None
    assert not len(client.state)


def test_a_device_that_restarts_has_it_on_its_disk(tmp_path):
    personal(asked(1), context(), tmp_path).save(record(1))
    assert value(personal(asked(2), context(), tmp_path).load()) == 1
    assert personal(asked(2, identity="11aa"), context(), tmp_path).load() is None
    assert personal(asked(2), context()).load() is None


def test_a_run_that_goes_on_from_a_checkpoint_has_what_was_stored_then(tmp_path):
    tmp_path.chmod(0o755)
    for number in range(1, 7):
        client = context()
        personal(asked(number), client, tmp_path).save(record(number))
        if number % 2 == 0:  # checkpoints
            personal(asked(number, "query.save_state"), client, tmp_path).save_for_checkpoint()
    # The checkpoint of round 6 may not be complete: then the run goes on after round 4.
    assert value(personal(asked(7), context(), tmp_path).load()) == 6
    assert value(personal(asked(5), context(), tmp_path).load()) == 4
    assert value(personal(asked(4, protocol.EVALUATE), context(), tmp_path).load()) == 4
    assert personal(asked(3), context(), tmp_path).load() is None
    names = sorted(path.name for path in (tmp_path / "00ff").iterdir())
    assert names == [
        "latest.safetensors",
        "round-000000004.safetensors",
        "round-000000006.safetensors",
    ]
    for path in (tmp_path / "00ff", *(tmp_path / "00ff").iterdir()):  # of a site, never sent
        assert path.stat().st_mode & 0o077 == 0
    # It goes on: what was trained after round 4 is trained again, and counts.
    client = context()
    personal(asked(5), client, tmp_path).save(record(50))
    assert value(personal(asked(6), client, tmp_path).load()) == 50
    assert value(personal(asked(6), context(), tmp_path).load()) == 50


def test_what_a_killed_run_trained_further_is_not_held_for_the_one_that_goes_on(tmp_path):
    personal(asked(1), context(), tmp_path).save(record(1))
    personal(asked(1, "query.save_state"), context(), tmp_path).save_for_checkpoint()
    personal(asked(5), context(), tmp_path).save(record(5))
    for number in (2, 3, 4):  # rounds that it sits out
        personal(asked(number, "query.save_state"), context(), tmp_path).save_for_checkpoint()
    assert value(personal(asked(5), context(), tmp_path).load()) == 1


def test_a_folder_holds_the_newest_trainings_only(tmp_path):
    for number in range(12):
        personal(asked(1, identity=f"{number:02x}"), context(), tmp_path).save(record(number))
        os.utime(tmp_path / f"{number:02x}", ns=(number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n:02x}" for n in range(4, 12)]


@pytest.mark.parametrize("identity", ["../../etc", "AA", "a/b", "x"])
def test_a_server_names_no_path(tmp_path, identity):
    folder = tmp_path / "stored"
    personal(asked(1, identity=identity), context(), folder).save(record(1))
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
