"""Certificates and keys: what is in them, who accepts them, and that none is lost or exposed."""

import argparse
import os
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fl_app.devices.certificates import make_certificates
from fl_app.devices.certificates_command import add_command
from fl_app.devices.tls import context_for_devices, context_trusting


def content_of(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder by its name in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake_hands(server: Path, client: Path, name: str) -> str | None:
    """Let a client with `client`'s authority connect to the server as `name`, in memory."""
    context = context_trusting(client / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = context.wrap_bio(down, up, server_hostname=name)
    there = context_for_devices(server).wrap_bio(up, down, server_side=True)
    waiting = [here, there]
    while waiting:
        for one in list(waiting):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(one)
    return here.version()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("made") / "certificates"
    make_certificates(path, ["fl.example.org", "192.0.2.10", "2001:db8::7"], ["berlin", "paris"])
    return path


@pytest.mark.parametrize(
    ("name", "length", "may_sign"), [("ca.crt", 0, True), ("server.crt", None, False)]
)
def test_the_authority_signs_servers_and_no_further_authorities(folder, name, length, may_sign):
    extensions = certificate(folder / name).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert usage.critical
    assert (constraints.value.ca, constraints.value.path_length) == (may_sign, length)
    assert usage.value.key_cert_sign == may_sign != usage.value.digital_signature


def test_the_server_serves_under_all_its_names(folder):
    extensions = certificate(folder / "server.crt").extensions
    purposes = list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    expected = "fl.example.org 192.0.2.10 2001:db8::7 localhost 127.0.0.1 ::1"
    assert " ".join(str(name.value) for name in names) == expected


@pytest.mark.parametrize("name", ["fl.example.org", "2001:db8::7"])
def test_a_strict_client_accepts_the_server_under_its_names(folder, name):
    assert shake_hands(folder, folder, name) == "TLSv1.3"


def test_a_client_refuses_another_name_another_authority_and_an_old_certificate(folder, tmp_path):
    make_certificates(tmp_path / "other", ["fl.example.org"], [])
    make_certificates(
        tmp_path / "old", ["fl.example.org"], [], now=datetime(2020, 1, 1, tzinfo=UTC)
    )
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(folder, folder, "evil.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(folder, tmp_path / "other", "fl.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        shake_hands(tmp_path / "old", tmp_path / "old", "fl.example.org")


def test_flower_reads_both_halves_of_a_device(folder):
    # A second of every process that collects tests, if it stood above.
    from flwr.supernode.cli.flower_supernode import (  # noqa: PLC0415
        _parse_args_run_supernode,
        _try_setup_client_authentication,
    )

    private, public = folder / "devices/paris.key", folder / "devices/paris.pub"
    words = ["--auth-supernode-private-key", str(private)]
    keys = _try_setup_client_authentication(_parse_args_run_supernode().parse_args(words))
    assert keys is not None
    assert public_key_to_bytes(keys[1]) == try_load_public_key(public)
    assert keys[1].curve.name == "secp384r1"
    assert public.read_text(encoding="ascii").split()[2] == "paris"


def test_keys_are_secret_from_their_first_moment(tmp_path, monkeypatch):
    """Even where a careless umask would leave new files open to all accounts."""
    seen = {}

    def watching(path, *arguments, really=os.open):
        handle = really(path, *arguments)
        seen[Path(path).name] = stat.S_IMODE(os.fstat(handle).st_mode)
        assert os.fstat(handle).st_size == 0
        return handle

    monkeypatch.setattr("fl_app.devices.certificates.os.open", watching)
    before = os.umask(0)
    try:
        make_certificates(tmp_path / "new", ["localhost"], ["berlin"])
    finally:
        os.umask(before)
    assert seen == {
        **{"ca.key": 0o600, "server.key": 0o600, "berlin.key": 0o600},
        **{"ca.crt": 0o644, "server.crt": 0o644, "berlin.pub": 0o644},
    }
    for folder in ("new", "new/devices"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_validity_is_ten_years_and_one_and_no_server_outlives_its_authority(tmp_path):
    make_certificates(tmp_path, ["localhost"], [], now=datetime(2026, 1, 1, tzinfo=UTC))
    server = certificate(tmp_path / "server.crt")
    assert server.not_valid_after_utc == datetime(2027, 1, 1, tzinfo=UTC)
    # An hour early, for clocks that are behind.
    assert server.not_valid_before_utc == datetime(2025, 12, 31, 23, tzinfo=UTC)
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"ca\.crt expired on 2036-01-01: move all files"):
        make_certificates(tmp_path, ["localhost"], [], now=datetime(2036, 1, 1, tzinfo=UTC))
    make_certificates(tmp_path, ["localhost"], [], now=datetime(2035, 6, 1, tzinfo=UTC))
    until = certificate(tmp_path / "server.crt").not_valid_after_utc
    assert until == datetime(2036, 1, 1, tzinfo=UTC)


def test_devices_are_added_without_the_authoritys_key(tmp_path):
    """It may lie in a safe by then."""
    make_certificates(tmp_path, ["localhost"], ["berlin"])
    (tmp_path / "ca.key").unlink()
    before = content_of(tmp_path)
    written = make_certificates(tmp_path, [], ["paris", "paris"])
    assert [path.name for path in written] == ["paris.key", "paris.pub"]
    after = content_of(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 2


@pytest.mark.parametrize(
    ("servers", "devices", "named"),
    [([], ["oslo", "berlin"], "berlin.key"), (["localhost"], ["oslo"], "server.key")],
)
def test_nothing_is_overwritten_and_nothing_is_written_beside_it(tmp_path, servers, devices, named):
    make_certificates(tmp_path, ["localhost"], ["berlin"])
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=rf"{named} exists already.*move it away"):
        make_certificates(tmp_path, servers, devices)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("failing", [1, 2, 6])
def test_a_full_disk_leaves_nothing_half_done(tmp_path, monkeypatch, failing):
    calls = []

    def full(*arguments, really=os.fdopen):
        calls.append(arguments)
        if len(calls) == failing:
            os.close(arguments[0])
            raise OSError(28, "No space left on device")
        return really(*arguments)

    monkeypatch.setattr("fl_app.devices.certificates.os.fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        make_certificates(tmp_path, ["localhost"], ["berlin"])
    assert content_of(tmp_path) == {}


@pytest.mark.parametrize("file", ["ca.key", "ca.crt"])
@pytest.mark.parametrize("content", ["another's", "rubbish", None])
def test_what_is_no_authority_makes_no_server(tmp_path, file, content):
    """Nor a second authority: devices with a new ca.crt would refuse the server."""
    for name in ("one", "two"):
        make_certificates(tmp_path / name, [], ["berlin"])
    (tmp_path / "one" / file).unlink()
    if content:
        made = (tmp_path / "two" / file).read_bytes() if content == "another's" else b"rubbish"
        (tmp_path / "one" / file).write_bytes(made)
    before = content_of(tmp_path)
    problem = "ca.key is not the key of ca.crt" if content == "another's" else ""
    with pytest.raises(ValueError, match=rf"has no usable authority \(.*{problem}"):
        make_certificates(tmp_path / "one", ["localhost"], [])
    assert content_of(tmp_path) == before


def test_names_that_are_no_devices_and_no_servers(tmp_path):
    for name in ("", "..", "../oslo", "a/b", "a b", "-x", ".x", "köln", "a\n", "x" * 65):
        with pytest.raises(ValueError, match="is not a valid device name"):
            make_certificates(tmp_path / "new", [], ["fine", name])
    for name in ("", "x.org:9092", "https://x", "a..b", "-a.org", "a_b", "*.x.org", "192.0.2.256"):
        with pytest.raises(ValueError, match="neither a host name nor an IP address"):
            make_certificates(tmp_path / "new", ["localhost", name], [])
    assert not (tmp_path / "new").exists()


def test_the_command_says_what_goes_where(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_command(parser.add_subparsers())
    words = ["certificates", str(tmp_path), "--server", "fl.example.org", "10.0.0.7"]
    options = parser.parse_args([*words, "--device", "berlin", "--device", "paris"])
    assert options.call(options) == 0
    said = capsys.readouterr().out
    expires = certificate(tmp_path / "server.crt").not_valid_after_utc
    assert f"server.crt expires on {expires:%Y-%m-%d}" in said
    assert "To device berlin: ca.crt and devices/berlin.key." in said
    assert "only to register the device: devices/paris.pub" in said
    assert "Do not store ca.key on the server or on a device" in said
