"""Benchmarks measure what is missing, and show no old row under new settings."""

import pytest

from benchmarks import harness, privacy, private_training
from benchmarks.writing import read


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what runs a benchmark of numbers, with this header; it returns what was measured."""
    path = tmp_path / "numbers.json.xz"

    def call(*numbers, header):
        measured = []

        def measure(found, expected):
            rows = found.setdefault("rows", [])
            for one in expected:
                if one not in rows:
                    measured.append(one)
                    rows.append(one)
                    yield f"{one} is measured"

        words = ["benchmark", "--output", str(path), "--expected", *map(str, numbers)]
        monkeypatch.setattr("sys.argv", words)
        harness.command("", "", measure, lambda found: {"t": "table"}, header, expected=[0])
        return measured, read(path)

    return call


def test_only_what_is_missing_is_measured_and_all_of_it_under_other_settings(run, capsys):
    assert run(1, 2, header={"seeds": (3,)}) == ([1, 2], {"seeds": [3], "rows": [1, 2]})
    assert capsys.readouterr().out == "1 is measured\n2 is measured\n\nt\n\ntable\n"
    assert run(2, 4, header={"seeds": (3,)})[0] == [4]
    assert "measured again" not in capsys.readouterr().out
    assert run(2, header={"seeds": (5,)}) == ([2], {"seeds": [5], "rows": [2]})
    assert "was measured with other settings" in capsys.readouterr().out


def test_what_is_interrupted_is_stored(tmp_path, monkeypatch):
    path = tmp_path / "numbers.json.xz"

    def measure(found):
        found["first"] = 1
        yield "first"
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["benchmark", "--output", str(path)])
    with pytest.raises(KeyboardInterrupt):
        harness.command("", "", measure, lambda found: {})
    assert read(path) == {"first": 1}


def test_private_training_simulates_each_epsilon_once(monkeypatch):
    asked = []

    def summary(options, clients, workers):
        asked.append(options["training-epsilon"])
        return {"runs": [{"seed": 0, "ari": 1.0, "accuracy": 0.5, "other": 1}]}

    monkeypatch.setattr(harness, "summary_of", summary)
    found = {"rows": [{"epsilon": 1.0, "runs": []}]}
    assert len(list(private_training.measure(found, [1.0, 0.0], 1))) == 1
    assert asked == [0]
    assert [row["epsilon"] for row in found["rows"]] == [0, 1]
    assert found["rows"][0]["runs"] == [{"seed": 0, "ari": 1.0, "accuracy": 0.5}]


def test_the_settings_of_privacy_are_those_of_its_numbers(monkeypatch):
    before = privacy.header()
    monkeypatch.setattr(privacy, "DELTA", 1e-6)
    assert privacy.header() != before
