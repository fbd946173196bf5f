"""Import paths: what they may be, what is imported, and what is said where it is not."""

import sys

import pytest

from fl_core.options import one_of
from fl_core.user_code import (
    call_user_code,
    is_import_path,
    load_user_code,
    or_import_path,
    unload_user_modules,
    user_code_files,
)
from tests.own_modules import own_modules


@pytest.mark.parametrize("path", ["a:b", "my_package.models:make_model", "Ünï.x1:_y"])
def test_import_paths(path):
    assert is_import_path(path)


@pytest.mark.parametrize(
    "value", ["", "mlp", "a:", ":b", "a:b:c", "a.:b", "1a:b", "a b:c", "a:b()", "../a:b", "a:1", 3]
)
def test_what_is_none(value):
    assert not is_import_path(value)


def test_an_option_takes_words_and_import_paths():
    rule = or_import_path(one_of(("mlp", "cnn")))
    assert (rule.read("model", "cnn"), rule.read("model", "a.b:c")) == ("cnn", "a.b:c")
    with pytest.raises(
        ValueError, match=r'"mpl", .* mlp, cnn, or an import path MODULE:NAME\. Did you mean mlp\?'
    ):
        rule.read("model", "mpl")


def test_a_module_of_the_working_directory_hides_none(tmp_path):
    with own_modules(tmp_path, json="def loads(): pass", mine="def f(x): return x + 1"):
        assert call_user_code("model", "mine:f", 1) == 2
        assert load_user_code("model", "json:loads")("1") == 1
        assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_what_is_installed_below_the_working_directory_is_not_reloaded(folder, tmp_path):
    installed = tmp_path / ".local/lib" / folder
    installed.mkdir(parents=True)
    (installed / "compiled.py").touch()  # as NumPy, it cannot be imported twice
    with own_modules(tmp_path, mine="import compiled\n\n\ndef f(): return compiled"):
        sys.path.append(str(installed))
        found = load_user_code("dataset", "mine:f")
        unload_user_modules()
        assert load_user_code("dataset", "mine:f") is not found
        assert load_user_code("dataset", "mine:f")() is found()
    del sys.modules["compiled"]
    project = installed / "project"
    project.mkdir()
    for value in (1, 2):
        with own_modules(project, mine=f"def f(): return {value}"):
            assert load_user_code("dataset", "mine:f")() == value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("__main__:f", "cannot import a script or a notebook: put it into a mod"),
        ("mime:f", r"there is no module mime: it must be installed, .*\. Did you mean mine\?$"),
        ("pack.modle:f", r"there is no module pack\.modle: .* Did you mean model\?$"),
        ("pack.needy:f", r"pack\.needy cannot be imported: it needs no_such, which is not inst"),
        ("mine.Data:load", r"there is no module mine\.Data: it must be installed, .*[^?]$"),
        ("mine.sub.more:x", r"there is no module mine\.sub: it must be installed, .*[^?]$"),
        ("json.decoder.foo:bar", r"there is no module json\.decoder\.foo: it must be .*[^?]$"),
        ("mine:g", r"mine\.py has no g\.$"),
        ("mine:fun", r"mine\.py has no fun\. Did you mean func\?$"),
        ("mine:x", r"x in .*mine\.py is of type int: it must be a function or a class\.$"),
        ("leaves:f", r"leaves cannot be imported: SystemExit: 3 \(leaves\.py, line 2\)\.$"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(path, message, tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.py").touch()
    (package / "needy.py").write_text("import no_such", encoding="utf-8")
    texts = {"mine": "x = 1\n\n\ndef func(): pass", "leaves": "import sys\nsys.exit(3)"}
    with own_modules(tmp_path, **texts):
        with pytest.raises(ValueError, match=f'^model is "{path}", but .*{message}') as caught:
            load_user_code("model", path)
        assert "\n" not in str(caught.value)
        assert user_code_files("pack.model:f") == [
            package / name for name in ("__init__.py", "model.py", "needy.py")
        ]
        assert user_code_files("mine:func") == [tmp_path / "mine.py"]
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder/digits.py").touch()
        (tmp_path / "folder/other.py").touch()
        assert user_code_files("folder.digits:load") == [tmp_path / "folder/digits.py"]
        for nothing in ("folder:f", "folder.nothing:f", "folder.nothing.at_all:f", "nowhere:f"):
            assert user_code_files(nothing) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", r"ZeroDivisionError: division by zero \(mine\.py, line 2\)\.$"),
        ("raise ValueError('two\\nlines')", r"ValueError: two lines \(mine\.py, line 2\)\.$"),
        ("raise SystemExit", r"SystemExit \(mine\.py, line 2\)\.$"),
    ],
)
def test_what_a_function_raises_is_shown_with_its_line(body, message, tmp_path):
    with (
        own_modules(tmp_path, mine=f"def f(shape, classes):\n    {body}"),
        pytest.raises(ValueError, match=rf"but the call f\(.*\) fails: .*{message}"),
    ):
        call_user_code("model", "mine:f", (1,), 2)


def test_a_wrong_signature_says_how_it_is_called(tmp_path):
    with (
        own_modules(tmp_path, mine="def f(): pass"),
        pytest.raises(ValueError, match=r"the call f\(samples\) fails: TypeError: f\(\) t"),
    ):
        call_user_code("features", "mine:f", 1)


def test_what_lies_in_no_file_has_none():
    assert user_code_files("sys:exit") == user_code_files("os:getcwd") == []
