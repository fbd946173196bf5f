"""Each tutorial's commands work with the extra that it names, and without all other packages."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.example_runs import EXAMPLES, ROOT, typed

AS_INSTALLED = """
import json, runpy, sys

class Without:
    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in self.hidden else self.finder.find_spec(name, *rest)

hidden, commands = json.load(sys.stdin)
loaded = {name.partition(".")[0] for name in sys.modules}
sys.meta_path = [Without(finder, set(hidden) - loaded) for finder in sys.meta_path]
sys.path[:0] = ["."]
for name, *words in commands:
    if name == "fedkin":
        from fl_app.cli import main
        try:
            assert main(words) == 0, words
        except SystemExit as ended:
            assert ended.code == 0, words
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
"""


def distributions_of(extra):
    """Return the distributions that `pip install fedkin[extra]` installs."""
    found, waiting = set(), [("fedkin", extra)]
    while waiting:
        name, wanted = one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for line in requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                called = canonicalize_name(needed.name)
                waiting += [(called, ""), *((called, one) for one in needed.extras)]
    return {name for name, _ in found}


def shortened(words):
    """Return a command that imports what the tutorial's does and takes less time."""
    rest = {"group": ["--resamples", "0"], "report": ["--help"]}
    others = ["--dry-run"] if words[1] in ("run", "trial", "sweep") else []
    return [*words, *rest.get(words[1], others)] if words[0] == "fedkin" else words


@pytest.mark.parametrize("name", ["student", "engineer", "researcher"])
def test_a_tutorial_needs_no_other_extra_than_the_one_it_names(tmp_path, monkeypatch, name):
    page = ROOT / f"docs/tutorial-{name}.md"
    (extra,) = re.findall(r"extra `(\w+)`", page.read_text(encoding="utf-8"))
    there = distributions_of(extra)
    hidden = [
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(one) for one in names} & there
    ]
    assert {"pytest", "opacus"} <= set(hidden)
    commands = [shortened(words) for words in typed(page) if words[0] in ("fedkin", "python")]
    example = {"engineer": "own_images", "researcher": "own_code"}.get(name)
    if example:
        shutil.copytree(EXAMPLES / example, tmp_path / "here")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "here" if example else tmp_path
    command = [sys.executable, "-c", AS_INSTALLED]
    words = json.dumps([hidden, commands])
    done = subprocess.run(
        command, cwd=folder, input=words, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
