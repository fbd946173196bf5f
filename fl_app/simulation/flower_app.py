"""The package as a Flower app: what describes it, and a folder that `flwr run` takes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FILE = "pyproject.toml"
_WANTED = "name the project's folder with --app, or leave --app out."


def installed_app() -> Path:
    """Return the folder whose pyproject.toml describes the app that is running.

    A wheel carries the file within `fl_app` (setup.py); in a checkout, and in the bundle that
    Flower makes of one, it lies beside it.
    """
    package = Path(__file__).parents[1]
    return package if (package / _FILE).is_file() else package.parent


def read_defaults(app: Path) -> dict[str, Any]:
    """Return every run-config key and its default.

    Raises
    ------
    ValueError
        If `app` holds no Flower app.
    """
    config = _read(app)["tool"]["flwr"]["app"].get("config")
    if not config or not isinstance(config, dict):
        raise ValueError(_no_app(app))
    return config


def parse_override(text: str, defaults: Mapping[str, Any]) -> tuple[str, Any]:
    """Read KEY=VALUE; it is text where the default is, or where it is not a TOML scalar.

    Examples
    --------
    >>> parse_override("repeats=3", {"repeats": 1})
    ('repeats', 3)
    >>> parse_override("output-dir=2024.10", {"output-dir": ""})
    ('output-dir', '2024.10')
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{text} is not of the form KEY=VALUE, such as repeats=3.")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
    if isinstance(read, str):
        return key, read
    is_text = isinstance(defaults.get(key), str)
    return key, value if is_text or not isinstance(read, int | float | bool) else read


def read_overrides(
    words: Sequence[str], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Read words KEY=VALUE, the last of each key; return a sentence for each that is not read.

    Examples
    --------
    >>> read_overrides(["seed=1", "seed=2"], {"seed": 0})
    ({'seed': 2}, ['seed=1 changes nothing: seed=2 is given after it.'])
    """
    read = [(*parse_override(word, defaults), word) for word in words]
    last = {key: word for key, _, word in read}
    twice = [
        f"{word} changes nothing: {last[key]} is given after it."
        for key, _, word in read
        if word is not last[key]
    ]
    return {key: value for key, value, _ in read}, twice


def write_app(folder: Path) -> Path:
    """Write an app folder without code, for `flwr run` in the environment that this code is in.

    What the checkout's own folder asks Flower to bundle is not there in a wheel, and not needed:
    the app's modules are found where they are installed. `folder` is made here, and returned.
    """
    described = _read(installed_app())
    project, app = described["project"], described["tool"]["flwr"]["app"]
    tables = {
        "project": {name: project[name] for name in ("name", "version", "description")}
        | {"license": "Apache-2.0"},
        "tool.flwr.app": {"publisher": app["publisher"]},
        "tool.flwr.app.components": app["components"],
        "tool.flwr.app.config": app["config"],
    }
    folder.mkdir()
    text = "".join(f"[{name}]\n{toml_lines(table)}\n" for name, table in tables.items())
    (folder / _FILE).write_text(text, encoding="utf-8")
    return folder


def toml_lines(table: Mapping[str, Any]) -> str:
    """Return a table of scalars as TOML.

    Examples
    --------
    >>> print(toml_lines({"seed": 0, "strategy": "flt,single"}), end="")
    seed = 0
    strategy = "flt,single"
    """
    # JSON's scalars are TOML's, but for its escapes of what is not in Unicode's first plane.
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items()
    )


def _read(app: Path) -> dict[str, Any]:
    path = app / _FILE
    if not path.is_file():
        raise ValueError(f"{app} holds no {_FILE}: {_WANTED}")
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no TOML ({error}): mend it, or leave --app out.") from error
    inner: Any = described
    for key in ("tool", "flwr", "app"):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        raise ValueError(_no_app(app))
    return described


def _no_app(app: Path) -> str:
    return f"{app / _FILE} describes no Flower app: {_WANTED}"
