"""The files of deploy/: what they must not do, and that the real programs accept what they say."""

import argparse
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from ipaddress import ip_address
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from flwr.common.config import parse_config_args
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode
from sqlalchemy import make_url

from fl_app.devices.certificates import make_certificates
from fl_app.devices.gate import gate_command as gate
from fl_app.devices.gate.application import FLEET_PATHS
from fl_app.devices.gate.callers import MOST_BYTES_IN_MEMORY
from fl_app.devices.site import node_command
from fl_app.devices.tls import parse_address
from tests.device_processes import https_client
from tests.nginx_process import DEPLOY, needs_nginx, nginx_running, write_configuration
from tests.processes import free_ports

SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
UNITS = ("superlink", "gate", "nginx", "supernode")
PROGRAMS = tuple(name for name in UNITS if name != "nginx")
DEVICE = {
    **{"SERVER": "fl.example.org:9092", "DEVICE_NAME": "berlin", "DATA_PATH": "/srv/my scans"},
    **{"MODEL_PATH": "/var/lib/fedkin/model.safetensors", "CREDENTIALS_DIRECTORY": "/run/c"},
}


def filled_in(text: str) -> str:
    """Replace ${NAME} and ${NAME:?what is missing} as a shell, Compose and systemd do."""
    return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda found: DEVICE[found[1]], text)


def read(words: list[str]) -> argparse.Namespace:
    """Return what the program of a command line makes of its other words."""
    program, *rest = words
    name = Path(program).name
    if name == "flower-superlink":
        return _parse_args_run_superlink().parse_args(rest)
    if (name, rest[0]) == ("fedkin", "node"):
        node_command._check_words(rest[1:], "")
        return _parse_args_run_supernode().parse_args(rest[1:])
    assert (name, rest[0]) == ("fedkin", "gate")
    parser = argparse.ArgumentParser()
    gate.add_command(parser.add_subparsers())
    return parser.parse_args(rest)


def compose_file(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return document


SERVER = compose_file("docker-compose.yml")
SERVICES = {**SERVER["services"], **compose_file("docker-compose.device.yml")["services"]}
CONFIGURATION = (DEPLOY / "nginx.conf").read_text(encoding="ascii")


def unit(name: str) -> dict[str, list[str]]:
    """Return the lines of a unit: key to values, in order."""
    text = (DEPLOY / f"fedkin-{name}.service").read_text(encoding="utf-8")
    found = defaultdict(list)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def command_of_service(name: str) -> argparse.Namespace:
    return read([filled_in(word) for word in SERVICES[name]["command"]])


def command_of_unit(name: str) -> argparse.Namespace:
    (line,) = unit(name)["ExecStart"]
    return read([filled_in(word) for word in shlex.split(line)])


def test_the_server_publishes_nginx_and_nothing_else():
    assert set(SERVICES) == set(UNITS)
    assert SERVICES["nginx"]["ports"] == ["9092:9092"]
    for name in PROGRAMS:
        assert not {"ports", "expose"} & set(SERVICES[name])
    for name in ("superlink", "nginx", "supernode"):
        assert "network_mode" not in SERVICES[name]
    assert SERVICES["superlink"]["networks"] == ["inside"]
    assert SERVICES["nginx"]["networks"] == ["inside", "outside"]
    assert SERVER["networks"]["inside"] == {"internal": True}
    # On its loopback, the gate reads devices' addresses from nginx.
    assert SERVICES["gate"]["network_mode"] == "service:nginx"


@pytest.mark.parametrize("command", [command_of_service, command_of_unit])
def test_nginx_finds_the_gate_which_only_its_machine_reaches(command):
    listen = command("gate").listen
    assert ip_address(parse_address(listen, "--listen")[0]).is_loopback
    assert f"server {listen};" in CONFIGURATION
    assert "listen 9092 ssl" in CONFIGURATION


def test_nginx_passes_the_paths_of_the_gate():
    groups = re.findall(r"location ~ \^/v1/fleet/\(([a-z|-]+)\)\$ \{", CONFIGURATION)
    names = [f"/v1/fleet/{name}".encode() for group in groups for name in group.split("|")]
    assert sorted(names) == sorted(FLEET_PATHS)


def words_of_service(certificates: Path, home: Path) -> list[str]:
    """Return nginx's command in its container, with other folders."""
    (mounted,) = SERVICES["nginx"]["configs"]
    assert mounted == {"source": "nginx.conf", "target": "/run/secrets/nginx.conf"}
    assert SERVER["configs"] == {"nginx.conf": {"file": "./nginx.conf"}}
    temporary, *_ = SERVICES["nginx"]["tmpfs"]
    paths = {mounted["target"]: str(certificates / "nginx.conf"), temporary: str(home)}
    command = SERVICES["nginx"]["command"]
    assert set(paths) <= set(command)
    return [paths.get(word, word) for word in command]


def words_of_unit(certificates: Path, home: Path) -> list[str]:
    """Return nginx's command in its unit, with other folders."""
    assert unit("nginx")["RuntimeDirectory"] == ["fedkin-nginx"]
    (line,) = unit("nginx")["ExecStart"]
    folders = {"CREDENTIALS_DIRECTORY": certificates, "RUNTIME_DIRECTORY": home}
    return [Template(word).substitute(folders) for word in shlex.split(line)]


@needs_nginx
@pytest.mark.slow
@pytest.mark.parametrize("words", [words_of_service, words_of_unit])
def test_nginx_starts_and_waits_for_the_gate(words, tmp_path):
    certificates, home = tmp_path / "certificates", tmp_path / "home"
    home.mkdir()
    make_certificates(certificates, ["localhost"], [])
    port, gate_port = free_ports(2)
    write_configuration(certificates, port, gate_port)
    with nginx_running(words(certificates, home), tmp_path / "log", port) as nginx:
        url = f"https://localhost:{port}/v1/fleet/pull-messages"
        with https_client(certificates) as client:
            assert client.post(url).status_code == 502
            assert client.get(url).status_code == 404
        assert (home / "nginx.pid").exists()
        assert "[warn]" not in nginx.text


RIGHTS = {
    **{"user": "10001:10001", "read_only": True, "cap_drop": ["ALL"]},
    **{"security_opt": ["no-new-privileges:true"], "restart": "unless-stopped"},
}


@pytest.mark.parametrize("name", UNITS)
def test_containers_have_few_rights_and_memory_and_log_are_bounded(name):
    """What a device sends, or an app needs, does not take the machine with it."""
    service = SERVICES[name]
    assert {key: service[key] for key in RIGHTS} == RIGHTS
    assert "privileged" not in service
    (limit,) = unit(name)["MemoryMax"]
    assert service["mem_limit"] == limit.lower()
    assert int(limit.removesuffix("G")) * 2**30 >= 2 * MOST_BYTES_IN_MEMORY
    # What starts other programs continues without the one that was killed.
    assert unit(name)["OOMPolicy"] == ([] if name in ("gate", "nginx") else ["continue"])
    if name in ("gate", "nginx"):
        assert unit(name)["LogRateLimitBurst"] == ["1000"]
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}


def test_containers_have_the_secrets_they_need_and_data_read_only():
    for name in ("superlink", "gate", "nginx"):
        assert SERVICES[name]["secrets"] == ["ca.crt", "server.crt", "server.key"]
    assert SERVICES["supernode"]["secrets"] == ["ca.crt", "device.key"]
    data, state = SERVICES["supernode"]["volumes"]
    assert filled_in(data) == "/srv/my scans:/srv/data:ro"
    assert state == "state:/var/lib/fedkin"
    for name in ("docker-compose.yml", "docker-compose.device.yml"):
        document = compose_file(name)
        files = {key: value["file"] for key, value in document["secrets"].items()}
        assert files == {key: f"./certificates/{key}" for key in files}
        used = {one for service in document["services"].values() for one in service["secrets"]}
        assert used == set(files)


def test_nothing_is_insecure_and_no_authority_is_deployed():
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        found = r"insecure|FLWR_TELEMETRY_ENABLED=1|ca\.key(?! to a safe place)"
        assert not re.search(found, text), path


@pytest.mark.parametrize("command", [command_of_service, command_of_unit])
def test_the_superlink_knows_its_devices_and_is_encrypted(command):
    options = command("superlink")
    assert options.enable_supernode_auth
    assert not options.insecure
    assert not options.runtime_dependency_install
    database = make_url(options.database)
    assert database.database.startswith("/var/lib/fedkin")
    assert database.query["plugin"] == "fedkin"
    names = [options.ssl_ca_certfile, options.ssl_certfile, options.ssl_keyfile]
    assert [Path(one).name for one in names] == ["ca.crt", "server.crt", "server.key"]


@pytest.mark.parametrize(
    ("command", "host"), [(command_of_service, "superlink"), (command_of_unit, "127.0.0.1")]
)
def test_the_gate_finds_the_superlink(command, host):
    """In containers it looks names up in nginx's network."""
    found = parse_address(command("gate").superlink, "--superlink")
    assert found == (host, command("superlink").port)
    # All addresses of the container: its only network is that of the gate.
    listens = "0.0.0.0" if command is command_of_service else host  # noqa: S104
    assert command("superlink").host == listens


@pytest.mark.parametrize(
    ("command", "data"), [(command_of_service, "/srv/data"), (command_of_unit, "/srv/my scans")]
)
def test_a_device_says_who_it_is(command, data):
    options = command("supernode")
    assert not options.insecure
    assert (options.superlink, options.host) == ("fl.example.org:9092", "127.0.0.1")
    assert Path(options.root_certificates).name == "ca.crt"
    assert Path(options.auth_supernode_private_key).name == "device.key"
    assert parse_config_args([options.node_config]) == {
        "name": "berlin",
        "data-path": data,
        "model-path": "/var/lib/fedkin/model.safetensors",
    }


@pytest.mark.parametrize("name", UNITS)
def test_units_have_few_rights_and_start_again(name):
    lines = unit(name)
    expected = {
        **{"User": "fedkin", "NoNewPrivileges": "yes", "ProtectSystem": "strict"},
        **{"PrivateTmp": "yes", "ProtectHome": "yes", "CapabilityBoundingSet": ""},
        **{"Restart": "on-failure", "UMask": "0077"},  # what is stored is for its account alone
    }
    assert {key: lines[key] for key in expected} == {
        key: [value] for key, value in expected.items()
    }
    credentials = {one.partition(":")[0] for one in lines["LoadCredential"]}
    used = set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/([\w.]+)", lines["ExecStart"][0]))
    # The gate and nginx read the folder.
    if name in ("gate", "nginx"):
        used |= {"ca.crt", "server.crt", "server.key"}
    assert credentials == used
    assert all(mode == "0700" for mode in lines["StateDirectoryMode"])


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    paths = []
    for name in UNITS:
        path = tmp_path / f"fedkin-{name}.service"
        text = (DEPLOY / path.name).read_text(encoding="utf-8")
        # The programs are not installed there on the machine that tests.
        path.write_text(re.sub(r"/opt/fedkin/bin/[\w-]+|/usr/sbin/nginx", "/bin/true", text))
        paths.append(path)

    def complaints() -> list[str]:
        """About our units; the machine's units may have faults, too."""
        words = [str(SYSTEMD_ANALYZE), "verify", *map(str, paths)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return [line for line in (done.stdout + done.stderr).splitlines() if "fedkin" in line]

    assert complaints() == []
    paths[0].write_text(paths[0].read_text().replace("RestartSec", "RestartSek"))
    assert "RestartSek" in "".join(complaints())  # and it would have said so
