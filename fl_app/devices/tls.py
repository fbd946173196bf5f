"""Addresses and TLS contexts of the gate and `fedkin devices`."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Read HOST:PORT.

    Examples
    --------
    >>> parse_address("[::1]:9092", "--listen")
    ('::1', 9092)
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    written = f"[{host}]:{port}" if host and ":" in host else f"{host}:{port}"
    if not host or not port or written != text.lower():
        raise ValueError(
            f"{option} {text!r} is not HOST:PORT: give for example 127.0.0.1:8000, "
            "fl.example.org:9092 or [::1]:9092."
        )
    return host, port


def context_for_devices(folder: Path) -> ssl.SSLContext:
    """Return the gate's TLS context, with server.crt, for TLS 1.2 or later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = _file(folder, "server.crt"), _file(folder, "server.key")
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{certificate} and {key} are not a certificate and its key: make new ones with "
            "`fedkin certificates`."
        ) from error
    return context


def context_to_superlink(folder: Path) -> ssl.SSLContext:
    """Return the TLS context for requests to the SuperLink, which trusts ca.crt alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority = _file(folder, "ca.crt")
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ValueError(
            f"{authority} is not a certificate: restore the one that `fedkin certificates` made."
        ) from error
    return context


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"--certificates {folder}: {name} cannot be read ({error.strerror}): give the folder "
            "with the files that `fedkin certificates` made for the server."
        ) from error
    return path
