"""HTTP proxies that the environment names: loopback never goes through one."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_log = logging.getLogger(__name__)


def bypass_proxies_on_loopback() -> None:
    """Add this machine to `no_proxy`, for this process and those that it starts.

    A SOCKS proxy is removed where the package socksio is missing: httpx, by which Flower calls,
    would then fail at any address.
    """
    proxies = getproxies_environment()
    exceptions = proxies.pop("no", "")
    for kind, url in proxies.items():
        if url.startswith("socks") and find_spec("socksio") is None:
            for name in (f"{kind}_proxy", f"{kind}_proxy".upper()):
                os.environ.pop(name, None)
            _log.warning(
                "%s_proxy names a SOCKS proxy, which is ignored: install socksio to use it", kind
            )
    if proxies and exceptions.strip() != "*":
        named = [one.strip() for one in exceptions.split(",") if one.strip()]
        whole = ",".join([*named, *(host for host in _LOOPBACK if host not in named)])
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = whole


def proxy_for(host: str, port: int) -> tuple[str, str] | None:
    """Return the variable and the proxy by which HTTPS reaches an address; None without one."""
    proxies = getproxies_environment()
    if proxy_bypass_environment(f"{host}:{port}", proxies):
        return None
    for kind in ("https", "all"):
        if url := proxies.get(kind):
            name = f"{kind}_proxy"
            return (name if os.environ.get(name) else name.upper()), url
    return None
