"""What the site is made of: the repository's pages at their paths, and the API by folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    *("README.md", "docs/*.md", "docs/measured/*.md", "docs/results/*.md"),
    *("benchmarks/results/README.md", "examples/README.md", "examples/*/README.md"),
)
# The four kinds of page, in the order in which they are read.
TUTORIALS = ("tutorial-student", "tutorial-engineer", "tutorial-researcher")
HOW_TO = (
    *("simulation", "data", "grouping", "verdicts", "sweeps", "reports", "python"),
    *("own-code", "adding", "devices", "devices-reference", "scale"),
)
REFERENCE = ("options", "results", "faults", "papers")
EXPLANATION = ("methods", "comparing-clients", "privacy")
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
# What pages link to, or show.
LINKED = (
    "docs/pictures/*",
    "benchmarks/results/*.txt",
    "benchmarks/results/*.xz",
    "experiments/results/**/*.xz",
    "docs/results/*.png",
    "experiments/*.toml",
    "experiments/*.py",
    "deploy/*",
    "fl_app/results/gains.py",
    "examples/*/**/*.py",
    "examples/notebooks/*.ipynb",
    "pyproject-flwr.toml",
    "LICENSE",
    "CITATION.cff",
)
ROOMS = (
    "fl_core",
    *(f"fl_core/{room}" for room in ("data", "partitions", "models", "agreement", "messages")),
    "clients",
    *(f"clients/{room}" for room in ("training", "features", "signatures")),
    "strategies",
    *(f"strategies/{room}" for room in ("rounds", "aggregations", "clusterings")),
    "fl_app",
    "fl_app/config",
    "fl_app/report",
    "fl_app/results",
    "fl_app/run",
    "fl_app/simulation",
    "fl_app/devices",
    "fl_app/group",
    "fl_app/sweeps",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages; their titles are their first headings."""
    papers = _found("docs/results/README.md", "docs/results/[!R]*.md")
    reference = [
        *_pages(REFERENCE),
        {"Measurements": _found("benchmarks/results/README.md", "docs/measured/*.md")},
        {"The papers again": papers},
        {"API": [{_dotted(room): _api_page(room)} for room in ROOMS]},
    ]
    examples = _found("examples/README.md", "examples/*/README.md")
    config.nav = [
        {"Home": "README.md"},
        {"Tutorials": _pages(TUTORIALS)},
        {"How to": [*_pages(HOW_TO), {"Examples": examples}]},
        {"Reference": reference},
        {"Explanation": _pages(EXPLANATION)},
        {"Project": _found(*PROJECT)},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the repository's files in the place of those of `docs_dir`, and add the API."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for path in _found(*SHOWN, *PROJECT, *LINKED):
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for room in ROOMS:
        files.append(File.generated(config, _api_page(room), content=_api(room)))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Undo in tables what GitHub wants: code with a bar has a backslash."""
    return re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.S)


def _pages(names: tuple[str, ...]) -> list[str]:
    return [f"docs/{name}.md" for name in names]


def _found(*patterns: str) -> list[str]:
    """Return the files that match, relative to the repository: pattern by pattern, sorted."""
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [path.relative_to(ROOT).as_posix() for path in paths if path.is_file()]


def _api_page(room: str) -> str:
    return f"api/{_dotted(room)}.md"


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _api(room: str) -> str:
    """Return a page that shows every module of a room that has something public."""
    init = ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8"))
    lines = [f"# {_dotted(room)}", "", ast.get_docstring(init) or "", ""]
    exported = [
        f"[`{alias.name}`][{node.module}.{alias.name}]"
        for node in ast.walk(init)  # what is imported where it is used stands within an `if`
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_dotted(room))
        for alias in node.names
    ]
    if exported:
        lines += [f"Importable from `{_dotted(room)}` itself: {', '.join(exported)}.", ""]
    for module in _modules(room):
        lines += [f"## {module}", "", f"::: {module}", "    options:"]
        lines += ["      show_root_heading: false", "      show_root_toc_entry: false", ""]
    return "\n".join(lines)


def _modules(room: str) -> list[str]:
    """Return a room's modules, those of its packages that are no rooms of their own included."""
    paths = [path for path in _found(f"{room}/**/*.py") if not path.endswith("__init__.py")]
    return [_dotted(path) for path in paths if _owner(path) == room]


def _owner(path: str) -> str:
    """Return the innermost room that holds a file."""
    return max((room for room in ROOMS if path.startswith(f"{room}/")), key=len)
