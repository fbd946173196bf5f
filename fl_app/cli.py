"""The command line: simulate the app, and what real devices need around `flwr run`."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from fl_core.extras import MissingExtraError
from fl_core.proxies import bypass_proxies_on_loopback
from fl_core.text import error_line, whole_number

if TYPE_CHECKING:
    from fl_app.plan import Plan
    from fl_core.options import Scalar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    # SIGTERM and a closed terminal clean up like Ctrl-C; under nohup, SIGHUP stays ignored.
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # in a locale that cannot write a table's lines
            stream.reconfigure(errors="backslashreplace")
    bypass_proxies_on_loopback()
    try:
        options = _parsed(arguments)
        status: int = options.call(options)
        print(end="", flush=True)  # so that a closed pipe raises here
    except BrokenPipeError:  # the reader of stdout, such as `head`, has ended
        # Python would fail again when it flushes the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError, MissingExtraError) as error:
        print("error:", error_line(error).replace("\n", "\n       "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if arguments is None else arguments
    parser = _parser(_help_on_options(words))
    options, rest = parser.parse_known_args(arguments)
    if "supernode" in options:
        options.supernode = rest
        return options
    # argparse's subcommands do not take KEY=VALUE on both sides of an option.
    if rest and ("overrides" not in options or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.overrides = [*getattr(options, "overrides", ()), *rest]
    return options


# PyTorch is imported only where it is needed: the gate, which runs for months, never needs it.


def _run(options: argparse.Namespace) -> int:
    from fl_app.config.run_config import parse_override  # noqa: PLC0415
    from fl_app.plan import RunFailedError, prepare  # noqa: PLC0415
    from fl_app.simulation.preflight import check_has_rounds  # noqa: PLC0415

    given = dict(map(parse_override, options.overrides))
    presets = trial_presets(given) if options.presets else {}
    plan = prepare(
        given,
        presets=presets,
        workers=options.workers,
        gpus_per_client=options.gpus_per_client,
        ray_address=options.ray_address,
    )
    if presets:
        check_has_rounds(plan.config)
    if presets and not plan.config.validation_share:
        raise ValueError(
            "validation-share is 0, but fedkin trial compares models on validation samples: leave "
            "it out, or use fedkin run."
        )
    for sentence in plan.warnings:
        print("warning:", sentence, file=sys.stderr, flush=True)
    if options.dry_run:
        _print_plan(plan, {**presets, **given})
        return 0
    try:
        with _shown(options, plan.folder):
            plan.run()
    except RunFailedError:  # the reason is in the log
        return 1
    except KeyboardInterrupt:
        _print_resume_command(options, plan.options, plan.folder)
        raise
    return _check_all_trained(plan.folder)


@contextmanager
def _shown(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Set what a run prints, and show its progress in a terminal while the block runs."""
    from fl_app.run.log import LEVEL_VARIABLE  # noqa: PLC0415
    from fl_app.run.watch import live_view  # noqa: PLC0415

    is_live = sys.stdout.isatty() and options.level is None
    level = logging.INFO if is_live else options.level
    before = os.environ.get(LEVEL_VARIABLE)
    os.environ |= {} if level is None else {LEVEL_VARIABLE: str(level)}
    try:
        with live_view(folder) if is_live else nullcontext():
            yield
    finally:
        os.environ.pop(LEVEL_VARIABLE, None)
        os.environ |= {} if before is None else {LEVEL_VARIABLE: before}


def _check_all_trained(folder: Path) -> int:
    """Return 1, and name the clients, if some never trained in a run that has ended; else 0."""
    from fl_app.results.reading import read_result  # noqa: PLC0415

    sentences = [
        sentence for run in read_result(folder).runs if (sentence := run.describe_untrained())
    ]
    for sentence in sentences:
        print(f"error: {sentence}; summary.json has the reasons (failures)", file=sys.stderr)
    return 1 if sentences else 0


def _print_plan(plan: Plan, given: Mapping[str, Scalar]) -> None:
    from fl_core.options import key_values  # noqa: PLC0415

    config = plan.config
    decided = {name: key_values(config.options_of_line(name)) for name in config.strategy}
    names = [f"{name} ({' '.join(words)})" if words else name for name, words in decided.items()]
    print(
        f"strategies: {', '.join(names)}\n"
        f"seeds from {config.seed}: {config.num_trainings} training(s) of "
        f"{config.num_server_rounds} rounds\n"
        f"{config.simulated_clients} clients, data set {config.dataset}, model {config.model}\n"
        f"results would go to {plan.folder}\n"
        f"given: {' '.join(key_values(given)) or 'the defaults'}"
    )


def _print_resume_command(
    options: argparse.Namespace, given: Mapping[str, Scalar], folder: Path
) -> None:
    """Print the command that resumes a stopped run, if it has a checkpoint."""
    from fl_app.results.layout import CHECKPOINTS, WHOLE  # noqa: PLC0415
    from fl_core.options import key_values  # noqa: PLC0415

    if any((folder / CHECKPOINTS).glob(WHOLE)):
        again = {key: value for key, value in given.items() if key != "output-dir"}
        words = key_values({**again, "resume": folder})
        for name in ("ray_address", "gpus_per_client", "workers"):
            value = getattr(options, name)
            if value is not None and value != "":
                words += [f"--{name.replace('_', '-')}", str(value)]
        print("to resume:", shlex.join(["fedkin", "run", *words]), file=sys.stderr)


def _help(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    parser.print_help(sys.stderr)
    return 2


def _classify(options: argparse.Namespace) -> int:
    from fl_app.classify import classify  # noqa: PLC0415

    return classify(options.model, options.folder, options.data, options.output, options.own_code)


def _help_on_options(words: Sequence[str]) -> str:
    """Return the options of the user-defined strategies that are named before a --help."""
    named = [name for word in words if word.startswith("strategy=") for name in word[9:].split(",")]
    if not named or not {"-h", "--help"} & set(words):
        return ""
    from fl_core.options import typed  # noqa: PLC0415
    from strategies.catalogue import user_options  # noqa: PLC0415

    lines = [
        f"  {key}={typed(one.default)}: {one.meaning} ({one.rule.allowed})"
        for key, one in user_options(named).items()
    ]
    return "\n".join(["options of these strategies:", *lines]) if lines else ""


def _add_run_arguments(run: argparse.ArgumentParser, epilog: str) -> None:
    if epilog:  # a line each
        run.formatter_class, run.epilog = argparse.RawDescriptionHelpFormatter, epilog
    run.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="run-config keys, as in docs/options.md"
    )
    run.add_argument(
        "--workers",
        type=whole_number(0),
        help="Ray workers, one CPU each; 0: no Ray, all clients in this process, which a debugger "
        "can follow (default: 0 for a small simulation, otherwise all CPUs; on a cluster always "
        "all)",
    )
    run.add_argument(
        "--gpus-per-client",
        type=float,
        metavar="SHARE",
        help="the share of a GPU that each worker has, such as 0.1 (default: workers share the "
        "GPUs of this machine equally; on a cluster none)",
    )
    run.add_argument(
        "--ray-address",
        default="",
        metavar="HOST:PORT",
        help="simulate on the Ray cluster that runs there, or `auto`: the one started on this "
        "machine (docs/scale.md)",
    )
    for words, level, what in (
        (("-v", "--verbose"), logging.DEBUG, "print the clusters and the names of all files, too"),
        (("-q", "--quiet"), logging.ERROR, "print errors only; log.txt has the rest"),
    ):
        run.add_argument(*words, action="store_const", dest="level", const=level, help=what)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check what can be checked beforehand, say what would run, and start nothing",
    )


TRIAL: dict[str, Scalar] = {
    "strategy": "local,single,ditto,fedkin,fedkin+mean+ditto",
    "num-clusters": "auto",
    "validation-share": 0.2,
    "num-server-rounds": 20,
    "evaluate-every": 2,
    "early-stopping": 2,
}
"""The defaults of `fedkin trial` that differ from those of `fedkin run`."""

_TRIAL_FOLDS = 5  # of a small simulation, which ends soon all the same


def trial_presets(given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the defaults of a trial: of a small one, all samples validate in turns.

    Of natural sites, it tries several numbers of groups: their samples choose the number better
    than `auto`, which knows tasks cut from labels.
    """
    from dataclasses import replace  # noqa: PLC0415

    from fl_app.config.run_config import DEFAULTS, parse_config  # noqa: PLC0415
    from fl_app.config.tuning import has_effect  # noqa: PLC0415
    from fl_app.plan import is_small  # noqa: PLC0415
    from fl_core.data.dataset_info import num_sites  # noqa: PLC0415

    presets = dict(TRIAL)
    config = parse_config({**DEFAULTS, **presets, **given})
    sites = num_sites(config.dataset, config.data_dir)
    counts = [str(count) for count in (1, 2, 4) if count <= min(sites, config.simulated_clients)]
    is_set = {"num-clusters", "tune", "training-epsilon"} & given.keys()
    if counts and not is_set and any(has_effect("num-clusters", s) for s in config.strategy):
        tune = f"num-clusters={','.join(('auto', *counts))}"
        presets["tune"], config = tune, replace(config, tune=tune)
    is_plain = (
        config.validation_share == presets["validation-share"] and not config.training_epsilon
    )
    if is_plain and is_small(replace(config, validation_folds=_TRIAL_FOLDS)):
        presets["validation-folds"] = _TRIAL_FOLDS
    return presets


def _parser(epilog: str = "") -> argparse.ArgumentParser:
    # Here, where Ctrl-C is handled: the imports take a while.
    from importlib.metadata import version  # noqa: PLC0415

    from fl_app.devices.certificates_command import add_command as add_certificates  # noqa: PLC0415
    from fl_app.devices.devices_command import add_command as add_devices  # noqa: PLC0415
    from fl_app.devices.gate.gate_command import add_command as add_gate  # noqa: PLC0415
    from fl_app.devices.site.node_command import add_check_command, add_node_command  # noqa: PLC0415
    from fl_app.group.group_command import add_command as add_group  # noqa: PLC0415
    from fl_app.group.place_command import add_command as add_place  # noqa: PLC0415
    from fl_app.report.report_command import add_command as add_report  # noqa: PLC0415
    from fl_app.run.watch import add_command as add_watch  # noqa: PLC0415
    from fl_app.sweeps.sweep_command import add_command as add_sweep  # noqa: PLC0415
    from fl_core.data.image_files import ENDINGS  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="fedkin",
        description="Cluster federated clients by what they want to learn. On real devices, the "
        "training itself is started with `flwr run` (docs/devices.md).",
    )
    parser.add_argument("--version", action="version", version=f"fedkin {version('fedkin')}")
    parser.set_defaults(call=partial(_help, parser))
    commands = parser.add_subparsers(metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="simulate the app on this machine or on a Ray cluster",
        description="Simulate the app, and show its progress. Without num-clients, there are 25 "
        "clients, or as many as the data set has.",
    )
    _add_run_arguments(run, epilog)
    run.set_defaults(call=_run, presets={})
    words = " ".join(f"{key}={value}" for key, value in TRIAL.items())
    trial = commands.add_parser(
        "trial",
        help="recommend to each client whether to train with others, by validation samples",
        description="Train several strategies for a few rounds, compare their models on a fifth "
        "of each client's training samples, which no model is trained on, and recommend to each "
        "client to join, or to stay alone, if the gains of all clients show it "
        f"(docs/verdicts.md). It is `fedkin run` with {words}, of sites that the data "
        "come with, tune=num-clusters=auto,1,2,4, and of at most 20 clients × rounds (with these "
        f"five strategies), validation-folds={_TRIAL_FOLDS}; each can be given another value.",
    )
    _add_run_arguments(trial, epilog)
    trial.set_defaults(call=_run, presets=TRIAL)
    add_group(commands)
    add_place(commands)
    add_report(commands)
    add_sweep(commands)
    add_certificates(commands)
    add_gate(commands)
    add_check_command(add_devices(commands))
    add_node_command(commands)
    add_watch(commands)
    classify = commands.add_parser(
        "classify",
        help="classify images or other samples with a model that a device saved",
        description="Classify every image below a folder with a saved model, and write CSV with "
        "the columns path, class, probability; or, of a model that predicts a number, path and the "
        "number. Images are made grey or coloured and resized as in training. One that cannot be "
        "decoded is named on stderr, and the exit status is 1. A model that was trained on tables "
        "takes a CSV or Parquet file or a folder of them; a column `row` counts rows from 1.",
    )
    classify.add_argument(
        "model", type=Path, metavar="MODEL", help="the file that a device saved at its model-path"
    )
    classify.add_argument(
        "folder",
        type=Path,
        nargs="?",
        metavar="FOLDER",
        help=f"searched at any depth, links to folders and hidden files left out, for "
        f"{' '.join(ENDINGS)}; or one image file; or a table, or a folder that holds some",
    )
    classify.add_argument(
        "--data",
        default="",
        metavar="MODULE:NAME",
        help="instead of a folder, the function that returns samples, as on the device",
    )
    classify.add_argument(
        "--output",
        type=Path,
        metavar="FILE.csv",
        help="write the CSV here, and print how many there are of each class",
    )
    classify.add_argument(
        "--own-code",
        default="",
        metavar="MODULE:NAME",
        help="the import path of the model, if it is user-defined; its code is run",
    )
    classify.set_defaults(call=_classify)
    return parser


if __name__ == "__main__":
    sys.exit(main())
