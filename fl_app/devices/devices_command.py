"""`fedkin devices`: list the registered devices, and revoke one."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Add `devices` to the command line, and return where its subcommands are added."""
    parser = commands.add_parser(
        "devices",
        help="list the registered devices, revoke one, or check a site",
        description="On the server, list the devices: name, key (as `ssh-keygen -l` shows it), "
        "whether it is connected or when it was last, and its cluster in the last run; and when "
        "the certificates expire.",
    )
    _add_server_options(parser)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where the SuperLink was started, with the results of runs (default: .)",
    )
    parser.set_defaults(call=_list)
    more = parser.add_subparsers(metavar="COMMAND")
    revoke = more.add_parser(
        "revoke",
        help="exclude a device for good",
        description="On the server, unregister a device: its SuperNode is refused from now on, "
        "and Flower never accepts its key again. Its name can be registered with another key.",
    )
    revoke.add_argument(
        "name", metavar="NAME", help="its name or its key, as `fedkin devices` lists them"
    )
    # The options may stand before `revoke`, too.
    _add_server_options(revoke, suppressed=True)
    revoke.set_defaults(call=_revoke)
    return more


def _add_server_options(parser: argparse.ArgumentParser, *, suppressed: bool = False) -> None:
    for option, default, metavar, what in (
        ("--superlink", "127.0.0.1:8000", "HOST:PORT", "where the SuperLink listens"),
        ("--certificates", "certificates", "FOLDER", "the folder with ca.crt"),
    ):
        value, text = argparse.SUPPRESS if suppressed else default, f"{what} (default: {default})"
        parser.add_argument(option, default=value, metavar=metavar, help=text)


# What follows imports Flower and PyTorch where they are needed: the gate does without.


def _list(options: argparse.Namespace) -> int:
    from fl_app.devices import registry  # noqa: PLC0415
    from fl_app.devices.certificates import expiry_date  # noqa: PLC0415
    from fl_app.report.text_table import render  # noqa: PLC0415

    if not options.folder.is_dir():
        raise ValueError(
            f"--folder {options.folder} is not a folder: name where the SuperLink was started."
        )
    certificates = Path(options.certificates)
    with registry.control_client(options.superlink, certificates) as client:
        devices = registry.list_devices(client)
    last_run, clusters = registry.last_clusters(options.folder)
    print(render(registry.device_table(devices, clusters)), end="")
    known = {device.node: device for device in devices}
    names = {node: device.name for node, device in known.items()}
    for refusal in registry.refused_names(known, names).values():
        print(f"{refusal.called} takes part in no run: {refusal.reason}")
    if last_run:
        print(last_run)
    for name in ("server.crt", "ca.crt"):
        if (path := certificates / name).is_file():
            print(f"{name} expires on {expiry_date(path)}")
    return 0


def _revoke(options: argparse.Namespace) -> int:
    from fl_app.devices import registry  # noqa: PLC0415
    from fl_core.flower.messages import UnregisterNodeRequest  # noqa: PLC0415

    with registry.control_client(options.superlink, Path(options.certificates)) as client:
        device = registry.find_device(registry.list_devices(client), options.name)
        client.UnregisterNode(UnregisterNodeRequest(node_id=device.node))
    key = registry.short(device.key)
    print(f"key {key} is not registered any more: the device is refused from now on.")
    return 0
