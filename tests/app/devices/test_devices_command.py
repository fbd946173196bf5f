"""`fedkin devices` without processes: lists, revocation, and the check of a site."""

import errno
import socket
import threading
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from PIL import Image

from fl_app.cli import main
from fl_app.devices import registry
from fl_app.devices.certificates import make_certificates
from fl_app.devices.registry import find_device, fingerprint, last_clusters, list_devices
from fl_app.devices.site import check as site_check
from fl_app.devices.site import model_files
from fl_app.devices.tls import context_for_devices
from tests.report_data import write_results

LEFT = "2026-11-21T16:45:01+00:00"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["localhost"], ["berlin", "lyon", "oslo", "paris", "rome"])
    return folder


def pem(certificates, name):
    path = certificates / f"devices/{name}.pub"
    return public_key_to_bytes(load_ssh_public_key(path.read_bytes()))


def key(certificates, name):
    return fingerprint(pem(certificates, name))


def node(certificates, number, device, status, **known):
    public_key = pem(certificates, device)
    at = f"2026-11-20T00:00:0{number}+00:00"
    return NodeInfo(node_id=number, public_key=public_key, status=status, registered_at=at, **known)


@pytest.fixture
def nodes(certificates):
    """Oslo's key was exchanged for rome's; berlin's is registered again; lyon has no name."""
    return [
        node(certificates, 4, "paris", "registered", name="berlin"),
        node(certificates, 2, "berlin", "online", name="berlin", last_deactivated_at=LEFT),
        node(certificates, 3, "lyon", "offline", last_deactivated_at=LEFT),
        node(certificates, 1, "oslo", "unregistered", name="oslo", last_deactivated_at=LEFT),
        node(certificates, 5, "rome", "registered", name="oslo"),
    ]


class SuperLink:
    """A Control API with nodes."""

    def __init__(self, nodes):
        self.nodes, self.unregistered = nodes, []

    def ListNodes(self, request):  # noqa: N802
        return ListNodesResponse(nodes_info=self.nodes)

    def UnregisterNode(self, request):  # noqa: N802
        self.unregistered.append(request.node_id)


def test_devices_are_listed_by_name(certificates, nodes, tmp_path, monkeypatch, capsys):
    superlink = SuperLink(nodes)
    monkeypatch.setattr(registry, "control_client", lambda *_: nullcontext(superlink))
    write_summary(tmp_path, "one", [1, 0, -1])
    words = ["devices", "--folder", str(tmp_path), "--certificates", str(certificates)]
    assert main(words) == 0
    said = capsys.readouterr().out
    cells = ([cell.strip() for cell in line.strip("│").split("│")] for line in said.splitlines())
    listed = [one for one in cells if len(one) == 5]
    assert [[*row[:1], *row[2:]] for row in listed] == [
        ["berlin", "yes", "1", "2"],
        ["berlin", "never", "", "4"],
        ["oslo", "never", "", "5"],
        ["(none)", "last 2026-11-21 16:45 UTC", "", "3"],
    ]
    assert listed[0][1] == key(certificates, "berlin")[:19] + "…"
    first = key(certificates, "berlin")[:19]
    assert f"takes part in no run: its key was registered as berlin after key {first}…" in said
    assert said.count("takes part in no run: its key was registered without --name: make") == 1
    until = datetime.now(UTC) + timedelta(days=365)
    assert f"server.crt expires on {until:%Y-%m-%d}\nca.crt expires on 20" in said


def write_summary(folder, name, clusters, names=("berlin", "lyon", "gone")):
    def change(summary):
        for run in summary["runs"][:1]:
            run["clusters"] = clusters

    write_results(folder / f"results/{name}", clients=3, seeds=1, names=names, change=change)
    return folder / f"results/{name}/summary.json"


def test_the_clusters_are_those_of_the_last_run_on_devices(tmp_path, caplog):
    assert last_clusters(tmp_path) == ("", {})
    write_summary(tmp_path, "b", [0, 1, 0])
    last = write_summary(tmp_path, "a", [2, -1, 0])
    write_summary(tmp_path, "simulated", [0, 0, 0], names=None)
    (tmp_path / "results/folder/summary.json").mkdir(parents=True)
    bad = tmp_path / "results/bad/summary.json"
    bad.parent.mkdir()
    bad.write_text(last.read_text(encoding="utf-8").replace("[2, -1, 0]", "[0]"), encoding="utf-8")
    said = f"clusters: rcc-pfl, seed 0, {last}"
    assert last_clusters(tmp_path) == (said, {"berlin": 2, "gone": 0})
    assert sorted(message.partition(" (")[0] for message in caplog.messages) == [
        f"{bad} is not a valid result file",
        f"{tmp_path / 'results/folder/summary.json'} is not a valid result file",
    ]


def test_a_device_is_called_by_its_name_or_its_key(certificates, nodes):
    found = list_devices(SuperLink(nodes))
    lyon = key(certificates, "lyon")
    assert find_device(found, "oslo").node == 5
    assert find_device(found, lyon[:19] + "…").node == find_device(found, lyon).node == 3
    with pytest.raises(ValueError, match="no device is called tunis: `fedkin devices` lists"):
        find_device(found, "tunis")
    with pytest.raises(
        ValueError, match=r"^2 devices have the name berlin: choose one by key, SHA"
    ):
        find_device(found, "berlin")
    for called in ("SHA256:", "SHA256:…", ""):  # which is not even one of one
        with pytest.raises(ValueError, match=f"no device is called {called}"):
            find_device(found[:1], called)


def test_a_device_that_is_revoked_is_unregistered(certificates, nodes, monkeypatch, capsys):
    superlink = SuperLink(nodes)
    monkeypatch.setattr(registry, "control_client", lambda *_: nullcontext(superlink))
    assert main(["devices", "revoke", "oslo"]) == 0
    assert superlink.unregistered == [5]
    shown = key(certificates, "rome")[:19]
    assert capsys.readouterr().out.startswith(f"key {shown}… is not registered any more")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--superlink", "x"], "--superlink 'x' is not HOST:PORT"),
        ([], "certificates/ca.crt cannot be used as the authority's certificate ([Errno 2]"),
    ],
)
@pytest.mark.parametrize("command", [[], ["revoke", "berlin"]])
def test_wrong_usage(command, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["devices", *command, *words]) == 2
    assert said in capsys.readouterr().err
    # Before the command, too.
    assert main(["devices", *words, *command]) == 2
    assert said in capsys.readouterr().err


def test_a_superlink_that_is_not_there(certificates, tmp_path, capsys):
    words = ["--superlink", "127.0.0.1:1", "--certificates", str(certificates)]
    assert main(["devices", *words, "--folder", str(tmp_path)]) == 2
    assert "the SuperLink at 127.0.0.1:1 does not answer" in capsys.readouterr().err
    assert main(["devices", "--folder", "nowhere"]) == 2
    assert "--folder nowhere is not a folder" in capsys.readouterr().err


# At a site.


@contextmanager
def listening(tls=None):
    """A server that answers all connections as the gate does a stranger; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                try:
                    with line if tls is None else tls.wrap_socket(line, server_side=True) as one:
                        one.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                        one.recv(4096)
                except OSError:
                    pass

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def images(tmp_path):
    for name, count in (("cat", 5), ("dog", 1)):
        folder = tmp_path / "scans" / name
        folder.mkdir(parents=True)
        for number in range(count):
            Image.new("L", (28, 28), number).save(folder / f"{number}.png")
    return tmp_path / "scans"


@pytest.fixture
def check(certificates, images, monkeypatch, capsys):
    """Call `fedkin devices check`; return its status and what is said of each thing."""
    monkeypatch.setenv("FL_CACHE_DIR", str(images.parent / "cache"))
    monkeypatch.setenv("FLWR_HOME", str(images.parent / "flwr"))

    def call(gate_port, said=registered, **other):
        monkeypatch.setattr(site_check.FleetHttpClient, "ActivateNode", said)
        options = {
            "superlink": f"127.0.0.1:{gate_port}",
            "root_certificates": certificates / "ca.crt",
            "auth_supernode_private_key": certificates / "devices/berlin.key",
            "node_config": f'name="berlin" data-path="{images}"',
        } | other
        words = [
            word
            for key, value in options.items()
            for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        status = main(["devices", "check", *words])
        printed = capsys.readouterr()
        if status == 2:
            return status, {"error": printed.err}
        lines = [line.split(maxsplit=2) for line in printed.out.splitlines()]
        return status, {what: (tick, text) for tick, what, text in lines}

    return call


def answering(status, text=""):
    def answer(client, request):
        response = httpx.Response(status, text=text)
        raise httpx.HTTPStatusError("no", request=None, response=response)

    return answer


registered = answering(400, '{"code": 2003, "detail": "no such interval"}')
unknown = answering(400, '{"code": 2004, "detail": "no such node"}')


def test_a_site_that_is_ready(check, certificates, images, tmp_path):
    model = tmp_path / "models/model.safetensors"
    config = f'name="berlin" data-path="{images}" model-path="{model}"'
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, node_config=config)
    assert status == 0
    assert {tick for tick, _ in said.values()} == {"✓"}
    assert list(said) == ["data", "cache", "apps", "model-path", "server", "key"]
    counts = "grey images in folders, for training + for testing: cat 4 + 1, dog 1 + 0"
    assert said["data"][1] == counts
    until = datetime.now(UTC) + timedelta(days=365)
    answers = f"127.0.0.1:{port} answers, and its certificate is valid until {until:%Y-%m-%d}"
    assert said["server"][1] == answers
    assert said["key"][1] == f"{key(certificates, 'berlin')[:19]}… is registered"
    assert said["model-path"][1] == said["cache"][1] == "can be used"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_port_of_a_supernode_is_checked_if_it_is_named(check):
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        tick, text = check(1, port=used)[1]["port"]
    assert (tick, "(in use): give each SuperNode of a machine" in text) == ("✗", True)
    assert check(1, port=used)[1]["port"] == ("✓", "can be used")


def test_what_cannot_be_written_is_known_before_a_run(check, images, monkeypatch):
    """On a full disk, an empty file has room."""
    for model, said in (
        (images, "which is a folder: give a file in it"),
        (f"/{'a' * 300}/model.safetensors", "cannot write there (File name too long): make"),
    ):
        config = f'name="berlin" data-path="{images}" model-path="{model}"'
        assert said in check(1, node_config=config)[1]["model-path"][1]

    def full(dir):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(model_files, "TemporaryFile", full)
    model = f"{images.parent}/stored/model.safetensors"
    config = f'name="berlin" data-path="{images}" model-path="{model}"'
    status, said = check(1, node_config=config)
    assert status == 1
    for what in ("cache", "apps", "model-path"):
        tick, text = said[what]
        assert tick == "✗"
        assert "No space left on device" in text
    assert not list((images.parent / "stored").iterdir())


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (unknown, "is not registered: send the public key, the .pub file made with berlin.key"),
        (answering(401), "set its clock"),
        (answering(503), "answers 503, which does not show"),
        (lambda client, request: None, "answers 200"),
    ],
    ids=["unknown", "clock", "busy", "success"],
)
def test_a_key_that_is_not_known(check, certificates, answer, wrong):
    """It is asked for by an interval of heartbeats that no SuperLink accepts."""
    asked = []

    def note(client, request):
        asked.append((request.public_key, request.heartbeat_interval))
        answer(client, request)

    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, note)
    assert asked == [(pem(certificates, "berlin"), 0)]
    assert (status, said["key"][0]) == (1, "✗")
    assert wrong in said["key"][1]
    assert [what for what, (tick, _) in said.items() if tick == "✗"] == ["key"]


@pytest.mark.parametrize(
    ("days", "wrong"),
    [
        (-400, "(certificate has expired): compare the name in --superlink, this machine's clo"),
        (2, "(certificate is not yet valid)"),
        (0, "(unable to get local issuer certificate)"),
    ],
)
def test_a_certificate_that_is_not_right(check, certificates, tmp_path, days, wrong):
    folder = tmp_path / "other"
    make_certificates(folder, ["localhost"], [], now=datetime.now(UTC) + timedelta(days=days))
    authority = (folder if days else certificates) / "ca.crt"
    with listening(context_for_devices(folder)) as port:
        status, said = check(port, root_certificates=authority)
    assert status == 1
    assert wrong in said["server"][1]
    assert said["key"] == ("✗", "not checked, because of the server: put that right first.")


def unknown_host(*_names, **_options):
    raise socket.gaierror(-2, "Name or service not known")


def test_a_server_that_is_not_reached_and_files_that_are_no_use(
    check, certificates, tmp_path, monkeypatch
):
    (tmp_path / "broken").write_text("nothing of ours", encoding="ascii")
    with listening() as port:
        assert f"no gate answers at 127.0.0.1:{port} (" in check(port)[1]["server"][1]
    assert "no gate answers at 127.0.0.1:1 ([Errno 111] Conn" in check(1)[1]["server"][1]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", unknown_host)
        said = check(1, superlink="fl.example.org:9092")[1]
    assert "no address is known for fl.example.org (Name or" in said["server"][1]
    with listening(context_for_devices(certificates)) as port:
        for path in (tmp_path / "broken", tmp_path / "missing"):
            said = check(port, root_certificates=path)[1]["server"]
            assert (said[0], f"{path} cannot be used" in said[1]) == ("✗", True)
            said = check(port, auth_supernode_private_key=path)[1]["key"]
            assert (said[0], f"{path} cannot be used" in said[1]) == ("✗", True)


def test_images_that_are_not_right(check, certificates, images):
    damaged = images / "cat/0.png"
    Image.effect_noise((28, 28), 50).save(damaged)
    damaged.write_bytes(damaged.read_bytes()[:-100])  # its head is whole
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port)
        assert (status, said["data"][0]) == (1, "✗")
        assert "1 of 5 images" in said["data"][1]
        assert "cat/0.png (the first: image file is truncated)" in said["data"][1]
        assert said["key"][0] == "✓"
        status, said = check(port, node_config=f'name="berlin" data-path="{images / "none"}"')
    assert status == 1
    assert "none is not a folder: give one with train/CLASS" in said["data"][1]


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        ({"superlink": "fl.example.org"}, "is not HOST:PORT"),
        ({"node_config": "name=berlin"}, "cannot be read: give key=value pairs"),
        ({"node_config": 'name="berlin"'}, "either data-path or data: start its SuperNode with"),
        ({"node_config": 'name="St  Mary" data-path="/x"'}, 'name is "St  Mary", but it must have'),
        ({"node_config": f'name="{"x" * 101}" data-path="/x"'}, "at most 100 visible characters"),
        ({"node_config": 'name="berlin" data-path="scans"'}, "it must be absolute"),
        ({"node_config": 'name="a" data-path="~nosuchuser/x"'}, "~nosuchuser/x, but it must be a"),
        ({"node_config": 'name="a" data-path="/x" modelpath="/y"'}, "Did you mean model-path?"),
    ],
)
def test_a_check_that_is_not_asked_for_rightly(check, other, wrong):
    status, said = check(1, **other)
    assert status == 2
    assert wrong in said["error"]
