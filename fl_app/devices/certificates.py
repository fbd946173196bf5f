"""A private authority, the server's certificate, and the devices' keys."""

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3652
SERVER_DAYS = 365
# Certificates are valid an hour early, for devices whose clock is late.
_CLOCK_SKEW = timedelta(hours=1)
_ALWAYS_SERVER = ("localhost", "127.0.0.1", "::1")
_CURVE = ec.SECP384R1()

_Authority = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]
# If one of these files exists, the authority must exist, too.
_AFTER_AUTHORITY = ("ca.key", "ca.crt", "server.key", "server.crt", "devices")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", re.ASCII)


def make_certificates(
    folder: Path, servers: Sequence[str], devices: Sequence[str], *, now: datetime | None = None
) -> list[Path]:
    """Write certificates and keys into a folder, where none of them may exist; return their paths.

    The first call also makes the authority, `ca.key` and `ca.crt`. `servers` are host names and IP
    addresses of the server; if empty, no certificate of it is made. `now` has a time zone.
    """
    if not servers and not devices:
        raise ValueError("there is nothing to make: give a --server, a --device or both.")
    now = now or datetime.now(UTC)
    devices = list(dict.fromkeys(devices))
    for name in devices:
        if not _DEVICE_NAME.fullmatch(name):
            raise ValueError(
                f"--device {name!r} is not a valid device name: use up to 64 letters, digits, '.', "
                "'_' and '-', beginning with a letter or digit."
            )
    names = [_general_name(text) for text in dict.fromkeys((*servers, *_ALWAYS_SERVER))]
    made = {f"devices/{name}{end}": key for name in devices for end, key in _device_keys(name)}
    if servers or not (folder / "ca.crt").exists():
        authority = _read_authority(folder)
        if authority is None:
            authority = _new_authority(now)
            made["ca.key"], made["ca.crt"] = _private(authority[0]), _pem(authority[1])
        if servers:
            made["server.key"], made["server.crt"] = _server_certificate(authority, names, now)
    return _write(folder, made)


def _new_authority(now: datetime) -> _Authority:
    """Return an authority for ten years that may sign servers, and no other authorities."""
    key = ec.generate_private_key(_CURVE)
    until = now + timedelta(days=AUTHORITY_DAYS)
    name = _common_name("fedkin authority")
    builder = _certificate(name, name, key.public_key(), now, until, is_authority=True)
    return key, builder.sign(key, hashes.SHA384())


def _server_certificate(
    authority: _Authority, names: Sequence[x509.GeneralName], now: datetime
) -> tuple[bytes, bytes]:
    """Return the server's private key, and its certificate for a year, both as PEM."""
    authority_key, parent = authority
    end = parent.not_valid_after_utc
    if end <= now:
        raise ValueError(
            f"ca.crt expired on {end:%Y-%m-%d}: move all files of the folder away, make new ones, "
            "and send every device the new ca.crt."
        )
    key = ec.generate_private_key(_CURVE)
    subject, issuer = _common_name("fedkin server"), parent.subject
    until = min(end, now + timedelta(days=SERVER_DAYS))
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _certificate(subject, issuer, key.public_key(), now, until, is_authority=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    return _private(key), _pem(certificate)


def _device_keys(name: str) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    """Return a device's private and public key in OpenSSH's format, with their file endings."""
    key = ec.generate_private_key(_CURVE)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    public += f" {name}\n".encode("ascii")
    return (".key", _private(key, PrivateFormat.OpenSSH)), (".pub", public)


def expiry_date(path: Path) -> str:
    """Return the last day of a certificate, such as 2027-01-31."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    labels = text.removesuffix(".").split(".")
    is_number = labels[-1].isdigit()  # a mistyped address, such as 192.168.1.256
    if len(text) > 253 or is_number or not all(map(_HOST_LABEL.fullmatch, labels)):
        raise ValueError(
            f"--server {text!r} is neither a host name nor an IP address: give what devices "
            "connect to, without a port, such as fl.example.org or 192.0.2.10."
        )
    return x509.DNSName(text.removesuffix("."))


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _read_authority(folder: Path) -> _Authority | None:
    """Return the authority in a folder, or None if the folder has no files of this command."""
    if not any(os.path.lexists(folder / name) for name in _AFTER_AUTHORITY):
        return None
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and (
            key.public_key() == certificate.public_key()
        ):
            return key, certificate
        problem = "ca.key is not the key of ca.crt"
    except (OSError, ValueError, TypeError) as error:
        problem = str(error)
    raise ValueError(
        f"{folder} has no usable authority ({problem}): restore the ca.key and ca.crt that this "
        "command made, or name an empty folder."
    )


def _write(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write new files: all, or none if one exists or cannot be written."""
    for path in (folder / name for name in files):
        if os.path.lexists(path):
            raise ValueError(
                f"{path} exists already and is not overwritten: move it away if you want a new one."
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if any(name.startswith("devices/") for name in files):
        (folder / "devices").mkdir(mode=0o700, exist_ok=True)
    written: list[Path] = []
    try:
        for name, content in files.items():
            mode = 0o600 if name.endswith(".key") else 0o644
            # Exclusive, and with its mode from the start: no other account can read a key.
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(folder / name)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
    except BaseException:
        for path in written:
            path.unlink()
        raise
    return written
