"""`pytest strategies` runs the strategies' tests, too; the same for each package."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
TESTS = {"fl_core": "core", "clients": "clients", "strategies": "strategies", "fl_app": "app"}
ADDED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Add the folder of tests of each package that was requested whole."""
    requested = {Path(argument).resolve() for argument in config.args}
    packages = [name for name in TESTS if ROOT / name in requested]
    tests = [ROOT / "tests" / TESTS[name] for name in packages]
    config.stash[ADDED] = [str(path) for path in tests if not requested & {path, ROOT / "tests"}]
    config.args += config.stash[ADDED]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which tests were added."""
    for path in config.stash[ADDED]:
        terminalreporter.line(f"with the tests in {Path(path).relative_to(ROOT)}")
