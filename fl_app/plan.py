"""From options to results: `prepare` checks a simulation, and the plan that it returns runs it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fl_app.config.run_config import DEFAULTS, Config, parse_config
from fl_app.config.unused_options import find_unused_options
from fl_app.results.layout import output_folder
from fl_app.run.watch import cut_short
from fl_app.simulation import resources
from fl_app.simulation.preflight import check_simulation
from fl_core.data.folders import resolve_data_dir
from fl_core.extras import DRAWING, need_extra
from fl_core.options import Scalar
from fl_core.text import error_line

Show = Callable[[str], None]

SMALL = 500
"""A simulation of at most so many trainings of a client (clients × rounds × strategies × folds ×
seeds) runs in this process: the start of Ray would take longer than the run."""

_LAST_LINES = 15  # of the log, where no line says what went wrong


def print_line(line: str) -> None:
    """Print a line of a log at once."""
    print(line, end="", flush=True)


class RunFailedError(RuntimeError):
    """A simulation has failed; its log, which was shown, ends with the reason."""


@dataclass(frozen=True)
class Plan:
    """A simulation that has passed all checks that need no clients."""

    config: Config
    options: Mapping[str, Scalar]  # that differ from the defaults, and num-clients and output-dir
    warnings: tuple[str, ...]  # about options that change nothing
    workers: int  # of Ray, one CPU each; 0: all clients run in this process, one after the other
    gpus_per_client: float = 0.0  # the share of a GPU that each worker has
    ray_address: str = ""  # of a running Ray cluster; empty: start a private Ray

    @property
    def folder(self) -> Path:
        """Return the folder of the results."""
        return Path(str(self.options["output-dir"]))

    def run(self, show: Show = print_line) -> Path:
        """Run the simulation, wait for its end, and return the folder of its results.

        The results are the same with any number of workers, to the last bit. `show` is called with
        each line of the log. If the run fails, a RunFailedError gives the reason.
        """
        log: list[str] = []

        def take(line: str) -> None:
            log.append(line)
            show(line)

        if not self.workers:
            self._run_here(take)
        elif not self._run_on_ray(take):
            reasons = [line.removeprefix("error: ") for line in log if line.startswith("error: ")]
            if not reasons and (reason := cut_short(self.folder)):
                show(f"error: {reason}\n")
                reasons = [reason]
            last = f"the run failed:\n{''.join(log[-_LAST_LINES:])}"
            raise RunFailedError(reasons[0].strip() if reasons else last)
        return self.folder

    # PyTorch takes seconds.

    def _run_on_ray(self, show: Show) -> bool:
        from fl_app.launch import run_on_ray  # noqa: PLC0415

        gpus, address = self.gpus_per_client, self.ray_address
        return run_on_ray(self.options, show, workers=self.workers, gpus=gpus, address=address)

    def _run_here(self, show: Show) -> None:
        from fl_app.launch import FAILURES, run_here  # noqa: PLC0415

        try:
            with redirect_stdout(_Lines(show, sys.stdout)):
                run_here(self.options)
        except FAILURES as error:
            reason = error_line(error)
            show(f"error: {reason}\n")
            raise RunFailedError(reason) from error


def prepare(
    options: Mapping[str, Scalar],
    *,
    presets: Mapping[str, Scalar] | None = None,
    workers: int | None = None,
    gpus_per_client: float | None = None,
    ray_address: str = "",
) -> Plan:
    """Check a simulation before anything starts.

    Parameters
    ----------
    options : mapping
        The run-config keys that the user set.
    presets : mapping, optional
        Other defaults than the app's.
    workers : int, optional
        Of Ray; 0: all clients run in this process. By default 0 if the simulation is `SMALL`,
        otherwise the number of CPUs.
    gpus_per_client, ray_address
        As of a `Plan`.

    Raises
    ------
    ValueError
        If an option is unknown, or a value is not allowed or does not suit the data.
    OSError
        If the data cannot be read.
    MissingExtraError
        If a package is not installed.
    """
    given = {**(presets or {}), **options}
    config = parse_config({**DEFAULTS, **given})
    here = not (ray_address or gpus_per_client)
    if workers is None:
        workers = 0 if here and is_small(config) else os.cpu_count() or 1
    if not workers and not here:
        raise ValueError(
            "workers is 0, which runs clients in this process, but --ray-address and "
            "--gpus-per-client need Ray's workers: leave one of the two out."
        )
    for package in ("ray", *DRAWING) if workers else DRAWING:
        need_extra(package, "a simulation")
    folder = output_folder(config.output_dir, config.resume)
    check_simulation(config, folder)
    whole = {**given, "num-clients": config.simulated_clients, "output-dir": str(folder)}
    if ray_address:  # the nodes have other variables and working folders
        whole["data-dir"] = str(resolve_data_dir(config.data_dir))
        resources.check_cluster(ray_address, config.device, gpus_per_client)
        share = gpus_per_client or 0.0
    else:
        share = resources.gpus_per_client(config.device, max(1, workers), gpus_per_client)
    if config.resume:
        from fl_app.run.checkpoints import Checkpoints  # noqa: PLC0415

        Checkpoints(parse_config({**DEFAULTS, **whole}), folder)
    warnings = tuple(find_unused_options(options, config))
    return Plan(config, whole, warnings, workers, share, ray_address)


def is_small(config: Config) -> bool:
    """Return whether a simulation ends sooner than Ray would have started."""
    return config.simulated_clients * config.num_server_rounds * config.num_trainings <= SMALL


class _Lines(io.TextIOBase):
    """A stream that passes whole lines to `show`, which may print to the stream `before`."""

    def __init__(self, show: Show, before: TextIO) -> None:
        self._show, self._before, self._rest = show, before, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        with redirect_stdout(self._before):
            for line in lines:
                self._show(f"{line}\n")
        return len(text)
