"""What the site is made of: the repository's pages where they lie, and the API by room.

The pages keep their places, so the links between them that work in the repository work here. The
page for contributors is given a picture of the folders and of who imports whom.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    *("README.md", "docs/*.md", "docs/measured/*.md", "docs/results/*.md"),
    *("examples/README.md", "examples/*/README.md"),
)
# The four kinds of page, in the order in which they are read.
TUTORIALS = ("tutorial-student", "tutorial-engineer", "tutorial-researcher")
HOW_TO = (
    *("install", "simulation", "data", "grouping", "verdicts", "sweeps"),
    *("reports",),
    *("python", "reproduce", "own-code", "own-app", "adding"),
    *("devices", "devices-reference", "scale"),
)
REFERENCE = ("options", "results", "faults", "papers")
EXPLANATION = (*("methods", "comparing-clients", "privacy", "robustness"),)
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
# What pages link to, or show.
LINKED = (
    "docs/pictures/*",
    "benchmarks/results/*",
    "experiments/results/**/*.xz",
    "docs/results/*.png",
    "experiments/*.toml",
    "experiments/*.py",
    "deploy/*",
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
        {"Measurements": _found("docs/measured/*.md")},
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


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Draw the folders, and undo in tables what GitHub wants: code with a bar has a backslash."""
    if page.file.src_uri == "CONTRIBUTING.md":
        html = html.replace("</h1>", f"</h1>{house()}", 1)
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


HOUSES = (("fl_app",), ("clients", "strategies"), ("fl_core",))
WIDTH, ROW, BOX = 1000, 62, 30  # of the picture, a floor, a room's box, in pixels
PAPER = "var(--md-default-bg-color, white)"


def house() -> str:
    """Draw the packages' rooms as SVG, and who imports whom but for what follows from that."""
    parts, top, above = [], 0, list[float]()
    for storey in HOUSES:
        width = WIDTH / len(storey)
        floors = {name: _floors(reduced(_imports(name))) for name in storey}
        height = 40 + ROW * max(map(len, floors.values()))
        middles = [width * (place + 0.5) for place in range(len(storey))]
        parts += [_arrow(x, top - 30, to, top) for x in above for to in middles]
        for middle, name in zip(middles, storey, strict=True):
            parts.append(_package(name, floors[name], (middle, top), (width, height)))
        top, above = top + height + 30, middles
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
    )
    return (
        f'<svg class="house" viewBox="0 0 {WIDTH} {top}" stroke="currentColor" fill="none" '
        'font-size="15" font-family="sans-serif" role="img" '
        f'aria-label="Rooms, and who imports whom"><defs>{head}</defs>{"".join(parts)}</svg>'
    )


def _floors(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Put each room above those that it imports, the highest floor first."""
    found: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in found:
            found[room] = 1 + max(map(floor, imports[room]), default=-1)
        return found[room]

    highest = max(map(floor, imports), default=-1)
    return [[r for r in imports if found[r] == n] for n in range(highest, -1, -1)]


def _package(
    name: str, floors: list[list[str]], at: tuple[float, float], size: tuple[float, float]
) -> str:
    """Draw a package and its rooms: each floor in the order of those that import from it."""
    (middle, top), (width, height) = at, size
    left = middle - width / 2
    parts = [
        f'<rect x="{left + 8:.0f}" y="{top:.0f}" width="{width - 16:.0f}" height="{height}" '
        f'rx="8" opacity="0.5"/>{_words(name, left + 20, top + 22, "start", "bold")}'
    ]
    imports = reduced(_imports(name))
    places: dict[str, tuple[float, float]] = {}
    for number, floor in enumerate(floors):
        over = {r: [x for one, (x, _) in places.items() if r in imports[one]] for r in floor}
        ordered = sorted(floor, key=lambda room: sum(over[room]) / max(1, len(over[room])))
        shift = width / 14 * (-1) ** number  # so that long arrows pass beside the rooms
        for place, room in enumerate(ordered, 1):
            x = left + width * place / (len(floor) + 1) + shift
            places[room] = (x, top + 40 + number * ROW)
    for room, (x, y) in places.items():
        for other in sorted(imports[room]):
            said = f'data-arrow="{name}/{room} {name}/{other}"'
            parts.append(_arrow(x, y + BOX, *places[other], said))
    for room, (x, y) in places.items():  # before the arrows that pass
        half = 8 + 4.5 * len(room)
        parts.append(
            f'<g><title>{_says(f"{name}/{room}")}</title><rect x="{x - half:.0f}" y="{y:.0f}" '
            f'width="{2 * half:.0f}" height="{BOX}" rx="5" style="fill: {PAPER}"/>'
            f"{_words(room, x, y + 20)}</g>"
        )
    return "".join(parts)


def _arrow(x: float, y: float, to_x: float, to_y: float, said: str = "") -> str:
    return (
        f'<line {said} x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" opacity="0.6" '
        'marker-end="url(#head)"/>'
    )


def _words(text: str, x: float, y: float, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'stroke="none" fill="currentColor">{text}</text>'
    )


def _says(room: str) -> str:
    init = ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(init) or "").partition("\n")[0].replace("&", "&amp;")


def _imports(package: str) -> dict[str, set[str]]:
    """Find which of a package's rooms each of them imports."""
    rooms = [Path(path).parent.name for path in _found(f"{package}/*/__init__.py")]
    found: dict[str, set[str]] = {}
    for room in rooms:
        names = set()
        for path in (ROOT / package / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom):
                    names |= {f"{node.module}.{alias.name}" for alias in node.names}
                elif isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
        inside = {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
        found[room] = inside & set(rooms) - {room}
    return found


def reduced(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out the arrows that follow from the others."""

    def reached(room: str) -> set[str]:
        return arrows[room].union(*map(reached, arrows[room]))

    return {
        room: {one for one in below if not any(one in reached(other) for other in below)}
        for room, below in arrows.items()
    }
