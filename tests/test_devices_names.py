"""Whose a name is, and `fedkin devices`: real SuperLink, real gate, real SuperNodes."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fl_app.cli import main
from fl_app.devices.certificates import make_certificates
from fl_app.devices.names import changed_names, fingerprint, read_names
from fl_app.processes import stop_family
from fl_app.superlink import program_path
from fl_core.model_file import load_model
from tests.device_images import write_sites
from tests.device_processes import (
    federation,
    running,
    superlink_words,
    wait_until_healthy,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
_PATIENCE = 400.0  # seconds for a run, on a machine that does other things too

OPTIONS = {
    "dataset": "own",
    "strategy": "single",
    "model": "mlp-32",
    "num-server-rounds": 1,
    "pre-round-deadline": 60.0,
}


@pytest.fixture
def started(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    with federation(tmp_path / "federation") as devices:
        yield devices


def config(name, images, model=None):
    own = f'name="{name}" data-path="{images}"'
    return own if model is None else f'{own} model-path="{model}"'


class Runs:
    """Runs of the checkout's app, one after the other."""

    def __init__(self, devices, folder):
        self.devices, self.folder = devices, folder

    def run(self, name, **options):
        """Run the app and return what it says and its summary."""
        keys = {**OPTIONS, "output-dir": str(self.folder / name)}
        keys |= {key.replace("_", "-"): value for key, value in options.items()}
        file = self.folder / f"{name}.toml"
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        file.write_text("".join(lines), encoding="utf-8")
        words = [program_path("flwr"), "run", str(ROOT), "devices", "--stream"]
        words += ["--run-config", str(file)]
        with running(name, words, self.folder / name, env=self.devices.env) as program:
            assert program.wait_for_exit(_PATIENCE) == 0, program.text
        summary = json.loads((self.folder / name / "summary.json").read_text(encoding="utf-8"))
        return program.text, summary["runs"][0]


def test_a_name_belongs_to_its_key_while_its_owner_is_away(started, tmp_path):
    devices, runs = started, Runs(started, tmp_path)
    devices.register("berlin", "lyon", "eve")
    sites = {"berlin": (0, 2), "lyon": (0, 2), "eve": (0, 2)}
    images = write_sites(tmp_path / "sites", sites, images=6)
    model = tmp_path / "lyon.safetensors"
    names = devices.folder / "superlink/device-names.json"
    with ExitStack() as stack:
        berlin = stack.enter_context(
            devices.supernode("berlin", config("berlin", images["berlin"]))
        )
        with devices.supernode("lyon", config("lyon", images["lyon"])) as lyon:
            for node in (berlin, lyon):
                node.wait_for("SuperNode ID")
            _, one = runs.run("first", num_clients=2)
            assert one["names"] == ["berlin", "lyon"]
        assert list(json.loads(names.read_text(encoding="utf-8"))) == ["berlin", "lyon"]

        stop_family(devices.superlink.process, devices.folder / "superlink")
        words = superlink_words(
            devices.certificates, devices.port, devices.folder / "superlink/state.db"
        )
        home = devices.folder / "superlink"
        again = stack.enter_context(running("again", words, home, home))
        wait_until_healthy(again, devices.certificates, devices.port)

        pretended = config("lyon", images["eve"], tmp_path / "eve.safetensors")
        eve = stack.enter_context(devices.supernode("eve", pretended))
        eve.wait_for("SuperNode ID")
        said, one = runs.run("second", num_clients=2)
        called = next(name for name in one["names"] if name.startswith("key SHA256:"))
        assert one["names"] == ["berlin", called]
        (failure,) = one["failures"].values()
        assert failure.startswith("it says that it is lyon, but that name belongs to key SHA256:")
        assert failure in said
        assert called in said
        assert one["clusters"] == [0, -1]

        lyon = stack.enter_context(devices.supernode("lyon", config("lyon", images["lyon"], model)))
        lyon.wait_for("SuperNode ID")
        _, one = runs.run("third", num_clients=3)
        assert one["names"] == ["berlin", "lyon", called]
        assert one["clusters"] == [0, 0, -1]
        assert load_model(model)[1].strategy == "single"
        assert not (tmp_path / "eve.safetensors").exists()


def cells(row):
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_devices_are_listed_checked_and_revoked(started, tmp_path, monkeypatch, capsys):
    devices = started
    devices.register("berlin", "lyon")
    make_certificates(tmp_path / "strangers", ["localhost"], ["eve"])
    images = write_sites(tmp_path / "sites", {"berlin": (0, 2)}, images=6)["berlin"]
    monkeypatch.chdir(devices.folder / "superlink")
    server = ("--superlink", f"127.0.0.1:{devices.port}", "--certificates", "../certificates")
    own = {
        "superlink": f"127.0.0.1:{devices.gate_port}",
        "root_certificates": devices.certificates / "ca.crt",
        "auth_supernode_private_key": devices.certificates / "devices/berlin.key",
        "node_config": config("berlin", images),
    }

    def call(*words):
        """Return the status of `fedkin devices` and the lines that it says."""
        status = main(["devices", *map(str, words)])
        return status, capsys.readouterr().out.splitlines()

    def check(**other):
        """Return the status at berlin, and what is wrong."""
        options = {f"--{key.replace('_', '-')}": value for key, value in (own | other).items()}
        status, said = call("check", *(word for pair in options.items() for word in pair))
        assert len(said) == 5
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
    assert [row[::2] for row in listed()] == [["(never said)", "never"]] * 2
    key = load_ssh_public_key((devices.certificates / "devices/berlin.pub").read_bytes())
    with changed_names(Path("device-names.json")) as names:  # as a run would
        names["berlin"] = fingerprint(public_key_to_bytes(key))
    with devices.supernode("berlin", own["node_config"]) as supernode:
        supernode.wait_for("SuperNode ID")
        assert check() == (0, [])  # it asks, and changes nothing
        assert listed()[0][::2] == ["berlin", "yes"]
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
