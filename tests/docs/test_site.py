"""The site of `make docs`: it is built without a warning, and loads nothing from elsewhere."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import strategies

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow
built = pytest.mark.faults  # in half a minute


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@built
def test_the_api_has_every_public_name(site):
    rooms = site.glob("api/*.html")
    pages = "".join(page.read_text(encoding="utf-8") for page in rooms)
    for name, value in vars(strategies).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            assert f'id="{value.__module__}.{name}"' in pages
    assert "strategies._" not in pages


@built
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site):
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert {"index.html", "CONTRIBUTING.html", "SECURITY.html", "api/fl_core.html"} <= pages
    assert {f"docs/{page.stem}.html" for page in (ROOT / "docs").glob("*.md")} <= pages
    for page in pages:
        text = (site / page).read_text(encoding="utf-8")
        assert not re.search(r'\bsrc="(https?:)?//', text), page
        assert not re.search(r'<link [^>]*href="(https?:)?//', text), page


def test_every_page_is_of_one_kind():
    hook = runpy.run_path(str(ROOT / "docs/mkdocs_hook.py"))
    kinds = [
        name for kind in ("TUTORIALS", "HOW_TO", "REFERENCE", "EXPLANATION") for name in hook[kind]
    ]
    assert sorted(kinds) == sorted(page.stem for page in (ROOT / "docs").glob("*.md"))


@built
def test_code_in_tables_reads_as_it_is_typed(site):
    assert "<code>0,2,4|6,8,1|3,5,7,9</code>" in (site / "docs/options.html").read_text(
        encoding="utf-8"
    )
