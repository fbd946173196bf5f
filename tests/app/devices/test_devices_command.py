"""`fedkin devices` without processes: lists, revocation, and the check of a site."""

import errno
import re
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
from fl_app.devices.site.node_command import run_node
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
    assert (
        "2 keys are registered as berlin: a run accepts the first only, so revoke the other" in said
    )
    assert "1 without a name: no run accepts them. Revoke each by its key" in said
    until = datetime.now(UTC) + timedelta(days=365)
    assert f"server.crt expires on {until:%Y-%m-%d}\nca.crt expires on 20" in said
    superlink.nodes = nodes[1:2]
    assert main(words) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9


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
    twins = [found[0], found[0]._replace(name="rome")]
    with pytest.raises(ValueError, match=r"^2 devices have the name SHA256:.*: choose one by key"):
        find_device(twins, twins[0].key[:12])
    for called in ("SHA256:", "SHA256:…"):  # which is not even one of one
        with pytest.raises(ValueError, match=f"no device is called {called}"):
            find_device(found[:1], called)
    with pytest.raises(ValueError, match="no device is called "):
        find_device(found, "")


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
        ([], "--certificates certificates: ca.crt cannot be read"),
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


def test_a_folder_that_is_not_there(capsys):
    assert main(["devices", "--folder", "nowhere"]) == 2
    assert "--folder nowhere is not a folder" in capsys.readouterr().err


def test_a_superlink_that_is_not_there(certificates, tmp_path, capsys):
    words = ["--superlink", "127.0.0.1:1", "--certificates", str(certificates)]
    assert main(["devices", *words, "--folder", str(tmp_path)]) == 2
    assert "the SuperLink at 127.0.0.1:1 does not answer" in capsys.readouterr().err


# At a site.


@contextmanager
def listening(tls=None, says=b"hello"):
    """A server that accepts all connections and sends nothing useful; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                try:
                    with line if tls is None else tls.wrap_socket(line, server_side=True) as one:
                        one.sendall(says)
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
            Image.new("L", (28, 28)).save(folder / f"{number}.png")
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
        request = httpx.Request("POST", "https://localhost/v1/fleet/activate-node")
        response = httpx.Response(status, text=text, request=request)
        raise httpx.HTTPStatusError("no", request=request, response=response)

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
    counts = "grey, of each class for training + for testing: cat 4 + 1, dog 1 + 0"
    assert said["images"][1] == counts
    until = datetime.now(UTC) + timedelta(days=365)
    assert said["certificate"][1] == f"valid for 127.0.0.1 until {until:%Y-%m-%d}"
    assert said["key"][1] == f"{key(certificates, 'berlin')[:19]}… is registered"
    assert said["model-path"][1] == f"{model} can be written"
    assert said["cache"][1] == f"{tmp_path / 'cache'} can be written"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_port_of_a_supernode_is_checked_if_it_is_named(check):
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        tick, text = check(1, port=used)[1]["port"]
    assert (tick, "(in use): give each SuperNode of a machine another --port" in text) == (
        "✗",
        True,
    )
    assert check(1, port=used)[1]["port"] == ("✓", f"{used} is free for this site's SuperNode")
    assert "port" not in check(1)[1]


def test_a_home_that_cannot_be_written_is_known_before_a_run(check, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "file/flwr"))
    said = f"{tmp_path}/file/flwr cannot be written (Not a directory), where a SuperNode stores"
    status, found = check(1)
    assert status == 1
    assert found["apps"][0] == "✗"
    assert found["apps"][1].startswith(said)
    with pytest.raises(ValueError, match=re.escape(said)):
        run_node([])


def test_a_full_disk_is_known_before_a_run(check, images, monkeypatch):
    """An empty file has room on it."""

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
        assert "(No space left on device)" in text
    assert not list((images.parent / "stored").iterdir())


def test_a_key_is_asked_for_without_becoming_a_node(check, certificates):
    """The interval of its heartbeats is none that a SuperLink takes."""
    asked = []

    def note(client, request):
        asked.append(request)
        registered(client, request)

    with listening(context_for_devices(certificates)) as port:
        assert check(port, note)[0] == 0
    (request,) = asked
    assert request.public_key == pem(certificates, "berlin")
    assert request.heartbeat_interval == 0


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
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, answer)
    assert (status, said["key"][0]) == (1, "✗")
    assert wrong in said["key"][1]
    assert [what for what, (tick, _) in said.items() if tick == "✗"] == ["key"]


@pytest.mark.parametrize("content", [None, "no key"])
def test_a_file_that_is_no_key(check, certificates, tmp_path, content):
    path = tmp_path / "berlin.key"
    if content:
        path.write_text(content, encoding="ascii")
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, auth_supernode_private_key=path)
    assert status == 1
    assert "give th" in said["key"][1]
    assert str(path) in said["key"][1]


def wrong_certificates(folder, certificates, kind):
    """Return the server's folder and the site's ca.crt."""
    now = datetime.now(UTC)
    if kind == "expired":
        make_certificates(folder, ["localhost"], [], now=now - timedelta(days=400))
    elif kind == "too early":
        make_certificates(folder, ["localhost"], [], now=now + timedelta(days=2))
    else:
        make_certificates(folder, ["localhost"], [])
    return folder, (certificates if kind == "another authority" else folder) / "ca.crt"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("expired", "(certificate has expired): compare the name in --superlink"),
        ("too early", "(certificate is not yet valid)"),
        ("another authority", "(unable to get local issuer certificate)"),
    ],
)
def test_a_certificate_that_is_not_right(check, certificates, tmp_path, kind, wrong):
    folder, authority = wrong_certificates(tmp_path / "other", certificates, kind)
    with listening(context_for_devices(folder)) as port:
        status, said = check(port, root_certificates=authority)
    assert status == 1
    assert wrong in said["certificate"][1]
    assert said["key"] == ("✗", "not checked, because of the certificate: put that right first.")


def test_a_certificate_for_another_name(check, certificates, monkeypatch):
    known = socket.getaddrinfo

    def here(host, *rest, **more):
        return known("127.0.0.1" if host == "fl.example.org" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, superlink=f"fl.example.org:{port}")
    assert status == 1
    assert said["certificate"][1].startswith(
        "the server's certificate is refused (Hostname mismatch, certificate is not valid for "
        "'fl.example.org'): compare the name in --superlink, this machine's clock and "
    )


def test_what_is_no_server_of_ours(check, certificates, tmp_path):
    with listening() as port:
        status, said = check(port)
        assert status == 1
        assert "does not speak TLS" in said["certificate"][1]
    broken = tmp_path / "ca.crt"
    broken.write_text("no certificate", encoding="ascii")
    with listening(context_for_devices(certificates)) as port:
        for path in (broken, tmp_path / "missing.crt"):
            _, said = check(port, root_certificates=path)
            assert f"{path} cannot be read" in said["certificate"][1]
            assert said["certificate"][0] == "✗"


def test_a_server_that_is_not_reached(check, monkeypatch):
    status, said = check(1)
    assert status == 1
    assert "nothing answers at 127.0.0.1, port 1 (Connection refused)" in said["server"][1]
    assert said["certificate"][1].startswith("not checked, because of the server")
    assert said["key"][1].startswith("not checked, because of the server")

    def unknown_host(*args, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown_host)
    _, said = check(1, superlink="fl.example.org:9092")
    assert "no address is known for fl.example.org" in said["server"][1]


def test_a_name_that_no_server_can_have_is_said_as_one(check):
    status, said = check(1, superlink=f"{'a' * 64}.org:9092")
    assert status == 1
    assert f"no address is known for {'a' * 64}.org (" in said["server"][1]


def test_images_that_are_not_right(check, certificates, images):
    damaged = images / "cat/0.png"
    Image.effect_noise((28, 28), 50).save(damaged)
    damaged.write_bytes(damaged.read_bytes()[:-100])  # its head is whole
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port)
        assert (status, said["images"][0]) == (1, "✗")
        assert "1 of 6 images" in said["images"][1]
        assert "cat/0.png (the first: image file is truncated)" in said["images"][1]
        assert said["key"][0] == "✓"
        status, said = check(port, node_config=f'name="berlin" data-path="{images / "none"}"')
    assert status == 1
    assert "none is not a folder: give one with train/CLASS" in said["images"][1]


def test_a_model_that_cannot_be_kept(check, certificates, images):
    config = f'name="berlin" data-path="{images}" model-path="{images}"'
    with listening(context_for_devices(certificates)) as port:
        status, said = check(port, node_config=config)
    assert status == 1
    assert "which is a folder: give a file in it" in said["model-path"][1]
    config = f'name="berlin" data-path="{images}" model-path="/{"a" * 300}/model.safetensors"'
    assert (
        "cannot write there (File name too long): make"
        in check(1, node_config=config)[1]["model-path"][1]
    )


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        ({"superlink": "fl.example.org"}, "is not HOST:PORT"),
        ({"node_config": "name=berlin"}, "cannot be read: give key=value pairs"),
        ({"node_config": 'name="berlin"'}, "has no data-path"),
        (
            {"node_config": 'name="St  Mary" data-path="/x"'},
            'name is "St  Mary", but it must have at most',
        ),
        (
            {"node_config": f'name="{"x" * 101}" data-path="/x"'},
            "must have at most 100 visible characters",
        ),
        ({"node_config": 'name="berlin" data-path="scans"'}, "it must be absolute"),
        ({"node_config": 'name="a" data-path="~nosuchuser/x"'}, "~nosuchuser/x, but it must be a"),
        ({"node_config": 'name="a" data-path="/x" modelpath="/y"'}, "Did you mean model-path?"),
        ({"node_config": 'name="a" data-path="/x" lable="sick"'}, "has no lable. Did you mean la"),
    ],
)
def test_a_check_that_is_not_asked_for_rightly(check, other, wrong):
    status, said = check(1, **other)
    assert status == 2
    assert wrong in said["error"]
