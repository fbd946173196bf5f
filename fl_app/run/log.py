"""The log of a run: on the console, and in `log.txt` of its results folder."""

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from fl_app.results.layout import LOG
from fl_core.text import error_line

log = logging.getLogger("fedkin")
"""The sentences of a run. Details have the level `DEBUG`, its course `COURSE`, results `INFO`."""

COURSE = 15
LEVEL_VARIABLE = "FEDKIN_LOG_LEVEL"
"""The environment variable with the least level that the console shows; by default `COURSE`."""


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.name == log.name else f"{record.levelname} {record.name}: {text}"


class _Console(logging.Handler):
    """Prints the sentences of a run, and the warnings of all others."""

    def __init__(self) -> None:
        super().__init__()
        self._stdout = sys.stdout

    def emit(self, record: logging.LogRecord) -> None:
        least = int(os.environ.get(LEVEL_VARIABLE, COURSE))
        if record.levelno >= (least if record.name == log.name else max(least, logging.WARNING)):
            print(self.format(record), file=self._stdout, flush=True)


@contextmanager
def log_to_console() -> Iterator[None]:
    """Show the log while the block runs; warnings of others where no logging is configured."""
    loggers = [log] if logging.root.handlers else [logging.root]
    with _handling(_Console(), *loggers):
        yield


@contextmanager
def log_to_file(folder: Path) -> Iterator[None]:
    """Append the log, and what user-defined code logs, to a file in a results folder."""
    handler = logging.FileHandler(folder / LOG, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(_Format())
    # Those who can read the folder can read it.
    (folder / LOG).chmod(0o600 | folder.stat().st_mode & 0o044)
    try:
        with _handling(handler, logging.root):
            yield
    except Exception as error:  # which is printed later
        text = f"error: {error_line(error)}"
        handler.handle(logging.makeLogRecord({"name": log.name, "msg": text}))
        raise
    finally:
        handler.close()


@contextmanager
def _handling(handler: logging.Handler, *loggers: logging.Logger) -> Iterator[None]:
    """Add a handler to loggers, and let all sentences and others' INFO pass, during a block."""
    httpx = logging.getLogger("httpx")
    before = {one: one.level for one in (log, logging.root, httpx)}
    httpx.setLevel(logging.WARNING)  # a line for each of Flower's requests
    log.setLevel(logging.DEBUG)
    logging.root.setLevel(min(logging.root.level, logging.INFO))
    for one in loggers:
        one.addHandler(handler)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)


@contextmanager
def log_printed(level: int) -> Iterator[None]:
    """Log at a level what the block prints."""
    with redirect_stdout(io.StringIO()) as printed:
        yield
    if text := printed.getvalue().rstrip("\n"):
        log.log(level, text)
