"""Addresses and TLS contexts of the gate, `fedkin devices` and the check of a site."""

import errno
import socket
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


def check_port(host: str, port: str) -> None:
    """Refuse an address at which a SuperNode cannot listen for its machine's processes."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, int(port)))
    except (OSError, OverflowError, ValueError) as error:
        is_used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise ValueError(
            f"no SuperNode can listen at --host {host} --port {port} "
            f"({'in use' if is_used else error}): give each SuperNode of a machine another --port, "
            "1 to 65535, and leave --host out."
        ) from error


def context_for_devices(folder: Path) -> ssl.SSLContext:
    """Return the gate's TLS context, with server.crt, for TLS 1.2 or later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = folder / "server.crt", folder / "server.key"
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl's errors are OSErrors
        raise ValueError(
            f"{certificate} and {key} cannot be used as a certificate and its key ({error}): give "
            "the folder with the files that `fedkin certificates` made for the server."
        ) from error
    return context


def context_trusting(authority: Path) -> ssl.SSLContext:
    """Return the TLS context for requests to a server that has a certificate of `authority`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(authority)
    except OSError as error:  # ssl's errors, too
        raise ValueError(
            f"{authority} cannot be used as the authority's certificate ({error}): give the "
            "ca.crt that `fedkin certificates` made."
        ) from error
    return context
