"""Checks of a site before a run: its data and folders, the way to the server, and its key."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from numpy.typing import NDArray

from fl_app.config.allowed_code import ALLOWED_CODE
from fl_app.devices.registry import fingerprint, short
from fl_app.devices.site.device_node import NodeConfig
from fl_app.devices.site.model_files import check_apps, check_cache, check_model_path
from fl_app.devices.site.node_command import check_port
from fl_core.agreement.local_data import DATA, survey_images, survey_of, survey_table
from fl_core.data.folders import is_table
from fl_core.data.image_files import hold_out, list_images
from fl_core.data.image_folder import for_each_image
from fl_core.data.samples import described, grey_or_colour
from fl_core.data.settings import AUTO_TARGET
from fl_core.data.table_file import read_table
from fl_core.data.user_data import read_repeatable, read_user_part
from fl_core.flower.calls import (
    ApiErrorCode,
    FleetHttpClient,
    FlowerError,
    NodeAuthHttpInterceptor,
)
from fl_core.flower.keys import public_key_to_bytes
from fl_core.flower.messages import ActivateNodeRequest
from fl_core.proxies import proxy_for
from fl_core.text import listed, one_line, printable
from fl_core.user_code import load_user_code

_SECONDS = 10.0  # for which the server may be silent
_NO_INTERVAL = 0.0  # seconds between heartbeats, which the SuperLink refuses


class Finding(NamedTuple):
    """The result of one check."""

    what: str  # what was checked
    is_right: bool
    said: str  # what was found, or what is wrong and what to do


class Site(NamedTuple):
    """The options of a site's SuperNode."""

    host: str  # of the gate
    port: int  # of the gate
    authority: Path  # --root-certificates
    key: Path  # --auth-supernode-private-key
    config: NodeConfig  # --node-config
    node_port: int | None = None  # --port


def check_site(site: Site) -> list[Finding]:
    """Check a site, and return a finding for each check.

    Nothing changes but that the folders for its model, its images and apps are made.
    """
    config, path = site.config, site.config.path
    checks: list[tuple[str, Callable[[], str]]] = []
    if path is None:
        checks.append((DATA, lambda: describe_samples(config.data)))
    elif is_table(path):
        checks.append(("table", lambda: describe_table(path, config.label, config.target)))
    else:
        checks.append(("images", lambda: describe_images(path)))
        checks.append(("cache", lambda: f"{check_cache()} can be written"))
    checks += [
        ("apps", lambda: f"{check_apps()} can be written"),
        ("model-path", lambda: _check_model(config.model_path)),
    ]
    if config.own_code:
        checks.append((ALLOWED_CODE, lambda: import_code(config.own_code)))
    if (port := site.node_port) is not None:
        checks.append(("port", lambda: _check_own_port(port)))
    findings = [_finding(what, check) for what, check in checks]
    failed = ""
    for what, reach in (
        ("server", _server_reached),
        ("certificate", _certificate_accepted),
        ("key", _key_registered),
    ):
        if failed:
            reason = f"not checked, because of the {failed}: put that right first."
            findings.append(Finding(what, False, reason))
        else:
            findings.append(_finding(what, partial(reach, site)))
            failed = "" if findings[-1].is_right else what
    return findings


def _finding(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, check())
    except (ValueError, OSError, ImportError) as error:  # or an extra is missing
        return Finding(what, False, one_line(str(error), 600))


def describe_images(path: Path) -> str:
    """Decode every image as a run would, and return how many each class has."""
    survey = survey_images(path)
    files = hold_out(list_images(path))
    for_each_image(files.all_images(), path, lambda image, _: image.load() and None)
    counts = ((name, len(of), len(files.test.get(name, ()))) for name, of in files.train.items())
    return f"{grey_or_colour(survey.sample_shape[0])}, {_counted(counts)}"


def describe_table(path: Path, label: str, target: str = AUTO_TARGET) -> str:
    """Read a table as a run would, and return its columns, and how many rows each class has."""
    survey, table = survey_table(path, label, target), read_table(path, label, target)
    columns = f"{len(survey.columns)} columns ({printable(listed([*survey.columns], 20, ', '))})"
    if survey.is_regression:
        trained, tested = table.labels[~table.is_test], table.labels[table.is_test]
        return f"{columns}, {_numbers(table.label, trained, tested)}"
    train, test = (Counter(table.labels[part]) for part in (~table.is_test, table.is_test))
    return f"{columns}, {_counted((name, train[name], test[name]) for name in survey.class_names)}"


def describe_samples(path: str) -> str:
    """Call the site's function as a run would, and return how many samples each class has."""
    found = read_repeatable(DATA, path, partial(read_user_part, DATA), "each message of a run")
    survey = survey_of(found)
    kind = described(survey.sample_shape, is_float=survey.is_float)
    if found.is_regression:
        labels = found.train_labels.numpy(), found.test_labels.numpy()
        return f"{kind}, {_numbers(found.class_names[0], *labels)}"
    train, test = (
        labels.bincount(minlength=found.num_classes).tolist()
        for labels in (found.train_labels, found.test_labels)
    )
    return f"{kind}, {_counted(zip(found.class_names, train, test, strict=True))}"


def _counted(classes: Iterable[tuple[str, int, int]]) -> str:
    counts = ", ".join(f"{printable(name)} {train} + {test}" for name, train, test in classes)
    return f"of each class for training + for testing: {counts}"


def _numbers(name: str, trained: NDArray[Any], tested: NDArray[Any]) -> str:
    counts = f"for training + for testing: {len(trained)} + {len(tested)}"
    number = f"{printable(name)}, {trained.min():.4g} to {trained.max():.4g}"
    return f"{counts}, with a number to predict: {number}"


def import_code(paths: tuple[str, ...]) -> str:
    """Import the code that the site allows, and return its import paths."""
    for path in paths:
        load_user_code(ALLOWED_CODE, path)
    return f"may run here, and can be imported: {', '.join(paths)}"


def _check_model(path: Path | None) -> str:
    if path is None:
        return "none, so this site stores no model"
    check_model_path(path)
    return f"{path} can be written"


def _check_own_port(port: int) -> str:
    check_port("127.0.0.1", str(port))
    return f"{port} is free for this site's SuperNode"


def _connect(site: Site) -> socket.socket:
    """Connect to the server as a SuperNode does: through a proxy, if the environment names one."""
    if (found := proxy_for(site.host, site.port)) is None:
        return socket.create_connection((site.host, site.port), timeout=_SECONDS)
    variable, url = found
    proxy = urlsplit(url if "//" in url else f"http://{url}")
    headers = {}
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(login).decode('ascii')}"
    try:
        line = HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=_SECONDS)
        line.set_tunnel(site.host, site.port, headers)
        line.connect()
    except (OSError, HTTPException, ValueError) as error:
        raise ValueError(
            f"{variable} names the proxy {proxy.netloc.rpartition('@')[2]}, which does not lead to "
            f"{site.host}:{site.port} ({error}): correct it, or add {site.host} to no_proxy."
        ) from error
    tunnel: socket.socket = line.sock
    return tunnel


def _server_reached(site: Site) -> str:
    try:
        with _connect(site) as line:
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
            "whether the gate runs there, and whether its port is open for this machine."
        ) from error
    through = proxy_for(site.host, site.port)
    way = f"through the proxy {address} of {through[0]}" if through else address
    return f"{site.host}:{site.port} answers ({way})"


def _certificate_accepted(site: Site) -> str:
    context = ssl.create_default_context(cadata=_authority(site.authority))
    try:
        with (
            _connect(site) as line,
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
    """Ask for an activation with an invalid interval, which changes nothing at the server.

    The SuperLink first looks for the key, and then refuses the request.
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
        raise ValueError(f"the server does not answer ({error}): try again.") from error
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
    raise ValueError(
        f"the server answers {status}, which does not show whether the key is registered: try "
        "again, or ask those who run the server."
    )


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): give this device's .key file."
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{path} is not a device's private key: give the .key file that `fedkin certificates` "
            "made for it."
        )
    return key
