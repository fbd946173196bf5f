"""A headless Chromium, where this machine has one."""

from __future__ import annotations

import shutil
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
def opened(path: Path, width: int, said: list[str]) -> Iterator[Any]:
    """Open a file in a window of that width, and yield the page once all is drawn.

    `said` is appended to: what the console says, errors, and addresses other than the file's.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the tests that need it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_SWITCHES)
        try:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: said.append(f"error: {error}"))
            page.on("request", lambda one: _note_other(said, one.url, path))
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-drawn]", timeout=120_000)
            yield page
        finally:
            browser.close()


def _note_other(said: list[str], address: str, path: Path) -> None:
    if address != path.as_uri() and not address.startswith("data:"):
        said.append(f"request: {address}")
