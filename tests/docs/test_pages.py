"""Links between pages, the files that they name, and the words in which they are written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("fl_core", "clients", "strategies", "fl_app", "experiments")
PAGES = [
    *(ROOT.glob("*.md"), ROOT.glob("docs/**/*.md"), ROOT.glob("examples/**/*.md")),
    [ROOT / "benchmarks/results/README.md"],
]
PAGES = [page for pages in PAGES for page in pages]
# Words with a private meaning, which a stranger cannot guess. Pages under docs/results are written
# from experiments' names, which stored cells have.
PRIVATE_WORDS = (
    *("told", "kept", "heard", "met", "anew", "whoever", "nobody", "everybody"),
    *("roll call", "odd client"),
)


def prose(page):
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """Return the anchors of a page: those that GitHub makes of headings, and those written."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    made = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    return made | set(re.findall('<a id="([^"]+)">', prose(page)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if not path.startswith("http"):
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), link


def test_the_files_that_the_page_of_papers_names_are_there():
    page = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:fl_core|clients|strategies|fl_app|docs)/[\w/.-]+)`", page)
    assert len(named) > 10
    assert all((ROOT / name).exists() for name in named)


def private_words(text):
    """Return the private words of a file, also those in names; names of tests do not count."""
    text = re.sub(r"`[\w/]+\.py::\w+`", "", text).replace("_", " ")
    return re.findall(rf"\b(?:{'|'.join(PRIVATE_WORDS)})s?\b", text, re.IGNORECASE)


def test_code_messages_and_pages_have_no_private_words():
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    paths += [
        page for page in PAGES if page.parent.name != "results" and page.name != "CHANGELOG.md"
    ]
    paths += ROOT.glob("*.toml")
    found = {path: words for path in paths if (words := private_words(path.read_text("utf-8")))}
    assert not found, "say it in the words of the field"
    assert private_words("Nobody met, see `app/x.py::test_nobody`: kept_model") == [
        *("Nobody", "met", "kept"),
    ]
