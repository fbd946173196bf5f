"""`fedkin devices check`: whether a site is ready to take part in a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fl_app.devices.tls import parse_address


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `check` to the subcommands of `fedkin devices`."""
    check = commands.add_parser(
        "check",
        help="check a site before a run: data, server, certificate, key",
        description="At a site, with the options of its SuperNode: read its data, reach the "
        "server, check its certificate, and ask whether this device's key is registered. The exit "
        "status is 1 if anything is wrong.",
    )
    check.add_argument("--superlink", required=True, metavar="HOST:PORT", help="the gate")
    for option, metavar, what in (
        ("--root-certificates", "ca.crt", "the authority's certificate"),
        ("--auth-supernode-private-key", "NAME.key", "this device's key"),
    ):
        check.add_argument(option, type=Path, required=True, metavar=metavar, help=what)
    check.add_argument(
        "--node-config",
        required=True,
        metavar="KEYS",
        help='for example \'name="berlin" data-path="/srv/scans"\'',
    )
    check.add_argument(
        "--port",
        type=int,
        help="the SuperNode's port on this machine, if it is to be checked that it is free",
    )
    check.set_defaults(call=_check)


# What follows imports PyTorch where it is needed.


def _check(options: argparse.Namespace) -> int:
    from fl_app.devices.site.check import Site, check_site  # noqa: PLC0415
    from fl_app.devices.site.device_node import NodeConfig  # noqa: PLC0415
    from fl_core.flower.node import read_node_config  # noqa: PLC0415

    host, port = parse_address(options.superlink, "--superlink")
    files = (options.root_certificates, options.auth_supernode_private_key)
    config = NodeConfig.of(read_node_config(options.node_config))
    findings = check_site(Site(host, port, *files, config, options.port))
    for finding in findings:
        print(f"{'✓' if finding.is_right else '✗'} {finding.what:<11} {finding.said}")
    return 0 if all(finding.is_right for finding in findings) else 1
