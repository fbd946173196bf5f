"""`fedkin certificates`."""

import argparse
from pathlib import Path


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `certificates` to the command line."""
    parser = commands.add_parser(
        "certificates",
        help="make the certificates and keys that real devices need",
        description="Make a private certificate authority, the certificate of the server, and one "
        "key pair for each device. No file is ever overwritten: run it again with other --device "
        "names to add devices.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write them")
    parser.add_argument(
        "--server",
        nargs="+",
        action="extend",
        default=[],
        metavar="HOST_OR_IP",
        help="make the server's certificate for these host names or addresses, by which devices "
        "reach it (localhost is always added)",
    )
    parser.add_argument(
        "--device",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="make a key pair for each of these devices: letters, digits, '.', '_' and '-'",
    )
    parser.set_defaults(call=_make)


def _make(options: argparse.Namespace) -> int:
    from fl_app.devices.certificates import expiry_date, make_certificates  # noqa: PLC0415

    folder: Path = options.folder
    written = make_certificates(folder, options.server, options.device)
    print(f"Written to {folder}:")
    for path in written:
        print(f"  {path.relative_to(folder)}")
    if options.server:
        print("To the server: ca.crt, server.crt and server.key.")
        print(f"server.crt expires on {expiry_date(folder / 'server.crt')}.")
    for name in dict.fromkeys(options.device):
        print(
            f"To device {name}: ca.crt and devices/{name}.key. To the server, only to register "
            f"the device: devices/{name}.pub."
        )
    if (folder / "ca.crt").exists():
        print(f"ca.crt expires on {expiry_date(folder / 'ca.crt')}.")
    print(
        "Do not store ca.key on the server or on a device: with it, anyone can pose as the server. "
        "Every .key file is as secret as a password."
    )
    return 0
