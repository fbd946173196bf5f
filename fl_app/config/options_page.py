"""`make options`: writes the declared options into pyproject.toml and docs/options.md."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fl_app.config.run_config import OF_STRATEGIES, Config
from fl_core.objectives.known import OBJECTIVES
from fl_core.options import Option, key_of, options_of
from fl_core.text import markdown_line
from strategies.catalogue import AGGREGATIONS, SYSTEMS, Part, parameters

ROOT = Path(__file__).parents[2]
START = "# Written by `make options`, from the fields that declare the options (docs/options.md).\n"
END = "# The end of what `make options` writes.\n"

_PAGE = """# Every option

`fedkin run` takes any of these as `KEY=VALUE`, `flwr run` in its `--run-config`. `make options` \
writes this page and the defaults in `pyproject.toml` from the fields that declare them.

`fedkin run` refuses wrong values before it starts anything, names all of them, and ends with exit \
status 2; a line that begins with `warning:` is an option that has no effect. `flwr run` knows \
the keys, but no values: its exit status is 0, and the log (`--stream`, or `flwr log RUN_ID`) has \
one line that begins with `error:`.
"""
_HEAD = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n"


def main() -> None:
    """Write both files."""
    for path, content in written(ROOT).items():
        path.write_text(content, encoding="utf-8")


def written(root: Path) -> dict[Path, str]:
    """Return the texts that the files of a checkout should have, by path."""
    pyproject = root / "pyproject.toml"
    before, _, rest = pyproject.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return {
        pyproject: f"{before}{START}{_run_config()}{END}{after}",
        root / "docs/options.md": _page(),
    }


def _groups() -> Iterator[tuple[str, Mapping[str, Option]]]:
    """Yield a heading for each owner, and its options by key."""
    for owner in (Config, *reversed(Config.__bases__)):
        # The first sentence of what the class says of itself, as far as a colon.
        heading = re.split(r"[.:]", owner.__doc__ or "")[0]
        options = options_of(owner)
        keys = (name.replace("_", "-") for name in owner.__annotations__)
        yield heading, {key: options[key] for key in keys if key in options}
    yield "What only some strategies have", OF_STRATEGIES


def _meaning(key: str, one: Option) -> str:
    """Return an option's meaning, after the strategies, or parts of them, that it belongs to."""
    if key not in OF_STRATEGIES:
        return one.meaning
    owners: dict[str, tuple[Part, ...]] = {name: one.parts for name, one in SYSTEMS.items()}
    named = {part for one in SYSTEMS.values() for part in one.parts}
    owners |= {name: (part,) for name, part in AGGREGATIONS.items() if part not in named}
    for name, part in OBJECTIVES.items():
        owners.setdefault(name, (part,))
    takers = (
        f"`{name}`"
        for name, parts in owners.items()
        if any(key in map(key_of, parameters(part).values()) for part in parts)
    )
    return f"{', '.join(takers)}: {one.meaning}"


def _run_config() -> str:
    lines = ["[tool.flwr.app.config]"]
    for heading, options in _groups():
        lines += ["", f"# {heading}.", ""]
        lines += [f"{key} = {json.dumps(one.default)}" for key, one in options.items()]
    return "\n".join(lines) + "\n\n"


def _page() -> str:
    parts = [_PAGE]
    for heading, options in _groups():
        rows = "".join(_row(key, one) for key, one in options.items())
        parts.append(f"## {heading}\n\n{_HEAD}{rows}")
    return "\n".join(parts)


def _row(key: str, one: Option) -> str:
    linked = re.sub(r"docs/([\w-]+\.md(#[\w-]+)?)", r"[\g<0>](\1)", _meaning(key, one))
    value = one.default
    default = value if value and isinstance(value, str) else json.dumps(value)
    return markdown_line((f"`{key}`", f"`{default}`", one.rule.allowed, linked)) + "\n"


if __name__ == "__main__":
    main()
