"""Whether a site is ready for a run: its data, the way to the server, and its key."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fl_app.config.allowed_code import OWN_CODE
from fl_app.devices.names import fingerprint, short
from fl_app.devices.site.client import NodeConfig
from fl_app.devices.site.data_check import images_found, samples_found, table_found
from fl_app.devices.site.model_files import check_apps, check_cache, check_model_path
from fl_core.agreement.local_samples import DATA
from fl_core.data.folders import is_table
from fl_core.flower.calls import (
    ApiErrorCode,
    FleetHttpClient,
    FlowerError,
    NodeAuthHttpInterceptor,
)
from fl_core.flower.keys import public_key_to_bytes
from fl_core.flower.messages import ActivateNodeRequest
from fl_core.text import one_line
from fl_core.user_code import load_own

_SECONDS = 10.0  # for which the server may be silent
_NO_INTERVAL = 0.0  # seconds: no SuperNode's


class Finding(NamedTuple):
    """What was found out about one thing.

    Attributes
    ----------
    what : str
        The thing.
    is_right : bool
    said : str
        What was found, or what is wrong and what to do about it.
    """

    what: str
    is_right: bool
    said: str


class Site(NamedTuple):
    """What a SuperNode is started with.

    Attributes
    ----------
    host, port : str, int
        Of the gate.
    authority, key : Path
        Its `--root-certificates` and its `--auth-supernode-private-key`.
    own : NodeConfig
        Its `--node-config`.
    """

    host: str
    port: int
    authority: Path
    key: Path
    own: NodeConfig


def check_site(site: Site) -> list[Finding]:
    """List what is right and wrong at a site; make only the folders for its model and its images.

    What cannot be checked because of something else is wrong, too.
    """
    path = site.own.path
    findings = [
        _data(site.own),
        *(
            [_finding("cache", lambda: f"{check_cache()} can be written")]
            if path is not None and not is_table(path)
            else []
        ),
        _finding("apps", lambda: f"{check_apps()} can be written"),
        _finding("model-path", lambda: _model_kept(site.own.model_path)),
        *([_finding(OWN_CODE, lambda: code_found(site.own.own_code))] if site.own.own_code else []),
        _finding("server", lambda: _server_reached(site)),
    ]
    findings.append(_if(findings[-1], "certificate", partial(_certificate_accepted, site)))
    findings.append(_if(findings[-1], "key", partial(_key_registered, site)))
    return findings


def _finding(what: str, found: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, found())
    except (ValueError, OSError, ImportError) as error:  # or an extra is missing
        return Finding(what, False, one_line(str(error), 600))


def _data(own: NodeConfig) -> Finding:
    path = own.path
    if path is None:
        return _finding(DATA, lambda: samples_found(own.data))
    if is_table(path):
        return _finding("table", lambda: table_found(path, own.label, own.target))
    return _finding("images", lambda: images_found(path))


def _if(before: Finding, what: str, found: Callable[[], str]) -> Finding:
    if before.is_right:
        return _finding(what, found)
    return Finding(what, False, f"not checked, because of the {before.what}: put that right first.")


def code_found(paths: tuple[str, ...]) -> str:
    """Import the code that the site allows, and return which it is."""
    for path in paths:
        load_own(OWN_CODE, path)
    return f"may run here, and can be imported: {', '.join(paths)}"


def _model_kept(path: Path | None) -> str:
    """Return where the model will be kept."""
    if path is None:
        return "none, so this site keeps no model"
    check_model_path(path)
    return f"{path} can be written"


def _server_reached(site: Site) -> str:
    """Return at which address the server answers."""
    try:
        with socket.create_connection((site.host, site.port), timeout=_SECONDS) as line:
            address = line.getpeername()[0]
    except (socket.gaierror, UnicodeError) as error:  # or a part of it is too long
        reason = getattr(error, "strerror", error)
        raise ValueError(
            f"no address is known for {site.host} ({reason}): correct --superlink, or this "
            "machine's name service."
        ) from error
    except OSError as error:
        raise ValueError(
            f"nothing answers at {site.host}, port {site.port} ({error.strerror or error}): ask "
            "whether the gate runs there and its port is open for this machine."
        ) from error
    return f"{site.host}:{site.port} answers ({address})"


def _certificate_accepted(site: Site) -> str:
    """Return until when the server's certificate is valid."""
    context = ssl.create_default_context(cadata=_authority(site.authority))
    try:
        with (
            socket.create_connection((site.host, site.port), timeout=_SECONDS) as line,
            context.wrap_socket(line, server_hostname=site.host) as secure,
        ):
            shown = secure.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        raise ValueError(
            f"the server's certificate is refused ({error.verify_message.rstrip('.')}): compare "
            f"the name in --superlink, this machine's clock and {site.authority} with those of "
            "the server."
        ) from error
    except OSError as error:
        raise ValueError(
            f"{site.host}, port {site.port}, does not speak TLS ({error.strerror or error}): name "
            "the gate's port in --superlink."
        ) from error
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    return f"valid for {site.host} until {until:%Y-%m-%d}"


def _authority(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError) as error:  # ssl's errors are OSErrors
        reason = getattr(error, "strerror", None) or "it is not a certificate"
        raise ValueError(
            f"{path} cannot be read ({reason}): get ca.crt from those who run the server."
        ) from error
    return text


def _key_registered(site: Site) -> str:
    """Return the fingerprint of the device's key, which is registered at the server.

    Nothing changes there: the SuperLink first looks for the key, and then refuses the request.
    """
    key = _private_key(site.key)
    public = key.public_key()
    host = f"[{site.host}]" if ":" in site.host else site.host
    asked = ActivateNodeRequest(
        public_key=public_key_to_bytes(public), heartbeat_interval=_NO_INTERVAL
    )
    shown = short(fingerprint(asked.public_key))
    try:
        with FleetHttpClient.from_server_address(
            f"{host}:{site.port}",
            insecure=False,
            root_certificates=site.authority.read_bytes(),
            interceptors=[NodeAuthHttpInterceptor(key, public)],
        ) as client:
            client.ActivateNode(asked)
        status, code = httpx.codes.OK.value, 0
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        status, code = error.response.status_code, said.code if said else 0
    except httpx.TransportError as error:
        raise ValueError(f"the server does not say ({error}): try again.") from error
    if code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
        return f"{shown} is registered"
    if code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        raise ValueError(
            f"{shown} is not registered: send the public key, the .pub file made with "
            f"{site.key.name}, to those who run the server."
        )
    if status == httpx.codes.UNAUTHORIZED:
        raise ValueError(
            "the server refuses this machine's signature: set its clock, which may be five minutes "
            "slow or five seconds fast at most."
        )
    raise ValueError(f"the server does not say, but answers {status}: try again, or ask them.")


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): name this device's .key file."
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{path} is not a device's private key: name the .key file that `fedkin certificates` "
            "made for it."
        )
    return key
