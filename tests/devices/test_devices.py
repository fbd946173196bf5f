"""docs/devices.md, command by command: a federation of real processes on this machine.

SuperLink with TLS and registered devices, the gate, SuperNodes with real digits of two tasks, and
models on the devices' disks; with `make faults`, too, of three devices one that is killed in the
middle of a round and comes back.
"""

import csv
import json
import re
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import torch
from flwr.supercore.task_identity import TaskIdentity

from fl_app.config.run_config import parse_config
from fl_core.files import program_path
from fl_core.models.checkpoint import load_checkpoint
from fl_core.models.model_file import load_model
from tests.app_runs import DEFAULTS
from tests.device_images import SITES, write_sites
from tests.device_processes import Program, environment, running
from tests.device_runs import Devices, groups, run_on_devices
from tests.processes import free_ports
from tests.report_data import reasons_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_PATIENCE = 300.0  # seconds, on a machine that does other things too
PAGE = (ROOT / "docs/devices.md").read_text(encoding="utf-8")
TESTS = Path(__file__).read_text(encoding="utf-8")
PROFILE = (ROOT / "pyproject-flwr.toml").read_text(encoding="utf-8")


def commands(language: str = "sh") -> list[str]:
    """Return the page's commands, each on one line."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [line for b in blocks for line in b.replace("\\\n", " ").splitlines() if line]


def profile(path: Path, **changes: object) -> Path:
    """Write pyproject-flwr.toml with other values of some keys, as its reader would."""
    text = PROFILE
    for name, value in changes.items():
        key = name.replace("_", "-")
        shown = json.dumps(value)
        text, count = re.subn(rf"(?m)^{key} = (\"[^\"]*\"|\S+)", f"{key} = {shown}", text)
        assert count == 1, key
    path.write_text(text, encoding="utf-8")
    return path


class Site:
    """The page's commands, with the names and places of this machine in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.gate_port = free_ports(2)
        self.home = folder / "flwr"
        self.env = environment(self.home)
        self.link: Program

    def words(self, start: str, **also: str) -> list[str]:
        """Return the page's command that begins with `start`, with replacements, ready to run."""
        (line,) = (one for one in commands() if one.startswith(start))
        here = {
            "fl.example.org:9092": f"127.0.0.1:{self.gate_port}",
            "127.0.0.1:9093": f"127.0.0.1:{self.gate_port}",
            "127.0.0.1:8000": f"127.0.0.1:{self.port}",
            "--port 8000": f"--port {self.port}",
            "run .": f"run {ROOT}",
            **also,
        }
        for there, place in here.items():
            line = line.replace(there, place)
        program, *words = shlex.split(line)
        return [program_path(program), *words]

    def call(self, start: str, home: Path | None = None, **also: str) -> str:
        """Run one of the page's commands to its end and return what it said."""
        options = {
            "capture_output": True,
            "text": True,
            "env": self.env,
            "cwd": home or self.folder,
        }
        done = subprocess.run(self.words(start, **also), check=False, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def program(self, name: str, start: str) -> AbstractContextManager[Program]:
        """Start one of the page's commands that does not end by itself."""
        return running(name, self.words(start), self.folder / name, self.folder)

    def model(self, name: str) -> Path:
        return self.folder / "disks" / name / "model.safetensors"

    def check(self, name: str, images: Path) -> str:
        """Check a device as the page says, and return what that says."""
        return self.call("fedkin devices check", self._home(name), **self._own(name, images))

    def _own(self, name: str, images: Path) -> dict[str, str]:
        """Return what the page has for a device, and what stands for it here."""
        return {
            "berlin": name,
            "/srv/scans": str(images),
            "/var/lib/fedkin/model.safetensors": str(self.model(name)),
        }

    def _home(self, name: str) -> Path:
        """Return a device's folder, with its key and ca.crt."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        for file in ("ca.crt", f"devices/{name}.key"):
            shutil.copy(self.folder / "certificates" / file, home)
        return home

    @contextmanager
    def supernode(self, name: str, images: Path) -> Iterator[Program]:
        """Start a device as the page says; each on this machine needs another port."""
        words = self.words("fedkin node", **self._own(name, images))
        home = self._home(name)
        (port,) = free_ports(1)
        with running("supernode", [*words, "--port", str(port)], home, home) as program:
            yield program

    def wait_for_superlink(self) -> None:
        deadline = time.monotonic() + 60
        words = [program_path("flwr"), "supernode", "list"]
        while subprocess.run(words, env=self.env, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, "the SuperLink does not answer"
            time.sleep(0.5)

    def started_run(self, path: Path) -> AbstractContextManager[Program]:
        """Start a run; `flwr` ends with it."""
        words = self.words("flwr run", **{"pyproject-flwr.toml": path.name})
        return running(path.stem, words, self.home, self.folder)


def kill(program: Program) -> None:
    """End a program and what it started, as a power cut does."""
    parent = psutil.Process(program.process.pid)
    for process in (*parent.children(recursive=True), parent):
        process.kill()
    program.process.wait()


@contextmanager
def held(program: Program) -> Iterator[None]:
    """Let a device's SuperNode stand still for a while: a device that takes its time."""
    (process,) = (
        child
        for child in psutil.Process(program.process.pid).children()
        if any(Path(word).name == "flower-supernode" for word in child.cmdline())
    )
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch) -> None:
    """Devices share two cores here; and one thread sums in one order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))


@contextmanager
def set_up(folder: Path, names: list[str]) -> Iterator[tuple[Site, ExitStack, dict[str, Path]]]:
    """Sections 1 to 3 of the page, without the SuperNodes."""
    site = Site(folder)
    made = site.call("fedkin certificates certificates --server")
    assert "berlin.key" in made
    site.home.mkdir()
    (config,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    config = config.replace("127.0.0.1:8000", f"127.0.0.1:{site.port}")
    config = config.replace("/srv/fedkin/certificates", str(folder / "certificates"))
    (site.home / "config.toml").write_text(config, encoding="utf-8")
    with ExitStack() as stack:
        site.link = stack.enter_context(site.program("superlink", "flower-superlink"))
        gate = stack.enter_context(site.program("gate", "fedkin gate"))
        gate.wait_for("the gate listens")
        site.wait_for_superlink()
        for name in names:
            site.call(f"flwr supernode register certificates/devices/{name}.pub --name {name}")
        yield site, stack, write_sites(folder / "sites", {name: SITES[name] for name in names})


def test_the_page_from_the_first_command_to_the_last(tmp_path, monkeypatch):
    names = ["oslo", "rome"]  # a device more is seconds for each of its messages
    with set_up(tmp_path, names) as (site, stack, images):
        for node in [stack.enter_context(site.supernode(n, images[n])) for n in names]:
            node.wait_for("SuperNode ID")
        assert site.check("oslo", images["oslo"]).count("✓") == 6
        options = {"strategy": "rcc-pfl", "validation_share": 0.0, "num_clients": 2}
        options |= {"model": "mlp-32", "learning_rate": 0.003, "num_server_rounds": 1}
        path = profile(tmp_path / "profile.toml", **options, output_dir=str(tmp_path / "out"))
        with site.started_run(path) as started:
            assert started.wait_for_exit(_PATIENCE) == 0, started.text
    assert "2 devices: oslo, rome" in started.text
    assert "2 of 2 devices have stored their model" in started.text
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    (one,) = summary["runs"]
    assert groups(one) == [["oslo", "rome"]]
    assert reasons_of(one) == one["models-not-stored"] == {}
    assert one["accuracy"] > 0.4
    here = {
        "/var/lib/fedkin/model.safetensors": str(site.model("rome")),
        "/srv/new-scans": str(images["rome"]),
        "answers.csv": str(tmp_path / "answers.csv"),
    }
    assert "digit 6" in site.call("fedkin classify", **here)
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 20
    right = [Path(row["path"]).parent.name == row["class"] for row in rows]
    assert sum(right) / len(right) > 0.4


@pytest.mark.faults
def test_a_device_that_is_killed_in_a_round_comes_back(tmp_path, monkeypatch):
    names = ["berlin", "oslo", "rome"]
    with set_up(tmp_path, names) as (site, stack, images):
        nodes = {n: stack.enter_context(site.supernode(n, images[n])) for n in names}
        for node in nodes.values():
            node.wait_for("SuperNode ID")
        options = {"strategy": "rcc-pfl", "validation_share": 0.0, "num_clients": 3}
        options |= {"num_clusters": "elbow"}  # to auto, one device alone is no group
        options |= {"model": "mlp-32", "learning_rate": 0.003, "num_server_rounds": 2}
        options |= {
            "evaluate_every": 2,
            "round_deadline": 90.0,
            "output_dir": str(tmp_path / "out"),
        }
        path = profile(tmp_path / "profile.toml", **options)
        with site.started_run(path) as started:
            nodes["rome"].wait_for("Receiving: train", _PATIENCE)
            kill(nodes["rome"])
            # Flower notices that the node is gone after half a minute to one, and refuses its
            # return until then: the round's deadline may pass before that, or after; on a busy
            # machine it must be long enough for berlin, held below, to miss none.
            rome = stack.enter_context(site.supernode("rome", images["rome"]))
            rome.wait_for("it counts one that was killed as connected for a minute", _PATIENCE)
            failed = "rome could not train in round 1: "
            said = started.wait_for(failed, _PATIENCE).partition(failed)[2]
            assert said in ("no answer in time", "it is no longer connected")
            with held(nodes["berlin"]):  # so that the run is not over before rome is back
                rome.wait_for("SuperNode ID", _PATIENCE)
            assert started.wait_for_exit(_PATIENCE) == 0, started.text
    log = started.text
    assert "3 devices: berlin, oslo, rome" in log
    assert "3 of 3 devices have stored their model" in log
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    (one,) = summary["runs"]
    assert groups(one) == [["berlin"], ["oslo", "rome"]]
    assert reasons_of(one) == one["models-not-stored"] == {}
    assert one["accuracy"] > 0.6
    for name, cluster in zip(one["names"], one["clusters"], strict=True):
        _, card = load_model(site.model(name))
        assert (card.strategy, card.cluster, card.num_rounds) == ("rcc-pfl", cluster, 2)
        assert card.class_names == tuple(f"digit {d}" for d in (0, 1, 2, 4, 6, 8))


@pytest.mark.faults
def test_a_superlink_that_is_killed_costs_nothing_but_time(tmp_path, monkeypatch):
    """Resumed, the run ends with the models of a run in which nothing happened, to the bit.

    So do the devices with their personal ones, which they find on their disks again; and with their
    verdicts, though what they found of the first strategy was known in the first run alone.
    """
    names = ["berlin", "oslo"]
    options = {"strategy": "local,ditto", "validation_share": 0.3, "model": "mlp-32"}
    options |= {"num_server_rounds": 2, "evaluate_every": 2}
    out = tmp_path / "out"

    def written(name, **more):
        return profile(tmp_path / name, **options, **more)

    with set_up(tmp_path, names) as (site, stack, images):
        nodes = {n: stack.enter_context(site.supernode(n, images[n])) for n in names}
        for node in nodes.values():
            node.wait_for("SuperNode ID")
        checkpoint = out / "checkpoints/ditto-seed-0.safetensors"
        with site.started_run(written("first.toml", output_dir=str(out))):
            deadline = time.monotonic() + _PATIENCE
            while not checkpoint.exists():
                assert time.monotonic() < deadline, "there was no checkpoint"
                time.sleep(0.1)
            assert load_checkpoint(checkpoint)["strategy"]["round"] == 1
            kill(site.link)
        stack.enter_context(site.program("superlink", "flower-superlink"))
        site.wait_for_superlink()
        path = written("again.toml", resume=str(out))
        with site.started_run(path) as again:
            assert again.wait_for_exit(_PATIENCE) == 0, again.text
    assert "ditto  seed 0  resumed after round 1" in again.text
    assert "2 of 2 devices have stored their model" in again.text

    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    undisturbed = {
        **DEFAULTS,
        **tomllib.loads(path.read_text(encoding="utf-8")),
        "resume": "",
        "output-dir": str(tmp_path / "undisturbed"),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stored = {name: tmp_path / "stored" / f"{name}.safetensors" for name in names}
    grid = Devices(images, undisturbed, model_paths=stored)
    run_on_devices(undisturbed, grid)
    torch.set_num_threads(threads)
    said = [
        json.loads((one / "summary.json").read_text()) for one in (out, tmp_path / "undisturbed")
    ]
    assert said[0]["verdicts"] == said[1]["verdicts"]
    assert len(said[0]["verdicts"][0]["clients"]) == 2
    for name in names:
        assert site.model(name).read_bytes() == stored[name].read_bytes()
        (folder,) = site.model(name).with_name(f"{site.model(name).stem}-personal").iterdir()
        states = {path.stem for path in folder.iterdir()}
        assert states == {"latest", "round-000000001", "round-000000002"}


def test_every_key_of_the_profile_exists():
    keys = tomllib.loads(PROFILE)
    assert keys.keys() <= DEFAULTS.keys()
    config = parse_config({**DEFAULTS, **keys})
    assert (config.dataset, config.num_clusters) == ("devices", "auto")
    assert config.checkpoint_every == 1
    assert "docs/options.md" in PROFILE  # which explains each


def test_no_command_on_the_page_goes_untested():
    """But for those that install, copy keys from machine to machine, or make a folder."""
    used = re.findall(r"""(?:words|call|program)\(\s*(?:"\w+", )?f?"([^"{]*)""", TESTS)
    local = ("cd ", "python3 -m venv", "pip install", "export FLWR_", "scp ", "sudo install")
    assert len(set(used)) >= 7
    for line in commands():
        assert line.startswith((*used, *local)), line
