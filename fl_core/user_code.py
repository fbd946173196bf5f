"""Code of one's own, which a run configuration names by import path: `package.module:name`.

It is found as `python -m` finds a module: installed, on PYTHONPATH, or in the working directory.
Whoever starts a run names it; a device runs only what its owner allows
(`fl_app.config.allowed_code`).
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from sysconfig import get_path
from typing import Any

from fl_core.options import NotAllowedError, Rule, did_you_mean
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
_STANDARD = {get_path("stdlib"), get_path("platstdlib")}  # perhaps in one's home folder, too
_INSTALLED = {"site-packages", "dist-packages"}  # by pip, perhaps in one's home folder
_LONGEST = 300  # characters of what went wrong in somebody's code

# The modules that the working directory has given: `forget_own` lets them be read anew.
_brought: set[str] = set()


def is_own(value: object) -> bool:
    """Return whether a value names code of one's own.

    Examples
    --------
    >>> is_own("my_package.models:make_model"), is_own("random:5"), is_own("mlp")
    (True, False, False)
    """
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


def or_own(rule: Rule) -> Rule:
    """Allow the import path of code of one's own, too."""

    def parse(value: Any) -> Any:
        return value if is_own(value) else rule.parse(value)

    return replace(rule, allowed=f"{rule.allowed}, or your own as MODULE:NAME", parse=parse)


def _parse_empty(value: Any) -> str:
    if value != "":
        raise NotAllowedError
    return ""


OWN_OR_EMPTY = or_own(Rule("empty", _parse_empty))


def load_own(key: str, path: str, *, is_private: bool = False) -> Any:
    """Import what an import path names; its module's code is run.

    Parameters
    ----------
    key : str
        The run-config key that names it, for what is said.
    path : str
        As `is_own` wants it.
    is_private : bool
        Whether what it raises may name somebody's data, and others hear of it: then its text stands
        in this process' log alone.

    Raises
    ------
    ValueError
        If there is no such module, it cannot be imported, or has nothing of this name that can be
        called.
    """
    module_name, _, name = path.partition(":")
    if module_name == "__main__":
        raise ValueError(
            f'{key} is "{path}", but other processes run this, and what is in a script or a '
            "notebook does not reach them: put it into a module beside it."
        )
    try:
        with _working_directory_last():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f'{key} is "{path}", but {_not_there(module_name, error)}') from error
    except (Exception, SystemExit) as error:
        if is_stop(error):
            raise
        raise ValueError(
            f'{key} is "{path}", but {module_name} cannot be imported: {_told(error, is_private)}.'
        ) from error
    where = getattr(module, "__file__", None) or module_name
    if not hasattr(module, name):
        here = [
            n for n, one in vars(module).items() if getattr(one, "__module__", "") == module_name
        ]
        meant = did_you_mean(name, here)
        raise ValueError(f'{key} is "{path}", but {where} has no {name}.{meant and f" {meant}"}')
    found = getattr(module, name)
    if not callable(found):
        raise ValueError(
            f'{key} is "{path}", but {name} in {where} is of type {type(found).__name__}: it must '
            "be a function or a class."
        )
    return found


def call_own(key: str, path: str, *arguments: Any, is_private: bool = False) -> Any:
    """Call a function of somebody's own and return what it returns; parameters as of `load_own`.

    Raises
    ------
    ValueError
        As `load_own`, or with what the function raises and where.
    """
    return own_function(key, path, is_private=is_private)(*arguments)


def own_function(key: str, path: str, *, is_private: bool = False) -> Callable[..., Any]:
    """Return a function of somebody's own, to be called often; as `call_own` in all else."""
    function = load_own(key, path, is_private=is_private)

    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:
            if is_stop(error):
                raise
            shown = f"{path.partition(':')[2]}({_ARGUMENTS.get(key, '')})"
            told = _told(error, is_private)
            raise ValueError(
                f'{key} is "{path}", but {shown}, as it is called, fails: {told}.'
            ) from error

    return called


def own_files(path: str) -> list[Path]:
    """Return the Python files of what an import path names: its whole package, or its module.

    Of a folder that is no package, having no ``__init__.py``, it is the module alone.
    """
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


def forget_own() -> None:
    """Let modules of the working directory be read anew: in a notebook, they change."""
    for name in _brought:
        sys.modules.pop(name, None)
    _brought.clear()
    importlib.invalidate_caches()


@contextmanager
def _working_directory_last() -> Iterator[None]:
    """Look for modules in the working directory, too: after all others, so that it hides none."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    before = set(sys.modules)
    try:
        yield
    finally:
        _brought.update(name for name in set(sys.modules) - before if _lies_in(here, name))


def _lies_in(folder: str, module_name: str) -> bool:
    """Return whether a module is a folder's own; what was installed below it is not."""
    file = Path(getattr(sys.modules.get(module_name), "__file__", None) or "")
    if not file.is_relative_to(folder) or any(map(file.is_relative_to, _STANDARD)):
        return False
    return _INSTALLED.isdisjoint(file.relative_to(folder).parts)


def _not_there(module_name: str, error: ModuleNotFoundError) -> str:
    missing = error.name or module_name
    if not f"{module_name}.".startswith(f"{missing}."):
        return f"{module_name} cannot be imported: it needs {missing}, which is not installed."
    package, _, last = missing.rpartition(".")
    meant = did_you_mean(last, _modules_in(package))
    return (
        f"there is no module {missing}: it must be installed, on PYTHONPATH, or in {Path.cwd()}."
        f"{meant and f' {meant}'}"
    )


def _modules_in(package: str) -> Iterable[str]:
    places = [str(Path.cwd())]
    if package in sys.modules:  # perhaps as a module, which has none
        places = list(getattr(sys.modules[package], "__path__", []))
    return [one.name for one in iter_modules(places)]


def is_stop(error: BaseException) -> bool:
    """Return whether Flower ends the program, which was told to stop: nobody's code has failed."""
    frames = traceback.extract_tb(error.__traceback__)
    ended = isinstance(error, SystemExit) and frames
    return bool(ended) and "flwr" in Path(frames[-1].filename).parts


def _told(error: BaseException, is_private: bool) -> str:
    if not is_private:
        return what_failed(error)
    logger.warning("others are told of this without its text:", exc_info=error)
    return f"{what_failed(error, with_text=False)}; this site's log says more"


def what_failed(error: BaseException, *, with_text: bool = True) -> str:
    """Say on one line what was raised, and in which line of whose file."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f": {error}".rstrip(": .") if with_text else ""
    said = one_line(f"{type(error).__name__}{text}", _LONGEST)
    if isinstance(error, SyntaxError) or len(frames) < 2:  # says where itself; or at our own call
        return said
    return f"{said} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
