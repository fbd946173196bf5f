"""User-defined code, which a run configuration names by import path: `package.module:name`.

Modules are looked up as by `python -m`. A device runs only code that its owner allows
(`fl_app.config.allowed_code`).
"""

import importlib
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from sysconfig import get_path
from typing import Any

from fl_core.options import Rule, did_you_mean, one_of
from fl_core.text import one_line

logger = logging.getLogger(__name__)

_NAME = r"[^\W\d]\w*"
_PATH = re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}")
_ARGUMENTS = {
    "model": "shape, num_classes",
    "features": "samples",
    "loss": "outputs, labels",
    "metric": "outputs, labels",
}
_STANDARD = {get_path("stdlib"), get_path("platstdlib")}  # perhaps in the home folder, too
_INSTALLED = {"site-packages", "dist-packages"}  # by pip, perhaps in the home folder
_LONGEST = 300  # characters of an error of user-defined code

# The modules from the working directory, which `unload_user_modules` reloads.
_local_modules: set[str] = set()


def is_import_path(value: object) -> bool:
    """Return whether a value is an import path of user-defined code."""
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


def or_import_path(rule: Rule) -> Rule:
    """Allow an import path, too."""

    def parse(value: Any) -> Any:
        return value if is_import_path(value) else rule.parse(value)

    return replace(rule, allowed=f"{rule.allowed}, or an import path MODULE:NAME", parse=parse)


IMPORT_PATH_OR_EMPTY = or_import_path(one_of(("",)))


def load_user_code(key: str, path: str, *, is_private: bool = False) -> Any:
    """Import the function or class of an import path; the code of its module is run.

    Messages name `key`, the run-config key. With `is_private`, an error may show data that others
    must not see: then only the log of this process has its text.
    """
    module_name, _, name = path.partition(":")
    if module_name == "__main__":
        raise ValueError(
            f'{key} is "{path}", but other processes run this, and cannot import a script or a '
            "notebook: put it into a module beside it."
        )
    try:
        with _working_directory_last():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f'{key} is "{path}", but {_not_importable(module_name, error)}') from error
    except (Exception, SystemExit) as error:
        if is_shutdown(error):
            raise
        raise ValueError(
            f'{key} is "{path}", but {module_name} cannot be imported: {_shown(error, is_private)}.'
        ) from error
    file = getattr(module, "__file__", None) or module_name
    if not hasattr(module, name):
        defined = [
            n for n, one in vars(module).items() if getattr(one, "__module__", "") == module_name
        ]
        hint = did_you_mean(name, defined)
        raise ValueError(f'{key} is "{path}", but {file} has no {name}.{hint and f" {hint}"}')
    loaded = getattr(module, name)
    if not callable(loaded):
        raise ValueError(
            f'{key} is "{path}", but {name} in {file} is of type {type(loaded).__name__}: it must '
            "be a function or a class."
        )
    return loaded


def call_user_code(key: str, path: str, *arguments: Any, is_private: bool = False) -> Any:
    """Call a user-defined function; parameters are as of `load_user_code`."""
    return load_user_function(key, path, is_private=is_private)(*arguments)


def load_user_function(key: str, path: str, *, is_private: bool = False) -> Callable[..., Any]:
    """Return a user-defined function for many calls, each of which is as `call_user_code`."""
    function = load_user_code(key, path, is_private=is_private)

    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:
            if is_shutdown(error):
                raise
            call = f"{path.partition(':')[2]}({_ARGUMENTS.get(key, '')})"
            reason = _shown(error, is_private)
            raise ValueError(f'{key} is "{path}", but the call {call} fails: {reason}.') from error

    return called


def user_code_files(path: str) -> list[Path]:
    """Return the Python files of an import path: of its package, or else its module."""
    module_name = path.partition(":")[0]
    with _working_directory_last():
        spec = find_spec(module_name.partition(".")[0])
        if spec is not None and spec.origin is None:  # a folder without __init__.py
            try:
                spec = find_spec(module_name)
            except ModuleNotFoundError:
                return []
    if spec is None or spec.origin is None or not spec.has_location:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def unload_user_modules() -> None:
    """Unload the modules of the working directory: in a notebook, they change."""
    for name in _local_modules:
        sys.modules.pop(name, None)
    _local_modules.clear()
    importlib.invalidate_caches()


@contextmanager
def _working_directory_last() -> Iterator[None]:
    """Search the working directory for modules after all other folders, so that it hides none."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    before = set(sys.modules)
    try:
        yield
    finally:
        _local_modules.update(name for name in set(sys.modules) - before if _lies_in(here, name))


def _lies_in(folder: str, module_name: str) -> bool:
    """Return whether a module is in a folder, and not installed below it."""
    file = Path(getattr(sys.modules.get(module_name), "__file__", None) or "")
    if not file.is_relative_to(folder) or any(map(file.is_relative_to, _STANDARD)):
        return False
    return _INSTALLED.isdisjoint(file.relative_to(folder).parts)


def _not_importable(module_name: str, error: ModuleNotFoundError) -> str:
    missing = error.name or module_name
    if not f"{module_name}.".startswith(f"{missing}."):
        return f"{module_name} cannot be imported: it needs {missing}, which is not installed."
    package, _, last = missing.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", [] if package else [str(Path.cwd())])
    hint = did_you_mean(last, [one.name for one in iter_modules(folders)])
    return (
        f"there is no module {missing}: it must be installed, on PYTHONPATH, or in {Path.cwd()}."
        f"{hint and f' {hint}'}"
    )


def is_shutdown(error: BaseException) -> bool:
    """Return whether Flower stops the program, so that no code has failed."""
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return isinstance(error, SystemExit) and any("flwr" in Path(f.filename).parts for f in frames)


def _shown(error: BaseException, is_private: bool) -> str:
    if not is_private:
        return describe_error(error)
    logger.warning("the server receives this error without its text:", exc_info=error)
    return f"{describe_error(error, with_text=False)}; the text is in this site's log"


def describe_error(error: BaseException, *, with_text: bool = True) -> str:
    """Return an error on one line, with the file and line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f": {error}".rstrip(": .") if with_text else ""
    line = one_line(f"{type(error).__name__}{text}", _LONGEST)
    if isinstance(error, SyntaxError) or len(frames) < 2:  # has a line itself; or at the call here
        return line
    return f"{line} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
