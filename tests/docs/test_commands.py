"""Every `fedkin run`, `group` and `sweep` on a page is made of options that there are."""

import pytest

from fl_app.config.run_config import parse_config, parse_override
from fl_core.user_code import is_import_path
from tests.app_runs import DEFAULTS, ROOT
from tests.example_runs import typed

PAGES = [
    *(path for path in ROOT.glob("docs/*.md") if path.stem != "adding"),
    *(ROOT.glob("examples/*/README.md")),
    *(ROOT / "README.md", ROOT / "benchmarks/results/README.md"),
]
COMMANDS = sorted(
    {
        (words[1], *(word for word in words[2:] if "=" in word and not word.startswith("-")))
        for page in PAGES
        for words in typed(page, "fedkin run ", "fedkin group ", "fedkin sweep ")
    }
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_command_has_options_that_there_are(command):
    name, *words = command
    if name == "sweep":  # lists of values: only that the keys exist
        assert {word.partition("=")[0] for word in words} <= DEFAULTS.keys()
        return
    options = dict(parse_override(word) for word in words)
    named = {key: value for key, value in options.items() if not is_import_path(str(value))}
    if named.get("strategy"):  # user-defined parts are imported from where they are
        known = [one for one in str(named["strategy"]).split(",") if ":" not in one]
        named["strategy"] = ",".join(known)
    parse_config({**DEFAULTS, **named})
