"""Verdicts on a report's page, and their picture."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fl_app.report.pictures import save, verdicts_figure
from fl_app.report.report_page import build_report
from fl_app.report.text_table import WIDTH
from fl_app.report.verdict_table import print_headlines, print_verdicts, verdict_parts
from fl_app.results.reading import read_result
from fl_app.results.verdict import (
    EXPLANATION,
    JOIN,
    SAME,
    STAY,
    UNSURE,
    Gain,
    SeedVerdicts,
    Verdict,
    unit_of,
)
from fl_core.json_records import to_json
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
from tests.picture_data import rows_of
from tests.report_data import EVIL, write_results

GAIN = Gain(mean=0.25, low=0.125, high=0.5, observed=0.3, probability=0.999)


def verdict(client, word=JOIN, **others):
    return Verdict(
        client=client,
        verdict=word,
        strategy="rcc-pfl",
        cluster=1,
        validation_samples=40,
        compared="rcc-pfl",
        gains={"rcc-pfl": GAIN},
        **others,
    )


def judged(*verdicts):
    def change(summary):
        clients = [json.loads(to_json(one)) for one in verdicts]
        means = {"rcc-pfl": [0.1, -0.05, 0.25]}
        summary["verdicts"] = [
            {"seed": 0, "clients": clients, "means": means, "mean-of-joining": [0.25, 0.125, 0.375]}
        ]

    return change


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("rcc-pfl", "rcc-pfl / 1"),
        ("local", "local"),
        ("ditto", "ditto"),
        ("single+mean+ditto", "single+mean+ditto"),
        ("no_such:Strategy", "no_such:Strategy / 1"),
    ],
)
def test_a_cluster_is_named_where_there_are_several(strategy, model):
    assert replace(verdict(0), strategy=strategy).model == model


def seed(*verdicts, joining=None, **means):
    return SeedVerdicts(seed=0, clients=list(verdicts), means=means, mean_of_joining=joining)


def test_the_headline_says_how_many_gain_how_much_and_what_others_do():
    metric, names = OF_CLASSES.main, ["oslo", "lyon", "bern", "rome"]
    clients = [verdict(0), verdict(1, STAY), verdict(2, UNSURE), verdict(3, SAME)]
    found = seed(*clients, joining=(0.25, 0.125, 0.375), a=(0.01, -0.02, 0.04), b=(0.2, 0.1, 0.3))
    assert found.headline(metric, names) == (
        "1 of 4 sites gains by training in their group: 25.0 points on average (12.5 to 37.5). "
        "For 1 it makes no difference. lyon: stay alone. bern: cannot tell yet."
    )
    assert found.details(metric) == (
        "Mean gain of sites like these, points over alone: b +20.0 (+10.0 to +30.0); a +1.0 (−2.0 "
        "to +4.0). Of the 1 that should join, 0.0 are expected to lose."
    )
    unsure = seed(*[verdict(0, UNSURE)] * 7, a=(-1, -2, 0.5), b=(1, -0.5, 2))
    assert unsure.headline(OF_A_NUMBER.main, names) == (
        "0 of 7 sites surely gain by training with others. b brings an MAE lower by 1 on average "
        "(−0.5 to 2). 7 sites: cannot tell yet."
    )


@pytest.mark.parametrize(
    ("strategies", "whom"),
    [
        (("single", "ditto"), "with all others"),
        (("rcc-pfl", "spectral+mean+ditto"), "in their group"),
        (("single", "rcc-pfl"), "with others"),
    ],
)
def test_the_headline_says_with_whom_sites_train(strategies, whom):
    clients = [replace(verdict(0), strategy=strategy) for strategy in strategies]
    found = seed(*clients, joining=(0.1, 0.0, 0.2), a=(0, 0, 0))
    assert found.headline(OF_CLASSES.main, ["x"]).startswith(
        f"2 of 2 sites gain by training {whom}"
    )


def test_a_page_says_draws_and_tabulates_each_clients_verdict(tmp_path):
    found = [verdict(0), verdict(2, UNSURE, samples_needed=1234)]
    found += [verdict(client) for client in range(3, 302)]
    result = read_result(write_results(tmp_path, seeds=1, clients=302, change=judged(*found)))
    said, drawn, details, table = verdict_parts(result)
    assert said.startswith("300 of 301 sites gain by training in their group: 25.0 points on avera")
    assert details.startswith("Mean gain of sites like these")
    assert table.rows[:2] == [
        ["0", "join", "99.9 %", "rcc-pfl / 1", ""],
        ["2", UNSURE, "99.9 %", "rcc-pfl / 1", "1,234"],
    ]
    assert len(table.rows) == 300
    assert table.caption.endswith("seed 0, 300 of 301 sites: verdicts.csv has all")
    title, note, _ = drawn()
    assert title == "What each site gains over staying alone"
    assert note.endswith("; the first 100 of 301 sites.")
    assert verdict_parts(read_result(write_results(tmp_path / "without"))) == []


def test_the_terminal_shows_a_table_whose_names_are_whole_and_a_sentence_of_each_seed(capsys):
    run = SimpleNamespace(metrics=OF_CLASSES, names=["authority 131", "A to B", "\x1b[31mred"])
    found = seed(*(verdict(i, UNSURE, samples_needed=674282) for i in range(3)), a=(0.1, 0, 0.2))
    print_verdicts(found, run)
    said = capsys.readouterr().out
    for whole in (
        "What each site should do, seed 0",
        *run.names[:2],
        UNSURE,
        "674,282",
        EXPLANATION,
    ):
        assert whole in said
    assert "\x1b" not in said
    assert max(map(len, said.split("\nMean gain")[0].splitlines())) <= WIDTH
    print_headlines([found, found], run)
    headlines = capsys.readouterr().out
    assert headlines.count("seed 0: 0 of 3 sites surely gain") == 2
    assert "\x1b" not in said + headlines


def test_the_report_begins_with_them(tmp_path):
    folder = write_results(tmp_path, change=judged(verdict(0), verdict(1)))
    page = build_report([read_result(folder)], title="Who?")
    order = [
        "<h1>Who?",
        "What each site should do</h2>",
        "2 of 2 sites",
        "<h3>What each site gains",
    ]
    order += ['<p class="lead">', "Strategies</h2>"]
    places = [page.index(one) for one in order]
    assert places == sorted(places)
    assert page.count("What each site should do</h2>") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"client": 7},
        {"verdict": "run away"},
        {"gains": {"rcc-pfl": [0.1, 0.2]}},
        {"gains": {"rcc-pfl": {"mean": "x"}}},
    ],
)
def test_a_verdict_that_is_none_is_refused(tmp_path, change):
    def spoiled(summary):
        judged(verdict(0))(summary)
        summary["verdicts"][0]["clients"][0].update(change)

    with pytest.raises(ValueError, match=r"summary\.json"):
        read_result(write_results(tmp_path, seeds=1, clients=3, change=spoiled))


def test_gains_are_drawn_in_points_and_numbers_in_their_unit(tmp_path):
    names = ["berlin", EVIL, "x" * 80, "x" * 81]
    found = [verdict(client) for client in range(4)]
    spec = verdicts_figure(found, names, OF_CLASSES.main)
    rows = rows_of(spec)
    assert [row["low"] for row in rows] == [12.5] * 4
    assert [row["observed"] for row in rows] == [30.0] * 4
    assert len({row["client"] for row in rows}) == 4  # two are told apart though cut
    assert save(spec, tmp_path / "one.png").stat().st_size > 5_000
    other = verdicts_figure(found[:1], names, OF_A_NUMBER.main)
    assert rows_of(other)[0]["low"] == 0.125
    assert (unit_of(OF_CLASSES.main), unit_of(OF_A_NUMBER.main)) == ("points", "MAE")
