"""Whose a name is, and `fedkin devices`: real SuperLink, real gate, real SuperNodes."""

import json
import re
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.app import Context, RecordDict
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fl_app.cli import main
from fl_app.client_app import app
from fl_app.devices.certificates import make_certificates
from fl_app.devices.names import changed_names, fingerprint, read_names, short
from fl_app.launch.flower_app import toml_lines
from fl_app.launch.processes import stop_family
from fl_app.launch.superlink import program_path
from tests.app_runs import DEFAULTS
from tests.device_images import write_sites
from tests.device_processes import (
    federation,
    running,
    superlink_words,
    wait_until_healthy,
)
from tests.raw_device import RawDevice

pytestmark = [pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
_PATIENCE = 400.0  # seconds for a run, on a machine that does other things too

OPTIONS = {
    "dataset": "own",
    "strategy": "single",
    "model": "mlp-32",
    "num-server-rounds": 1,
    "num-clients": 2,
    "pre-round-deadline": 60.0,
}


@pytest.fixture
def started(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    with federation(tmp_path / "federation") as devices:
        yield devices


class Answering:
    """A device that answers all it is asked, in a thread: it starts no process for a message.

    It is connected for the length of the block, and trains once `may_train` is set.
    """

    def __init__(self, devices, name, own, run_config):
        self._device = RawDevice(devices, name)
        self._config = own, run_config
        self.may_train, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self):
        self._device.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.may_train.set()
        self._end.set()
        self._thread.join()
        self._device.__exit__(*error)

    def _answer(self):
        own, run_config = self._config
        while not self._end.wait(0.2):
            with suppress(httpx.HTTPError):  # the SuperLink is being restarted
                message = self._device.next_message()
                if message is not None:
                    if message.metadata.message_type == "train":
                        self.may_train.wait()
                    about = message.metadata.run_id, self._device.node_id
                    context = Context(*about, own, RecordDict(), dict(run_config))
                    self._device.push(app(message, context))


def test_a_name_belongs_to_its_key_while_its_owner_is_away(started, tmp_path):
    """In a later run, after a restart of the SuperLink, until the owner comes back."""
    devices = started
    devices.register("berlin", "lyon", "eve")
    images = write_sites(tmp_path / "sites", dict.fromkeys(("berlin", "lyon", "eve"), (0, 2)))
    models = {name: tmp_path / f"{name}.safetensors" for name in images}
    run_config = {**DEFAULTS, **OPTIONS}

    def device(name, says):
        own = {"name": says, "data-path": str(images[name]), "model-path": str(models[name])}
        return Answering(devices, name, own, run_config)

    def run(name, **options):
        keys = {**OPTIONS, "output-dir": str(tmp_path / name), **options}
        file = tmp_path / f"{name}.toml"
        file.write_text(toml_lines(keys), encoding="utf-8")
        words = [program_path("flwr"), "run", str(ROOT), "devices", "--stream"]
        home = tmp_path / f"home-{name}"
        return running(name, [*words, "--run-config", str(file)], home, env=devices.env)

    def found(name):
        summary = json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8"))
        return summary["runs"][0]

    folder = devices.folder / "superlink"
    with ExitStack() as stack:
        berlin = stack.enter_context(device("berlin", "berlin"))
        berlin.may_train.set()
        with device("lyon", "lyon") as lyon, run("first") as first:
            lyon.may_train.set()
            assert first.wait_for_exit(_PATIENCE) == 0, first.text
        assert found("first")["names"] == ["berlin", "lyon"]
        names = json.loads((folder / "device-names.json").read_text(encoding="utf-8"))
        models["lyon"].unlink()

        stop_family(devices.superlink.process, folder)
        words = superlink_words(devices.certificates, devices.port, folder / "state.db")
        with running("again", words, folder, folder) as again, stack.pop_all():
            wait_until_healthy(again, devices.certificates, devices.port)
            berlin.may_train.clear()
            with device("eve", "lyon"), run("second", **{"num-server-rounds": 2}) as second:
                refused = "is left out: it says that it is lyon, but that name belongs to key "
                line = second.wait_for(refused, _PATIENCE)
                with device("lyon", "lyon") as lyon:
                    lyon.may_train.set()
                    berlin.may_train.set()
                    assert second.wait_for_exit(_PATIENCE) == 0, second.text
    one = found("second")
    assert (one["names"][0], one["names"][2]) == ("berlin", "lyon")
    assert line.startswith(f"{one['names'][1]} (node ")
    assert one["names"][1].startswith("key SHA256:")
    assert one["failures"] == {"1": line.partition("is left out: ")[2]}
    assert line.endswith(short(names["lyon"]))
    assert one["clusters"] == [0, -1, 0]
    assert models["lyon"].exists()
    assert not models["eve"].exists()
    assert json.loads((folder / "device-names.json").read_text(encoding="utf-8")) == names


def cells(row):
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_devices_are_listed_checked_and_revoked(started, tmp_path, monkeypatch, capsys):
    devices = started
    devices.register("berlin", "lyon")
    make_certificates(tmp_path / "strangers", ["localhost"], ["eve"])
    images = write_sites(tmp_path / "sites", {"berlin": (0, 2)}, images=6)["berlin"]
    monkeypatch.chdir(devices.folder / "superlink")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    server = ("--superlink", f"127.0.0.1:{devices.port}", "--certificates", "../certificates")
    own = {
        "superlink": f"127.0.0.1:{devices.gate_port}",
        "root_certificates": devices.certificates / "ca.crt",
        "auth_supernode_private_key": devices.certificates / "devices/berlin.key",
        "node_config": f'name="berlin" data-path="{images}"',
    }

    def call(*words):
        """Return the status of `fedkin devices` and the lines that it says."""
        status = main(["devices", *map(str, words)])
        return status, capsys.readouterr().out.splitlines()

    def check(**other):
        """Return the status at berlin, and what is wrong."""
        options = {f"--{key.replace('_', '-')}": value for key, value in (own | other).items()}
        status, said = call("check", *(word for pair in options.items() for word in pair))
        assert len(said) == 7
        return status, [line for line in said if not line.startswith("✓")]

    def listed():
        """Return the rows of the table."""
        status, said = call(*server)
        assert status == 0
        return [cells(line) for line in said if line.startswith("│")]

    assert check() == (0, [])
    status, wrong = check(auth_supernode_private_key=tmp_path / "strangers/devices/eve.key")
    assert (status, len(wrong)) == (1, 1)
    assert re.match(r"✗ key +SHA256:\S+ is not registered: send the public key", wrong[0])
    assert [row[:3:2] for row in listed()] == [["(never said)", "never"]] * 2
    key = load_ssh_public_key((devices.certificates / "devices/berlin.pub").read_bytes())
    with changed_names(Path("device-names.json")) as names:  # as a run would
        names["berlin"] = fingerprint(public_key_to_bytes(key))
    with devices.supernode("berlin", own["node_config"]) as supernode:
        supernode.wait_for("SuperNode ID")
        assert check() == (0, [])  # it asks, and changes nothing
        assert listed()[0][:3:2] == ["berlin", "yes"]
        status, said = call("revoke", "berlin", *server)
        assert (status, said[1]) == (0, "The name berlin is free for another key.")
        supernode.wait_for_exit()
    assert [row[0] for row in listed()] == ["(never said)"]
    assert read_names(Path("device-names.json")) == {}
    assert check()[0] == 1
    with devices.supernode("berlin", own["node_config"]) as supernode:
        assert supernode.wait_for_exit() != 0
    status = main(["devices", "revoke", "berlin", *server])
    assert status == 2
    assert "error: no device is called berlin" in capsys.readouterr().err
