"""Stored cells follow a change of the options."""

import pytest

from experiments import upgrade
from experiments.experiment_file import Experiment
from fl_app.sweeps.store import read_cells, resolved_options, write_cells

GIVEN = {"strategy": "rcc-pfl", "num-clients": 4, "linkage": "ward"}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Return what writes cells with these more options and upgrades them by these words."""
    monkeypatch.setattr(upgrade, "RESULTS", tmp_path)
    path = tmp_path / "digits.json.xz"

    def call(words, *more):
        options = resolved_options(Experiment.config(GIVEN))
        more_of_all = {"revision": "a", "workers": 0, "seconds": 1.0, "versions": {}}
        place = {"row": "a", "column": "b", "variant": "", "methods": {}}
        cells = [
            {**place, **more_of_all, "seed": seed, "options": {**options, "seed": seed, **one}}
            for seed, one in enumerate(more)
        ]
        for cell in cells:
            cell["options"] = {k: v for k, v in cell["options"].items() if v is not None}
        write_cells(path, cells)
        status = upgrade.main(words)
        return status, [cell["options"] for cell in read_cells(path)]

    return call


def today(**more):
    return {**resolved_options(Experiment.config(GIVEN)), "seed": 0, **more}


def test_an_option_has_a_new_name(stored):
    old = {"linkage": None, "link": "single"}
    status, (found,) = stored(["link=linkage"], old)
    assert (status, found) == (0, today(linkage="single"))


def test_cells_with_another_value_of_an_option_that_is_gone_go(stored, capsys):
    status, found = stored(["--drop", "gone=0"], {"gone": 0}, {"gone": 4}, {})
    assert status == 0
    assert found == [today(), today(seed=2)]
    assert capsys.readouterr().out == "digits.json.xz: 2 cells, 1 are gone\n"


def test_a_value_has_a_new_name(stored):
    _, found = stored(["--value", "linkage:medium=average"], {"linkage": "medium"}, {})
    assert [one["linkage"] for one in found] == ["average", "ward"]


def test_a_new_option_is_added_at_its_default(stored):
    assert stored([], {"learning-rate": None})[1] == [today()]


def test_an_unknown_option_is_named_and_nothing_is_written(stored, capsys):
    status, (found,) = stored([], {"gone": 4})
    assert status == 2
    assert "gone is not a run-config key" in capsys.readouterr().err
    assert found["gone"] == 4
