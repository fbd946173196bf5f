"""A user-defined metric in the tables and pictures of sweeps."""

import json

from fl_app.report import pictures
from fl_app.sweeps.plan import plan_sweep
from fl_app.sweeps.sweep_pictures import draw
from fl_app.sweeps.sweep_tables import printed_tables, tidy


def test_a_sweep_shows_it_and_calls_none_the_best(tmp_path, monkeypatch):
    planned = plan_sweep({"strategy": "single,local", "num-tasks": [2, 3]})
    costs = {"single": 0.0, "local": 1.5}
    runs = [
        {"strategy": name, "seed": 0, "clusters": [0], "accuracy": 0.9 - cost, "user-metric": cost}
        | {"accuracy-per-client": [0.9 - cost] * 2}
        for name, cost in costs.items()
    ]
    places = [one.key for one in planned.simulations]
    cells = [{"cell": p.cell, "values": p.values, "runs": runs} for p in places]
    table = tidy(planned, cells)
    printed = printed_tables(planned, table, cells)
    assert "user-defined metric, one seed" in printed
    assert "│ 2         │  0.000 │ 1.500 │" in printed
    assert "│ 2         │  90.0* │ -60.0 │" in printed
    assert table[table["measure"] == "user-metric"]["value"].tolist() == [0.0, 1.5] * 2
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda spec, path: drawn.append(spec))
    draw(planned, table, tmp_path / "sweep.png")
    assert '"user-defined metric"' in json.dumps(drawn[0])


def test_a_picture_of_nothing_but_zeros_has_a_range(tmp_path, monkeypatch):
    planned = plan_sweep({"strategy": "single", "num-tasks": [2, 3]})
    runs = [{"strategy": "single", "seed": 0, "clusters": [0], "user-metric": 0.0}]
    places = [one.key for one in planned.simulations]
    cells = [{"cell": p.cell, "values": p.values, "runs": runs} for p in places]
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda spec, path: drawn.append(spec))
    draw(planned, tidy(planned, cells), tmp_path / "sweep.png")
    assert '"domain": [-1.0, 1.0]' in json.dumps(drawn[0])


def test_stars_are_for_the_best_and_those_that_do_not_differ_from_it():
    """Between a and b, gains of 0.5, 2 and 4.4 points: 2.3 on average, ± 4.9."""
    planned = plan_sweep({"strategy": "single,local", "num-tasks": [2, 3]})
    means = {"a": (0.805, 0.82, 0.844), "b": (0.8,) * 3, "c": (0.6, 0.61, 0.65)}
    runs = [
        {"strategy": name, "seed": seed, "clusters": [0], "accuracy": accuracy}
        | {"accuracy-per-client": [accuracy - 0.1, accuracy + 0.1]}
        for name, of_seeds in means.items()
        for seed, accuracy in enumerate(of_seeds)
    ]
    places = [one.key for one in planned.simulations]
    cells = [
        {"cell": places[0].cell, "values": places[0].values, "runs": runs},
        {"cell": places[1].cell, "values": places[1].values, "runs": runs[::3]},  # of one seed
    ]
    printed = printed_tables(planned, tidy(planned, cells), cells)
    assert "│ 2         │ 82.3 ± 2.0* │ 80.0 ± 0.0* │ 62.0 ± 2.6 │" in printed
    assert "│ 3         │       80.5* │        80.0 │       60.0 │" in printed  # over its clients
    assert "distinguishes from it" in printed
