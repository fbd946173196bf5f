"""A name belongs to the key that says it first, in this process: no SuperLink."""

import errno
import json
import os

import pytest

from fl_app.devices.names import Key, NameOwners, changed_names, read_names
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.device_images import write_sites
from tests.device_runs import OPTIONS, Devices, run_on_devices


def key_of(number, name=""):
    return Key("SHA256:" + str(number) * 43, name)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device-names.json"


class Keys:
    """Node 1 has the first key, and so on; all are connected but those away."""

    def __init__(self, *keys, away=()):
        self.keys, self.away = dict(enumerate(keys, start=1)), set(away)

    def key_of(self, node):
        return self.keys.get(node)

    def keys_connected(self):
        return [key for node, key in self.keys.items() if key and node not in self.away]


def owners(path, *keys, away=()):
    return NameOwners(path, Keys(*keys, away=away))


def reasons(refusals):
    return {node: refusal.reason for node, refusal in refusals.items()}


def test_who_says_a_name_first_keeps_it(path):
    assert owners(path, key_of(1)).refused({1: "berlin"}) == {}
    # Another server, some day: it knows nothing but the file.
    refused = owners(path, key_of(2), key_of(1)).refused({1: "berlin", 2: "berlin"})
    assert reasons(refused) == {
        1: "it says that it is berlin, but that name belongs to key SHA256:111111111111…"
    }
    assert refused[1].called == "key SHA256:222222222222…"
    assert json.loads(path.read_text(encoding="utf-8")) == {"berlin": "SHA256:" + "1" * 43}


def test_a_key_has_one_name(path):
    known = owners(path, key_of(1))
    known.refused({1: "eve"})
    refused = known.refused({1: "lyon"})
    assert reasons(refused) == {1: "it says that it is lyon, but its key is that of eve"}
    assert refused[1].called == "eve"
    assert list(read_names(path)) == ["eve"]


def test_the_name_with_which_a_key_is_registered_is_its_name(path):
    known = owners(path, key_of(1, "eve"), key_of(2, "lyon"))
    refused = known.refused({1: "lyon", 2: "lyon"})
    assert reasons(refused) == {1: "it says that it is lyon, but its key is that of eve"}
    assert read_names(path) == {"eve": key_of(1).fingerprint, "lyon": key_of(2).fingerprint}


SQUATTER, OWNER = key_of(1), key_of(2, "berlin")
IS_THE_OWNERS = "it says that it is berlin, but that name belongs to key SHA256:222222222222…"


def test_a_name_is_reserved_by_registering_a_key_with_it(path):
    """Also before that key's device has said anything, and ever after."""
    assert reasons(owners(path, SQUATTER, OWNER).refused({1: "berlin"})) == {1: IS_THE_OWNERS}
    assert reasons(owners(path, SQUATTER).refused({1: "berlin"})) == {1: IS_THE_OWNERS}
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "berlin": OWNER.fingerprint + " registered"
    }


def test_of_two_at_once_the_one_registered_with_the_name_has_it(path):
    known = owners(path, SQUATTER, OWNER, away={1, 2})
    assert reasons(known.refused({1: "berlin", 2: "berlin"})) == {1: IS_THE_OWNERS}


def test_who_took_a_registered_name_loses_it_when_its_owner_comes(path):
    owners(path, SQUATTER).refused({1: "berlin"})  # an earlier run
    known = owners(path, SQUATTER, OWNER, away={2})
    assert known.refused({1: "berlin"}) == {}
    known._grid.away.clear()
    assert reasons(known.refused({2: "berlin"})) == {1: IS_THE_OWNERS}
    assert read_names(path) == {"berlin": OWNER.fingerprint}
    assert known.refused({1: "lyon"}) == {}  # it has no name, and may have another


def test_of_two_registered_with_one_name_the_first_keeps_it(path):
    owners(path, OWNER).refused({1: "berlin"})
    refused = owners(path, key_of(3, "berlin")).refused({1: "berlin"})
    assert reasons(refused) == {1: IS_THE_OWNERS}


def test_a_name_that_was_freed_is_not_taken_again_by_who_said_it_before(path):
    known = owners(path, key_of(1), key_of(2))
    known.refused({1: "berlin"})
    with changed_names(path) as names:
        del names["berlin"]
    assert known.refused({2: "lyon"}) == {}
    assert list(read_names(path)) == ["lyon"]


@pytest.mark.parametrize("name", ["berlin", ""])
def test_who_is_revoked_while_a_run_asks_does_not_get_its_name_back(path, name):
    """Whether it has answered by then, or another has; a new key is registered with the name."""
    grid = Keys(key_of(1, name), key_of(3))
    known = NameOwners(path, grid)
    known.refused({1: "berlin"})
    grid.away.add(1)  # what the SuperLink says from now on
    with changed_names(path) as names:
        del names["berlin"]
    assert known.refused({1: "berlin", 2: "lyon"}) == {}
    assert list(read_names(path)) == ["lyon"]
    assert owners(path, OWNER).refused({1: "berlin"}) == {}


def test_of_two_at_once_the_first_node_has_the_name(path):
    refused = owners(path, key_of(1), key_of(2)).refused({2: "berlin", 1: "berlin"})
    assert list(refused) == [2]
    assert read_names(path) == {"berlin": key_of(1).fingerprint}


def test_without_a_key_nothing_is_remembered(path):
    assert owners(path, None, None).refused({1: "berlin", 2: "berlin"}) == {}
    assert not path.exists()


def test_a_name_is_written_as_people_write_it(path):
    owners(path, key_of(1), key_of(2)).refused({1: "Zürich", 2: "Aarhus"})
    assert path.read_text(encoding="utf-8").splitlines()[1:3] == [
        f'  "Aarhus": "{key_of(2).fingerprint}",',
        f'  "Zürich": "{key_of(1).fingerprint}"',
    ]


def test_the_file_is_for_its_owner_alone(path):
    path.parent.chmod(0o755)  # where the SuperLink was started
    owners(path, key_of(1)).refused({1: "berlin"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_in_the_file_is_the_same_however_its_letters_are_put_together(path):
    path.write_text(json.dumps({"Zu\u0308rich": key_of(1).fingerprint}), encoding="utf-8")
    assert list(owners(path, key_of(2)).refused({1: "Z\u00fcrich"})) == [1]


def test_a_lock_of_another_account_is_named_with_what_to_do(path, monkeypatch):
    def denied(file, *_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(PermissionError) as raised:
        owners(path, key_of(1)).refused({1: "berlin"})
    lock = path.with_name(".device-names.lock")
    assert str(raised.value).startswith(f"{lock} cannot be opened by this account: `fedkin devices")


def test_a_failure_changes_nothing(path):
    owners(path, key_of(1)).refused({1: "berlin"})
    with pytest.raises(KeyError), changed_names(path) as names:
        names["lyon"] = "SHA256:2"
        raise KeyError
    assert list(read_names(path)) == ["berlin"]


@pytest.mark.parametrize("text", ["{", "[]", '{"berlin": 7}', '"berlin"'])
def test_a_damaged_file_lets_nobody_in(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"device-names\.json does not say which name belongs"):
        owners(path, key_of(1)).refused({1: "berlin"})
    assert path.read_text(encoding="utf-8") == text


class KeyedDevices(Devices):
    """Each node has a key of its own; `keys`: from device to another number of a key."""

    def __init__(self, *args, keys, **options):
        super().__init__(*args, **options)
        self.keys = keys

    def key_of(self, node):
        name = self.names[[*self.contexts].index(node)]
        return key_of(self.keys.get(name, name[0]))

    def keys_connected(self):
        return [self.key_of(node) for node in self.contexts]


def run(folder, folders, *, says=None, keys=None, away=None, **options):
    """`says`: from device to the name that it gives."""
    changed = {key.replace("_", "-"): value for key, value in options.items()}
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(folder), **changed}
    if run_config["resume"]:
        run_config["output-dir"] = ""
    grid = KeyedDevices(folders, run_config, away=away, keys=keys or {})
    for name, given in (says or {}).items():
        grid.contexts[grid.node_of(grid.names.index(name))].node_config["name"] = given
    with undrawn_pictures():
        run_on_devices(run_config, grid)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary["runs"][0], grid


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where the server is started, and the images of eve and three others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    sites = {"berlin": (0, 2), "eve": (0, 2), "lyon": (6, 8), "oslo": (6, 8)}
    return write_sites(tmp_path / "sites", sites, images=10)


IT_IS_EVE = "it says that it is lyon, but its key is that of eve"


@pytest.mark.slow
def test_the_name_of_one_that_is_away_is_not_given_to_another(tmp_path, folders, caplog):
    """Not in the next run, nor in a round, and the owner is served when it comes."""
    run(tmp_path / "first", folders)
    # Eve misses the roll call, and says in round 1 that she is lyon, who comes in round 3.
    away = {"lyon": range(4), "eve": {1}}
    one, grid = run(tmp_path / "second", folders, says={"eve": "lyon"}, away=away, num_clients=3)
    assert one["names"] == ["berlin", "oslo", "eve", "lyon"]
    assert one["failures"] == {"2": IT_IS_EVE}
    assert one["clusters"][2] == -1
    assert one["clusters"][3] == one["clusters"][1] >= 0
    assert "train" not in grid.asked("eve")
    assert grid.asked("lyon").count("train") == 1
    assert f"eve (node {grid.node_of(1)}) is left out: {IT_IS_EVE}" in caplog.text


@pytest.mark.slow
def test_who_takes_anothers_name_during_a_run_is_no_longer_itself(tmp_path, folders, monkeypatch):
    """Its node is not taken for its own former self, and the owner keeps its place."""
    looks = KeyedDevices.get_node_ids

    def renamed(self):
        if self.looks == 3:  # when she comes back, in round 3
            self.contexts[self.node_of(1)].node_config["name"] = "lyon"
        return looks(self)

    monkeypatch.setattr(KeyedDevices, "get_node_ids", renamed)
    one, grid = run(tmp_path / "out", folders, away={"eve": {3}, "lyon": {4}}, num_server_rounds=4)
    # It has a place in a cluster, from before.
    assert one["models-not-kept"]["1"] == IT_IS_EVE
    assert grid.asked("eve").count("train") == 1
    assert grid.asked("lyon").count("train") == 3


@pytest.mark.slow
def test_a_resumed_run_knows_whose_name_it_is_and_waits_for_nobody_else(tmp_path, folders, capsys):
    run(tmp_path / "out", folders, checkpoint_every=3)
    again = {"checkpoint_every": 3, "resume": str(tmp_path / "out"), "pre_round_deadline": 1.0}
    one, _ = run(tmp_path / "out", folders, keys={"lyon": "x"}, **again)
    assert one["names"] == ["berlin", "eve", "lyon", "oslo", "key SHA256:xxxxxxxxxxxx…"]
    taken = "it says that it is lyon, but that name belongs to key SHA256:llllllllllll…"
    assert one["failures"]["4"] == taken
    assert one["models-not-kept"]["4"] == taken
    run(tmp_path / "out", folders, **again)
    assert "devices are connected yet" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_to_which_nobody_comes_but_others_says_so(tmp_path, folders):
    only = {"lyon": folders["lyon"]}
    run(tmp_path / "first", only)
    with pytest.raises(RuntimeError, match="no client answered: it says that it is lyon, but that"):
        run(tmp_path / "second", only, keys={"lyon": "x"})
