"""Names of devices, and `fedkin devices`: real SuperLink, real gate, real SuperNodes."""

import json
import re
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fl_app.cli import main
from fl_app.client_app import app
from fl_app.devices.certificates import make_certificates
from tests.app_runs import DEFAULTS
from tests.device_images import write_sites
from tests.device_processes import federation
from tests.raw_device import RawDevice
from tests.report_data import reasons_of

pytestmark = [pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
_PATIENCE = 400.0  # seconds for a run, on a machine that does other things too

OPTIONS = {"dataset": "devices", "strategy": "single", "model": "mlp-32", "num-server-rounds": 1}
OPTIONS |= {"num-clients": 4, "pre-round-deadline": 60.0}


@pytest.fixture
def started(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    with federation(tmp_path / "federation") as devices:
        yield devices


@contextmanager
def answering(devices, name, config, run_config):
    """Connect a device that answers all messages in a thread: it starts no process for one."""
    end = threading.Event()

    def answer():
        while not end.wait(0.2):
            if (message := device.next_message()) is not None:
                about = message.metadata.run_id, device.node_id
                device.push(app(message, Context(*about, config, RecordDict(), dict(run_config))))

    thread = threading.Thread(target=answer)
    with RawDevice(devices, name) as device:
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def test_a_device_takes_no_part_under_a_name_that_is_not_its_own(started, tmp_path):
    """Eve says that she is lyon, and rome's key was registered as berlin after berlin's."""
    devices = started
    devices.register("berlin", "lyon", "eve")
    make_certificates(devices.certificates, [], ["rome"])
    key = str(devices.certificates / "devices/rome.pub")
    devices.flwr("supernode", "register", key, "--name", "berlin")
    says = {"berlin": "berlin", "lyon": "lyon", "eve": "lyon", "rome": "berlin"}
    images = write_sites(tmp_path / "sites", dict.fromkeys(says, (0, 2)))
    models = {name: tmp_path / f"{name}.safetensors" for name in says}
    options = {**OPTIONS, "output-dir": str(tmp_path / "out")}
    with ExitStack() as stack:
        for name, said in says.items():
            config = {"name": said, "data-path": str(images[name]), "model-path": str(models[name])}
            stack.enter_context(answering(devices, name, config, {**DEFAULTS, **options}))
        with devices.started_run(ROOT, options) as run:
            assert run.wait_for_exit(_PATIENCE) == 0, run.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    one = summary["runs"][0]
    assert one["names"][:2] == ["berlin", "lyon"]
    reason_of = {one["names"][client]: why for client, why in reasons_of(one).items()}
    assert reason_of.pop("eve") == "its name is lyon, but its key is registered as eve"
    ((name, reason),) = reason_of.items()
    assert name.startswith("key SHA256:")
    assert reason.startswith("its key was registered as berlin after key SHA256:")
    assert [models[name].exists() for name in says] == [True, True, False, False]


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
    config = {
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
        options = {f"--{key.replace('_', '-')}": value for key, value in (config | other).items()}
        status, said = call("check", *(word for pair in options.items() for word in pair))
        assert len(said) == 6
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
    assert [row[:3:2] for row in listed()] == [["berlin", "never"], ["lyon", "never"]]
    with devices.supernode("berlin", config["node_config"]) as supernode:
        supernode.wait_for("SuperNode ID")
        assert check() == (0, [])  # it asks, and changes nothing
        assert listed()[0][:3:2] == ["berlin", "yes"]
        status, said = call("revoke", "berlin", *server)
        assert (status, len(said)) == (0, 1)
        supernode.wait_for_exit()
    assert [row[0] for row in listed()] == ["lyon"]
    assert check()[0] == 1
    with devices.supernode("berlin", config["node_config"]) as supernode:
        assert supernode.wait_for_exit() != 0
    status = main(["devices", "revoke", "berlin", *server])
    assert status == 2
    assert "error: no device is called berlin" in capsys.readouterr().err
