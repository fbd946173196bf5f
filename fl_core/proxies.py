"""HTTP proxies that the environment names: loopback never goes through one."""

import os
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def bypass_proxies_on_loopback() -> None:
    """Add this machine to `no_proxy`, for this process and those that it starts."""
    proxies = getproxies_environment()
    exceptions = proxies.pop("no", "")
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
