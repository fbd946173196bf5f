"""The command line: `clustered-fl run` simulates the app and leaves no process behind."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fl_app.config import output_folder, parse_config
from fl_app.simulate import simulate

PAPER_CLIENTS = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_intermixed_args(arguments)
    # A polite kill cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app = options.app.absolute()
        defaults = read_defaults(app)
        overrides = dict(parse_override(text) for text in options.overrides)
        overrides.setdefault("num-clients", PAPER_CLIENTS)
        # Before anything is started: a wrong value costs no waiting.
        config = parse_config({**defaults, **overrides})
        folder = output_folder(config.output_dir)
        done = simulate(
            app,
            {**overrides, "output-dir": str(folder)},
            num_clients=config.num_clients or PAPER_CLIENTS,
            workers=options.workers,
        )
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return 0 if done else 1


def read_defaults(app: Path) -> dict[str, Any]:
    """Return every run-config key and its default.

    Raises
    ------
    ValueError
        If `app` holds no Flower app.
    """
    path = app / "pyproject.toml"
    if not path.is_file():
        raise ValueError(f"{app} holds no pyproject.toml: run this in the project's folder.")
    with path.open("rb") as file:
        config: dict[str, Any] = tomllib.load(file)["tool"]["flwr"]["app"]["config"]
    return config


def parse_override(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; a value that is no TOML scalar is a string.

    Examples
    --------
    >>> parse_override("repeats=3"), parse_override("strategy=rcc-pfl,single")
    (('repeats', 3), ('strategy', 'rcc-pfl,single'))
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{text} is no KEY=VALUE, such as repeats=3.")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
    return key, read if isinstance(read, str | int | float | bool) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clustered-fl",
        description="Simulate the app with `flwr run` on a SuperLink of its own, show its "
        "progress, and stop everything at the end. Without num-clients, it simulates 25.",
    )
    parser.add_argument("command", choices=["run"], help="simulate the app on this machine")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="run-config keys, as in README.md"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="Ray workers, one CPU each (default: all CPUs)",
    )
    parser.add_argument(
        "--app", type=Path, default=Path(), help="the project's folder (default: this one)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
