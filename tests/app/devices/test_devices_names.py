"""A name belongs to the key that is registered with it, in this process: no SuperLink."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from fl_app.devices.registry import Registration, refused_names
from fl_app.run.watch import read_status
from tests.app_runs import DEFAULTS, undrawn_pictures
from tests.device_images import write_sites
from tests.device_runs import OPTIONS, Devices, run_on_devices
from tests.report_data import reasons_of
from tests.toy_app import fail

START = datetime(2026, 11, 21, tzinfo=UTC)


def registration(number, name, hours=0):
    return Registration("SHA256:" + str(number) * 43, name, START + timedelta(hours=hours))


def test_a_device_has_the_name_of_its_key_alone():
    known = {1: registration(1, "eve"), 2: registration(2, "lyon")}
    assert refused_names(known, {1: "eve", 2: "lyon"}) == {}
    assert refused_names(known, {1: "lyon", 2: "lyon"}) == {1: ("eve", IT_IS_EVE)}
    assert refused_names({}, {1: "berlin", 2: "berlin"}) == {}  # without TLS


NAMELESS = "its key was registered without --name: make a new key, and register that with --name "


def test_a_key_without_a_name_is_refused():
    known = {1: registration(1, ""), 2: registration(2, "", hours=1)}
    refused = refused_names(known, {1: "berlin", 2: "oslo"})
    assert refused[1] == ("key SHA256:111111111111…", f"{NAMELESS}berlin")
    assert list(refused) == [1, 2]


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_keys_with_one_name_the_first_has_it(first):
    """Also while it is not among those that answer."""
    second = 3 - first
    known = {first: registration(first, "berlin"), second: registration(second, "berlin", hours=1)}
    keys = [f"key SHA256:{str(one) * 12}…" for one in (first, second)]
    reason = f"its key was registered as berlin after {keys[0]}: revoke one of the two"
    assert refused_names(known, {1: "berlin", 2: "berlin"}) == {second: (keys[1], reason)}
    assert refused_names(known, {second: "berlin"}) == {second: (keys[1], reason)}
    assert refused_names(known, {first: "berlin"}) == {}


class RegisteredDevices(Devices):
    """Each node is registered with its name, or another one of `registered`."""

    def __init__(self, *args, registered, **options):
        super().__init__(*args, **options)
        self.registered = registered

    def registrations(self):
        return {
            node: registration(place, self.registered.get(name, name), hours=place)
            for place, (node, name) in enumerate(zip(self.contexts, self.names, strict=True))
        }


def run(folder, folders, *, says=None, registered=None, **options):
    """`says`: from device to the name that it gives."""
    on_nodes = {key: options.pop(key) for key in ("away", "corrupt") if key in options}
    changed = {key.replace("_", "-"): value for key, value in options.items()}
    run_config = {**DEFAULTS, **OPTIONS, "output-dir": str(folder), **changed}
    if run_config["resume"]:
        run_config["output-dir"] = ""
    grid = RegisteredDevices(folders, run_config, **on_nodes, registered=registered or {})
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


IT_IS_EVE = "its name is lyon, but its key is registered as eve"


def test_a_node_that_never_answers_is_called_by_its_registered_name(tmp_path, folders, caplog):
    corrupt = {("query.describe", "eve"): fail}
    one, _ = run(tmp_path / "out", folders, corrupt=corrupt, num_server_rounds=1)
    assert one["names"] == ["berlin", "lyon", "oslo"]
    assert one["unknown-nodes"] == {"eve": "the disk is full"}
    assert "eve is left out, it could not take part: the disk is full" in caplog.text
    assert "left out: eve (the disk is full)" in read_status(tmp_path / "out")["clients"]


@pytest.mark.slow
def test_the_name_of_one_that_is_away_is_not_given_to_another(tmp_path, folders, caplog):
    """Not in a round, and the owner is served when it comes."""
    # Eve misses the registration, and says in round 1 that she is lyon, who comes in round 3.
    away = {"lyon": range(4), "eve": {1}}
    one, grid = run(tmp_path / "out", folders, says={"eve": "lyon"}, away=away, num_clients=3)
    assert one["names"] == ["berlin", "oslo", "eve", "lyon"]
    assert reasons_of(one) == {2: IT_IS_EVE}
    assert one["clusters"][2] == -1
    assert one["clusters"][3] == one["clusters"][1] >= 0
    assert "train" not in grid.asked("eve")
    assert grid.asked("lyon").count("train") == 1
    assert f"eve (node {grid.node_of(1)}) is left out: {IT_IS_EVE}" in caplog.text


@pytest.mark.slow
def test_who_takes_anothers_name_during_a_run_is_no_longer_itself(tmp_path, folders, monkeypatch):
    """Its node is not the same device any more, and the owner stays where it was."""
    looks = RegisteredDevices.get_node_ids

    def renamed(self):
        if self.looks == 3:  # when she comes back, in round 3
            self.contexts[self.node_of(1)].node_config["name"] = "lyon"
        return looks(self)

    monkeypatch.setattr(RegisteredDevices, "get_node_ids", renamed)
    one, grid = run(tmp_path / "out", folders, away={"eve": {3}, "lyon": {4}}, num_server_rounds=4)
    # It has a place in a cluster, from before.
    assert one["models-not-stored"]["1"] == IT_IS_EVE
    assert grid.asked("eve").count("train") == 1
    assert grid.asked("lyon").count("train") == 3


@pytest.mark.slow
def test_a_resumed_run_checks_names_and_waits_for_its_devices_only(tmp_path, folders, capsys):
    run(tmp_path / "out", folders, checkpoint_every=3)
    again = {"checkpoint_every": 3, "resume": str(tmp_path / "out"), "pre_round_deadline": 1.0}
    one, _ = run(tmp_path / "out", folders, registered={"lyon": ""}, **again)
    assert one["names"] == ["berlin", "eve", "lyon", "oslo", "key SHA256:222222222222…"]
    assert reasons_of(one)[4] == one["models-not-stored"]["4"] == f"{NAMELESS}lyon"
    run(tmp_path / "out", folders, **again)
    assert "devices are connected yet" not in capsys.readouterr().out
