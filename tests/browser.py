"""A headless Chromium, where this machine has one.

`python -m tests.browser REPORT.html PICTURE.png` takes the picture of docs/reports.md, of what
`make run` wrote.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--disable-extensions"),
)
need_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)


@contextmanager
def started() -> Iterator[Any]:
    """Start the browser; while it is there, this thread has an event loop, as Playwright needs."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the tests that need it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_SWITCHES)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, width: int, said: list[str]) -> Iterator[Any]:
    """Open a file in a window of that width, and yield the page once all is drawn.

    `said` is appended to: what the console says, errors, and addresses other than the file's.
    """
    page = browser.new_page(viewport={"width": width, "height": 900})  # with a profile of its own
    try:
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda one: _note_other(said, one.url, path))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=120_000)
        yield page
    finally:
        page.close()


def _note_other(said: list[str], address: str, path: Path) -> None:
    if address != path.as_uri() and not address.startswith("data:"):
        said.append(f"request: {address}")


if __name__ == "__main__":
    with started() as chromium, opened(chromium, Path(sys.argv[1]).absolute(), 1000, []) as shown:
        part = {"x": 0, "y": 0, "width": 1000, "height": 1240}
        shown.screenshot(path=sys.argv[2], clip=part, full_page=True)
