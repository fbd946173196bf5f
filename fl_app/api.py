"""`simulate` and `sweep`: what `fedkin run` and `fedkin sweep` do, from a script or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from fl_app.plan import Show, prepare, print_line
from fl_app.results.frames import Results, SweepResults, load_results, load_sweep
from fl_app.simulation.preflight import check_has_rounds
from fl_app.sweeps.plan import plan_sweep
from fl_app.sweeps.sweep_command import run_sweep
from fl_core.extras import need_extra
from fl_core.options import Scalar
from fl_core.user_code import unload_user_modules


def simulate(
    *,
    workers: int | None = None,
    progress: bool | Show = True,
    **options: Any,
) -> Results:
    """Simulate the app, as `fedkin run` does, and return the results.

    It waits for the end, leaves no process behind, and can be called repeatedly, in a script, a
    notebook or a thread. Interrupt it to stop it.

    Parameters
    ----------
    workers : int, optional
        Ray workers, one CPU each; 0: no Ray, all clients run in this process. By default 0 for a
        small simulation, otherwise the number of CPUs.
    progress : bool or callable
        Whether to print the run's lines, or a function that is called with each of them.
    **options
        The run-config keys of docs/options.md, `-` written as `_`; `strategy` may be a list. Each
        call reads user-defined code (docs/own-code.md) and data again.

    Raises
    ------
    ValueError
        If an option is unknown or has a value that is not allowed, before anything starts.
    RunFailedError
        A RuntimeError with the reason, if the run fails.
    MissingExtraError
        If the packages of the extra `simulation` are not installed.
    """
    _check_workers("workers", workers, least=0)
    need_extra("pandas", "simulate")
    _forget()
    given = {_key(name): _scalar(name, value) for name, value in options.items()}
    plan = prepare(given, workers=workers)
    check_has_rounds(plan.config)
    show = progress if callable(progress) else print_line if progress else _nothing
    for sentence in plan.warnings:
        show(f"warning: {sentence}\n")
    return load_results(plan.run(show))


def sweep(
    *,
    output: str | Path | None = None,
    processes: int | None = None,
    progress: bool | Show = True,
    **options: Any,
) -> SweepResults:
    """Simulate every combination of the values of all options that are lists, as `fedkin sweep`.

    Finished simulations are stored: call it again after an interruption, or with more values.

    Parameters
    ----------
    output : str or Path, optional
        The folder; by default results/sweep-… with a name made of the options.
    processes : int, optional
        How many simulations run at a time; by default one for each CPU.
    progress : bool or callable
        As in `simulate`.
    **options
        Lists are swept, except `strategy`: each simulation runs all strategies.

    Raises
    ------
    ValueError
        If an option is not allowed, nothing is swept, or a value has no effect.
    RuntimeError
        If simulations fail, with the first reason; the others are stored.
    """
    _check_workers("processes", processes)
    _forget()
    given = {}
    for name, one_or_many in options.items():
        # NumPy's arrays and numbers as Python's
        value = one_or_many.tolist() if hasattr(one_or_many, "tolist") else one_or_many
        many = isinstance(value, Sequence) and not isinstance(value, str)
        given[_key(name)] = [_scalar(name, one) for one in value] if many else _scalar(name, value)
    planned = plan_sweep(given)
    folder = Path(output).expanduser() if output else planned.folder()
    show = progress if callable(progress) else print_line if progress else _nothing
    failures = run_sweep(planned, folder, processes, say=lambda line: show(f"{line}\n"))
    if failures:
        name, reason = next(iter(failures.items()))
        raise RuntimeError(f"{len(failures)} simulations failed, the first, {name}: {reason}")
    return load_sweep(folder)


def _forget() -> None:
    """Let user-defined code and data be read again: in a notebook, they change."""
    # PyTorch takes seconds.
    from fl_core.data.datasets import clear_data_caches  # noqa: PLC0415
    from fl_core.partitions.federation import simulate_federation  # noqa: PLC0415

    unload_user_modules()
    clear_data_caches()
    simulate_federation.cache_clear()


def _key(name: str) -> str:
    return name.replace("_", "-")


def _scalar(name: str, value: Any) -> Scalar:
    """Return a value as a run configuration can hold it."""
    if name == "strategy" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, Path):
        return str(value)
    value = value.item() if hasattr(value, "item") else value  # one of NumPy's numbers
    if not isinstance(value, Scalar):
        raise ValueError(
            f"{name} is {value!r}, but it must be text, a number, True or False; sweep takes lists."
        )
    return value


def _check_workers(name: str, value: object, least: int = 1) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} is {value!r}, but it must be a whole number of at least {least}.")


def _nothing(line: str) -> None:
    """Show nothing."""
