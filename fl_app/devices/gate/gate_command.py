"""`fedkin gate`."""

from __future__ import annotations

import argparse
import logging
import socket
from contextlib import suppress
from pathlib import Path

from fl_app.devices.tls import context_for_devices, context_trusting, parse_address

_LOOPBACK = ("127.0.0.1", "::1")

_log = logging.getLogger("fedkin.gate")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `gate` to the command line."""
    parser = commands.add_parser(
        "gate",
        help="let devices, and only devices, reach a SuperLink on this machine",
        description="Listen for devices with TLS and pass on to the SuperLink only those requests "
        "that SuperNodes need. Anyone who reaches the SuperLink can start apps on all devices: "
        "start it with --host 127.0.0.1. On a network, run nginx (deploy/nginx.conf) before the "
        "gate. Without nginx, use the gate on one machine or a trusted network only.",
    )
    parser.add_argument(
        "--certificates",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the folder with ca.crt, server.crt and server.key (see `fedkin certificates`)",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9093",
        metavar="HOST:PORT",
        help="where nginx, or without it devices, connect to (default: %(default)s)",
    )
    parser.add_argument(
        "--superlink",
        default="127.0.0.1:8000",
        metavar="HOST:PORT",
        help="where the SuperLink listens (default: %(default)s)",
    )
    parser.set_defaults(call=_run)


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    import asyncio  # noqa: PLC0415

    with suppress(KeyboardInterrupt):  # Ctrl-C or SIGTERM ends a gate
        asyncio.run(_serve(options.certificates, options.listen, options.superlink))
    return 0


async def _serve(folder: Path, listen: str, superlink: str) -> None:
    import httpx  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415

    from fl_app.devices.gate.application import Gate  # noqa: PLC0415

    host, port = parse_address(listen, "--listen")
    parse_address(superlink, "--superlink")
    for_devices, for_superlink = context_for_devices(folder), context_trusting(folder / "ca.crt")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ValueError(
            f"--listen {listen} cannot be used ({error.strerror}): give a free port of an address "
            "of this machine."
        ) from error
    timeout = httpx.Timeout(60.0, connect=5.0)
    # The SuperLink closes what is idle for 5 s; a connection must not be reused in that moment.
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=2.0)
    with listener:
        # No proxy of the environment comes between the gate and the SuperLink.
        async with httpx.AsyncClient(
            verify=for_superlink, timeout=timeout, limits=limits, trust_env=False
        ) as client:
            config = uvicorn.Config(
                Gate(superlink, client, lambda: server.should_exit),
                ssl_context_factory=lambda _config, _default: for_devices,
                http="h11",  # which limits the size of heads
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                proxy_headers=True,  # nginx on this machine names the device's address
                forwarded_allow_ips=",".join(_LOOPBACK),
                server_header=False,
                date_header=False,
                timeout_keep_alive=15,  # longer than SuperNodes keep idle connections, 5 s
                # With those to the SuperLink, fewer than the 1024 files that may usually be open.
                limit_concurrency=750,
                timeout_graceful_shutdown=10,
            )
            server = uvicorn.Server(config)
            _log.info("the gate listens on %s and passes devices on to %s", listen, superlink)
            if host not in (*_LOOPBACK, "localhost"):
                _log.warning(
                    "the gate limits no connections: on a network that you do not trust, let it "
                    "listen on 127.0.0.1, behind nginx with deploy/nginx.conf"
                )
            await server.serve(sockets=[listener])
