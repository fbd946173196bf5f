"""Checks of a site before a run: its data and folders, the way to the server, and its key."""

import ssl
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from socket import gaierror
from typing import NamedTuple

import httpx
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fl_app.config.allowed_code import ALLOWED_CODE
from fl_app.devices.registry import fingerprint, short
from fl_app.devices.site.device_node import NodeConfig
from fl_app.devices.site.model_files import check_apps, check_cache, check_model_path
from fl_app.devices.tls import check_port, context_trusting
from fl_core.agreement.local_data import DATA
from fl_core.data.dataset import Dataset
from fl_core.data.folders import is_table
from fl_core.data.image_files import list_images
from fl_core.data.image_folder import decode_images
from fl_core.data.samples import Split
from fl_core.data.table_file import read_table
from fl_core.data.user_data import read_repeatable, read_user_part
from fl_core.flower.calls import ApiErrorCode, FleetHttpClient, FlowerError, NodeAuthHttpInterceptor
from fl_core.flower.keys import public_key_to_bytes
from fl_core.flower.messages import ActivateNodeRequest
from fl_core.proxies import proxy_for
from fl_core.text import one_line, printable, strip_and_compose
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

    @property
    def address(self) -> str:
        """Return the gate's HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_site(site: Site) -> list[Finding]:
    """Check a site, and make the folders for its model, its images and apps."""
    config, port = site.config, site.node_port
    checks: dict[str, Callable[[], str | None]] = {"data": partial(describe_data, config)}
    if config.path is not None and not is_table(config.path):
        checks["cache"] = check_cache
    checks["apps"] = check_apps
    checks["model-path"] = lambda: "none, so this site stores no model"
    if config.model_path is not None:
        checks["model-path"] = partial(check_model_path, config.model_path)
    if config.own_code:
        checks[ALLOWED_CODE] = partial(import_code, config.own_code)
    if port is not None:
        checks["port"] = partial(check_port, "127.0.0.1", str(port))
    checks["server"] = partial(reach_server, site)
    findings = [_finding(what, check) for what, check in checks.items()]
    if findings[-1].is_right:
        return [*findings, _finding("key", partial(_look_up_key, site))]
    reason = "not checked, because of the server: put that right first."
    return [*findings, Finding("key", False, reason)]


def _finding(what: str, check: Callable[[], str | None]) -> Finding:
    try:
        return Finding(what, True, check() or "can be used")
    except (ValueError, OSError, ImportError) as error:  # or an extra is missing
        return Finding(what, False, one_line(str(error), 600))


def describe_data(config: NodeConfig) -> str:
    """Read a site's data as a run would, and return how many samples each class has."""
    survey = config.survey()
    found: Split | Dataset
    if config.path is not None and is_table(config.path):
        table = read_table(config.path, config.label, config.target)
        train, test = table.labels[~table.is_test], table.labels[table.is_test]
    else:
        if config.path is not None:
            found = decode_images(list_images(config.path), config.path)
        else:
            read = partial(read_user_part, DATA)
            found = read_repeatable(DATA, config.data, read, "each message of a run")
        train, test = found.train_labels.numpy(), found.test_labels.numpy()
        if not survey.is_regression:
            names = np.array([*map(strip_and_compose, found.class_names)], object)
            train, test = names[train], names[test]
    if survey.is_regression:
        counts = f"{len(train)} + {len(test)}, {train.min():.4g} to {train.max():.4g}"
    else:
        trained, tested = Counter(train), Counter(test)
        counted = ((name, trained[name], tested[name]) for name in survey.class_names)
        counts = ", ".join(f"{printable(name)} {first} + {last}" for name, first, last in counted)
    return f"{one_line(str(survey), 600)}, for training + for testing: {counts}"


def import_code(paths: tuple[str, ...]) -> str:
    """Import the code that the site allows, and return its import paths."""
    for path in paths:
        load_user_code(ALLOWED_CODE, path)
    return f"may run here, and can be imported: {', '.join(paths)}"


def reach_server(site: Site) -> str:
    """Connect to the server as a SuperNode does, through any proxy that the environment names."""
    context = context_trusting(site.authority)
    proxy = proxy_for(site.host, site.port)
    way = f", through the proxy of {proxy[0]}" if proxy else ""
    try:
        with (
            httpx.Client(verify=context, timeout=_SECONDS) as client,
            client.stream("GET", f"https://{site.address}/") as response,
        ):
            tls: ssl.SSLObject = response.extensions["network_stream"].get_extra_info("ssl_object")
            shown = tls.getpeercert() or {}
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ValueError(_why_not_reached(site, error, proxy)) from error
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    return f"{site.address} answers{way}, and its certificate is valid until {until:%Y-%m-%d}"


def _why_not_reached(site: Site, error: Exception, proxy: tuple[str, str] | None) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate is refused ({cause.verify_message.rstrip('.')}): "
                "compare the name in --superlink, this machine's clock and "
                f"{site.authority} with those of the server."
            )
        if isinstance(cause, ssl.SSLError):
            proxy = None  # it leads to the server
        if isinstance(cause, gaierror) and proxy is None:
            return (
                f"no address is known for {site.host} ({cause.strerror}): correct --superlink, or "
                "this machine's name service."
            )
        cause = cause.__context__
    if proxy is not None:
        variable, url = proxy
        address = url.rpartition("//")[2].rpartition("@")[2]
        return (
            f"{variable} names the proxy {address}, which does not lead to {site.address} "
            f"({error}): correct it, or add {site.host} to no_proxy."
        )
    return (
        f"no gate answers at {site.address} ({error}): ask whether it runs there, and whether its "
        "port is open for this machine."
    )


def _look_up_key(site: Site) -> str:
    """Ask for an activation with an invalid interval, which changes nothing at the server.

    The SuperLink first looks for the key, and then refuses the request.
    """
    key = _private_key(site.key)
    asked = ActivateNodeRequest(
        public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=_NO_INTERVAL
    )
    shown = short(fingerprint(asked.public_key))
    try:
        with FleetHttpClient.from_server_address(
            site.address,
            insecure=False,
            root_certificates=site.authority.read_bytes(),
            interceptors=[NodeAuthHttpInterceptor(key, key.public_key())],
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
    reason = "it is not a private key"
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = str(error)
    raise ValueError(
        f"{path} cannot be used ({reason}): give the .key file that `fedkin certificates` made for "
        "this device."
    )
