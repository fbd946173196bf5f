"""The benchmarks of differential privacy show no old row under new settings."""

import pytest

from benchmarks import privacy, private_training
from benchmarks.writing import read


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Return a function that runs the benchmark, and says what it measured and what it wrote."""
    path = tmp_path / "private-training.json"

    def run(*epsilons):
        asked = []

        def measure(epsilon, workers):
            asked.append(epsilon)
            return [{"seed": 0, "ari": 1.0, "accuracy": 0.5}]

        monkeypatch.setattr(private_training, "measure", measure)
        given = ["private_training", "--output", str(path), "--epsilons", *map(str, epsilons)]
        monkeypatch.setattr("sys.argv", given)
        assert private_training.main() == 0
        return asked, read(path)

    return run


def test_the_training_is_measured_again_if_its_options_change(training, monkeypatch, capsys):
    asked, written = training(1, 0)
    assert asked == [1, 0]
    assert [row["epsilon"] for row in written["rows"]] == [0, 1]
    assert training(1, 8)[0] == [8]
    assert "anew" not in capsys.readouterr().out
    other = {**private_training.OPTIONS, "num-server-rounds": 99}
    monkeypatch.setattr(private_training, "OPTIONS", other)
    asked, written = training(1)
    assert asked == [1]
    assert written["options"] == other
    assert [row["epsilon"] for row in written["rows"]] == [1]
    assert "was measured with other settings" in capsys.readouterr().out


def test_the_pre_round_is_measured_again_if_its_settings_change(tmp_path, monkeypatch):
    path, asked = tmp_path / "privacy.json", []

    def measure(dataset, partition, seed):
        asked.append((dataset, seed))
        named = {"partition": partition, "relevance": "paper", "epsilon": 0}
        return [{**named, "ari": 1.0, "auc": 1.0, "most-common": 1.0}]

    def measure_sizes(seed):
        asked.append(("sizes", seed))
        return [{"features": "whole", "images": 50, "epsilon": 8, "ari": 1.0}]

    monkeypatch.setattr(privacy, "measure", measure)
    monkeypatch.setattr(privacy, "measure_sizes", measure_sizes)
    monkeypatch.setattr(privacy, "raw_pixels_resemblance", lambda: 1.0)
    monkeypatch.setattr(privacy, "tables", lambda measured: {})
    monkeypatch.setattr(privacy, "threadpool_limits", lambda number: None)  # of other tests, too
    monkeypatch.setattr(privacy, "KINDS", ("label",))
    monkeypatch.setattr(privacy, "SEEDS", 1)
    monkeypatch.setattr(privacy, "SIZE_SEEDS", 1)
    monkeypatch.setattr("sys.argv", ["privacy", "--output", str(path), "--datasets", "mnist"])
    privacy.main()
    assert asked == [("mnist", 0), ("sizes", 0)]
    privacy.main()
    assert len(asked) == 2
    monkeypatch.setattr(privacy, "DELTA", 1e-6)
    privacy.main()
    assert asked[2:] == asked[:2]
    assert read(path)["delta"] == 1e-6
