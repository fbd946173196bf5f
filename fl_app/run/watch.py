"""`fedkin watch`: show the status of a run in the terminal."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_app.results.layout import CHECKPOINTS, SUMMARY, WHOLE
from fl_core.text import clock, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# fl_app.run.progress writes these; it imports Flower, which takes a second.
STATUS_FILE = "status.json"
VERSION = 1
RUNNING, FINISHED, FAILED = "running", "finished", "failed"
HEARTBEAT = 5.0
"""Seconds after which the file is written even without news, to show that the server is alive."""
SILENT = 4 * HEARTBEAT
"""Seconds without a new file after which something is wrong with a run."""
LOCK_FILE = ".lock"
"""Locked by a run that writes to its results folder, and removed at its end."""

_LOOK_AGAIN = 0.5  # seconds
_WIDTH = 100  # of a snapshot
_WIDE = 80  # columns of a window that all numbers need
_BAR = 20  # columns
# Without markup and emoji, which names of devices may contain.
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `watch` to the command line."""
    parser = commands.add_parser(
        "watch",
        help="show the status of a run: rounds, scores, late clients",
        description="Show the status of the run that writes to a results folder, until it ends. "
        "The exit status is 1 if the run failed. Ctrl-C ends the display, not the run.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the run's results folder, on the server"
    )
    parser.add_argument(
        "--once", action="store_true", help="print the present status as plain lines, and exit"
    )
    parser.set_defaults(call=_watch)


def _watch(options: argparse.Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415

    if options.once:
        found = read_status(options.folder)
        if found is None:
            raise ValueError(
                f"{options.folder} has no {STATUS_FILE}: give the results folder of a run that has "
                "started, or leave --once out to wait for one."
            )
        console = Console(**_PLAIN, color_system=None, width=_WIDTH)
        console.print(view(found, time.time()))
    else:
        found = _follow(options.folder, Console(**_PLAIN))
    return 1 if found["state"] == FAILED else 0


def _follow(folder: Path, console: Console) -> dict[str, Any]:
    """Show the status until the run has ended, and return the last."""
    status = read_status(folder)
    if status is None:
        missing = "" if folder.exists() else ", which does not exist yet"
        place = printable(str(folder))
        console.print(
            f"waiting for a run to start in {place}{missing}; press Ctrl-C to stop", soft_wrap=True
        )
    with live_view(folder, console):
        while status is None or status["state"] == RUNNING:
            time.sleep(_LOOK_AGAIN)
            status = read_status(folder)
    console.print(view(status, time.time(), console.width))
    return status


@contextmanager
def live_view(folder: Path, console: Console | None = None) -> Iterator[None]:
    """Show the status of a run in a terminal, below all that the block prints."""
    from rich.console import Console, Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    console = console or Console(**_PLAIN)

    def shown() -> RenderableType:
        with suppress(OSError, ValueError):  # there is none yet
            status = json.loads((folder / STATUS_FILE).read_text(encoding="utf-8"))
            if status["state"] == RUNNING:
                return view(status, time.time(), console.width)
        return Group()

    with Live(console=console, get_renderable=shown, refresh_per_second=2, transient=True):
        yield


def read_status(folder: Path) -> dict[str, Any] | None:
    """Read the status in a results folder, or return None if there is none yet.

    A run has failed if its process has ended without writing so.
    """
    status = _read(folder)
    # A clock and a lock: over some network file systems, other machines see no locks.
    if status is not None and status["state"] == RUNNING:
        silent = time.time() - status["written"] > SILENT
        if silent and (why := cut_short(folder)):
            status |= {"state": FAILED, "ended": status["written"], "error": why}
    return status


def cut_short(folder: Path) -> str:
    """Return a sentence if the process of a run was killed, else an empty text.

    Such a process leaves its lock file, which is not locked any more.
    """
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                return ""  # it is ending in order
    except OSError:  # no run, one that continues, or a file system without locks
        return ""
    return (
        "the process died unexpectedly: it was killed, stopped from outside, or the machine was "
        f"out of memory. To continue, {how_to_resume(folder)}."
    )


def how_to_resume(folder: Path) -> str:
    """Return how to continue a run that was interrupted in this results folder."""
    if any((folder / CHECKPOINTS).glob(WHOLE)):
        return f"resume it from its last checkpoints with resume={folder.absolute()}"
    return "start it again, since it has no checkpoint (see checkpoint-every)"


def _read(folder: Path) -> dict[str, Any] | None:
    if folder.is_file():
        raise ValueError(f"{folder} is a file: give a run's results folder.")
    path = folder / STATUS_FILE
    if not path.exists():
        if (folder / SUMMARY).exists():
            raise ValueError(f"{folder} has the results of a run without {STATUS_FILE}.")
        return None
    with suppress(ValueError):
        status = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(status, dict) and status.get("version") == VERSION:
            return status
    raise ValueError(
        f"{path} was not written by this version of fedkin: watch the run with the version that "
        "runs it."
    )


def view(status: Mapping[str, Any], now: float, width: int = _WIDTH) -> RenderableType:
    """Render a status at `now` seconds since 1970, with a row for each strategy's last seed."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = [Text(printable(line)) for line in lines_of(status, now)]
    rows = [*{run["strategy"]: run for run in status["runs"]}.values()]
    return Group(*lines, *([_table(rows, width)] if rows else []))


def lines_of(status: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield the lines above the table: the state, and the clients that are waited for."""
    began, state = status["began"], status["state"]
    if state != RUNNING:
        yield f"{state} after {clock(status['ended'] - began)}" + (
            f": {status['error']}" if "error" in status else ""
        )
    else:
        line = f"running for {clock(now - began)}"
        if "seconds-left" in status:
            left = max(0.0, status["seconds-left"] - (now - status["since"]))
            line += f", about {clock(left)} left for {status['rounds-left']} rounds"
        yield line
        if now - status["written"] > SILENT:
            yield (
                f"no news from the server for {clock(now - status['written'])}: it hangs, or is "
                "paused"
            )
        if status["doing"]:
            yield f"now: {status['doing']}, for {clock(now - status['since'])}"
        if asking := status.get("asking"):
            line = (
                f"asked to {asking['what']}: {asking['answered']:,} of {asking['asked']:,} have "
                f"answered in {clock(now - asking['since'])}"
            )
            if "until" in asking:
                line += f", the rest have {clock(max(0.0, asking['until'] - now))}"
            yield line
    yield from status["clients"]
    yield from status["failures"]
    yield from status.get("falls", ())


def _table(runs: Sequence[Mapping[str, Any]], width: int = _WIDTH) -> RenderableType:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from fl_core.metrics import metrics_in  # noqa: PLC0415 - it imports Flower

    main = metrics_in({key for run in runs for key in run}).main
    worst = f"worst client{main.unit_suffix}"
    columns = ("seed", "round", main.head, worst, "clusters", "failures")
    shown = columns if width >= _WIDE else columns[:3]
    has_bars = width >= _WIDTH + _BAR
    table = Table()
    table.add_column("strategy", overflow="fold")
    for column in shown:
        table.add_column(column, justify="right", no_wrap=True)
    if has_bars:
        table.add_column(width=_BAR)
    for run in runs:
        cells = (
            str(run["seed"]),
            f"{run['round']}/{run['rounds']}",
            *(main.shown(run[key]) if key in run else "" for key in (main.name, "worst")),
            str(run.get("clusters", "")),
            str(run["failures"]),
        )
        bar = ProgressBar(total=run["rounds"], completed=run["round"], width=_BAR)
        table.add_row(run["strategy"], *cells[: len(shown)], *[bar] * has_bars)
    return table
