"""`fedkin node`: its two processes end together, and what answers messages is started again."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

from fl_app.cli import main
from fl_app.devices.site import node_command
from fl_app.devices.site.node_command import _FILES, _parse, run_node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a fork that ends with its parent"),
]

# With programs of a test in the place of Flower's, and of what forks.
NODE = """
import subprocess, sys
from fl_app.cli import main
from fl_app.devices.site import node_command
supernode, warm = sys.argv[1:3]
node_command._REST = 0.1
node_command.program_path = lambda name: supernode
node_command._REFUSED_REST, node_command._REFUSED_SECONDS = 0.1, 5.0
start = subprocess.Popen
node_command.subprocess.Popen = lambda words, **options: start(
    [warm, *words[4:]] if words[0] == sys.executable else words, **options
)
sys.exit(main(["node", *sys.argv[3:]]))
"""
SLEEPS = 'echo "$$ $@" >> "$0.started"; exec sleep 60'


@pytest.fixture(autouse=True)
def flowers_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))


@pytest.fixture
def node(tmp_path):
    """Return a function that starts `fedkin node` with two shell scripts; end all at the end."""
    running = []

    def start(supernode=SLEEPS, warm=SLEEPS, *words):
        paths = []
        for name, script in (("supernode", supernode), ("warm", warm)):
            paths.append(tmp_path / name)
            paths[-1].write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            paths[-1].chmod(0o700)
        command = [sys.executable, "-c", NODE, *map(str, paths), *words]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def starts(folder, name, count=1):
    """Return the process ids and options with which a script has been started so often."""
    path, deadline = folder / f"{name}.started", time.monotonic() + 30
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, f"{name} was not started"
        time.sleep(0.05)
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(first), rest) for first, *rest in lines]


def is_gone(process_id):
    """Return whether a process ends in a while."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_the_status_is_the_supernodes_and_its_options_are_passed_on(node, tmp_path):
    ends = 'echo "$$ $@" >> "$0.started"; sleep 1; exit 3'
    process = node(ends, SLEEPS, "--superlink", "fl.example.org:9092", "--port", "9095")
    assert process.wait(30) == 3
    ((_, words),) = starts(tmp_path, "supernode")
    assert words == [
        *("--superlink", "fl.example.org:9092", "--port", "9095", "--isolation", "process"),
    ]
    ((warm, (parent, address)),) = starts(tmp_path, "warm")
    assert (parent, address) == (str(process.pid), "127.0.0.1:9095")
    assert is_gone(warm)


def test_a_polite_kill_ends_both_and_ctrl_c_is_for_the_node_alone(node, tmp_path):
    """Else its processes get two signals, and say so by tracebacks."""
    ends = 'trap \'echo "$$" > "$0.ended"; exit 0\' TERM; echo "$$" >> "$0.started"'
    process = node(f"{ends}; while true; do sleep 0.5; done")
    both = [starts(tmp_path, name)[0][0] for name in ("supernode", "warm")]
    assert os.getpgid(process.pid) not in map(os.getpgid, both)
    process.terminate()
    assert process.wait(30) == 0
    assert all(map(is_gone, both))
    assert (tmp_path / "supernode.ended").read_text().strip() == str(both[0])


@pytest.mark.faults
def test_the_supernode_ends_with_a_node_that_is_killed(node, tmp_path):
    process = node()
    (supernode, _), (warm, _) = starts(tmp_path, "supernode")[0], starts(tmp_path, "warm")[0]
    process.kill()
    assert is_gone(supernode)
    os.kill(warm, signal.SIGKILL)  # this one would have seen to it itself


@pytest.mark.faults
def test_what_answers_messages_is_started_again_once_it_is_killed(node, tmp_path):
    process = node()
    ((first, _),) = starts(tmp_path, "warm")
    os.kill(first, signal.SIGKILL)
    second = starts(tmp_path, "warm", 2)[1][0]
    assert first != second
    assert len(starts(tmp_path, "supernode")) == 1
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert said.count("ended by SIGKILL and is restarted") == 1
    assert is_gone(second)


def test_the_model_of_a_device_is_no_other_devices(node, tmp_path, monkeypatch, capsys):
    model = tmp_path / "models/model.safetensors"
    config = ("--node-config", f'name="berlin" model-path="{model}"')
    process = node(SLEEPS, SLEEPS, "--port", "9195", *config)
    starts(tmp_path, "supernode")
    # Another account could lock a file that it can read, and stop every start.
    assert (model.parent / f".{model.name}.lock").stat().st_mode & 0o777 == 0o600
    assert model.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(node_command, "program_path", lambda _: "/bin/true")
    (tmp_path / "link").symlink_to(model.parent)
    for folder in (model.parent, tmp_path / "link"):
        other = f'name="lyon" model-path="{folder / model.name}"'
        assert main(["node", "--node-config", other]) == 2
        assert "where another fedkin node of this machine saves its" in capsys.readouterr().err
    assert run_node(["--node-config", config[1].replace("model.saf", "lyon.saf")]) == 1
    process.terminate()
    assert process.wait(30) == 0
    assert run_node([*config]) == 1  # it starts, and /bin/true ends


REFUSED = 'echo "[code: 2004] Failed to activate SuperNode." >&2; exit 1'


def test_a_node_whose_predecessor_was_killed_waits_and_says_why(node, tmp_path):
    """The SuperLink counts that one as connected for a minute."""
    twice = f'echo "$$" >> "$0.started"; [ $(wc -l < "$0.started") -gt 2 ] || {{ {REFUSED}; }}'
    process = node(f"{twice}; sleep 1; exit 3")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert len(starts(tmp_path, "supernode")) == 3
    assert len(starts(tmp_path, "warm")) == 1
    assert said.count("it counts one that was killed as connected for a minute") == 2
    assert said.count("[code: 2004] Failed") == 2


def test_a_node_that_is_refused_for_good_ends(node):
    _, said = (process := node(REFUSED)).communicate(timeout=60)
    assert process.returncode == 1
    assert "the server still refuses this device: run `fedkin devices check`" in said


def test_the_app_that_a_node_runs_is_passed_on_and_must_be_a_hash(node, tmp_path, capsys):
    process = node(SLEEPS, SLEEPS, "--only-app", "ab" * 32, "--port", "9095")
    assert starts(tmp_path, "warm")[0][1] == [str(process.pid), "127.0.0.1:9095", "ab" * 32]
    assert "--only-app" not in starts(tmp_path, "supernode")[0][1]
    process.terminate()
    assert process.wait(30) == 0
    assert main(["node", "--only-app", "abc"]) == 2
    assert "--only-app is abc, but it must be a SHA-256 hash" in capsys.readouterr().err


def test_what_fails_by_itself_ends_the_node(node, tmp_path):
    process = node(SLEEPS, "sleep 1; exit 1")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "error: the process that answers messages has ended with status 1" in said
    assert is_gone(starts(tmp_path, "supernode")[0][0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node-config", "name=paris data-path=/x y"], "cannot be read: give key=value pairs"),
        (
            ["--node-config", 'name="x" model-path="/dev/null/x"'],
            "cannot write there (File exists)",
        ),
        (["--root-certificates", "none.crt"], "--root-certificates none.crt is not a file: give"),
        (["--auth-supernode-private-key", "none.key"], "key none.key is not a file: give the one"),
        (["--port", "PORT"], "(in use): give each SuperNode of a machine another --port"),
        (["--port", "70000"], "at --host 127.0.0.1 --port 70000 (bind(): port must be 0-65535.)"),
        (["--host", "203.0.113.1"], "at --host 203.0.113.1 --port 9094 ("),
        *(
            ([f"--{option}"], f"fedkin node has no option --{option}")
            for option in ("isolation", "allow-runtime-dependency-installation")
        ),
    ],
)
def test_slips_are_said_in_a_sentence_before_anything_starts(words, said, capsys, monkeypatch):
    monkeypatch.setattr(node_command, "program_path", lambda _: "/nonexistent")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["node", *(port if word == "PORT" else word for word in words)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_and_no_failure(option, capfd):
    assert main(["node", option]) == 0
    assert "version" in capfd.readouterr().out


def test_where_the_supernode_answers_is_read_as_flower_reads_it():
    parser = _parse_args_run_supernode()
    for words in ([], ["--host", "::1", "--port=9095", "--ssl-ca-certfile", "ca.crt"]):
        flower, found = parser.parse_args([*words, "--insecure"]), _parse([*words, "--insecure"])
        assert (found.host, found.port) == (flower.host, str(flower.port))
        assert found.ssl_ca_certfile == (flower.ssl_ca_certfile or "")
    known = {word for action in parser._actions for word in action.option_strings}
    assert {"--isolation", "--superexec-auth-secret-file", *_FILES} <= known
    assert "--allow-runtime-dependency-installation" in known
