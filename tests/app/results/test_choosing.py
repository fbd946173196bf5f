"""Which of a strategy's values is best on validation samples."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fl_app.results.run_result import RunResult
from fl_app.results.tuning import best_of, validates_better, validation_score
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
from strategies import RoundReport


def run(*scores, metrics=OF_CLASSES):
    validated = {client: {"": [10, score, 0.5]} for client, score in enumerate(scores)}
    return SimpleNamespace(reports=[SimpleNamespace(validated=validated)], metrics=metrics)


@pytest.mark.parametrize(
    ("scores", "others", "better"),
    [((0.6, 0.7), (0.5, 0.7), True), ((0.5,), (0.5,), False), ((0.4,), (0.5,), False)],
)
def test_higher_is_better_of_classes_and_lower_of_a_number(scores, others, better):
    assert validates_better(run(*scores), run(*others)) is better
    of_number = [run(*(-one for one in own), metrics=OF_A_NUMBER) for own in (scores, others)]
    assert validates_better(*of_number) is better


def test_what_one_client_of_four_says_chooses_nothing():
    honest, other = (4.0, 5.0, 6.0), (9.0, 9.0, 9.0)
    good, bad = run(*honest, 1e30, metrics=OF_A_NUMBER), run(*other, 0.0, metrics=OF_A_NUMBER)
    assert validates_better(good, bad)
    assert not validates_better(bad, good)


def test_who_has_compared_nothing_is_not_better_than_who_has():
    assert validates_better(run(0.1), run())
    assert not validates_better(run(), run(0.1))
    assert not validates_better(run(), run())


def test_two_runs_are_compared_at_clients_that_have_compared_both():
    assert validation_score(run(0.5, 0.75, 0.25)) == 0.5
    whole, lost = run(0.95, 0.6), run(0.8)  # whose second client's answer was lost
    assert validation_score(lost) > validation_score(whole)
    assert validates_better(whole, lost)
    assert not validates_better(lost, whole)


def whole(rate, *scores):
    """Return a run with this learning rate, in which clients have these validation scores."""
    validated = {client: {"": [100, score, 0.5]} for client, score in enumerate(scores)}
    clusters = dict.fromkeys(validated, 0)
    return RunResult.of_reports(
        "rcc-pfl",
        0,
        len(scores),
        clusters,
        [RoundReport(n, 2, validated=validated, clusters=clusters) for n in (1, 2)],
        models={"cluster-0": rate},
        bytes={"train-up": 10},
        seconds={"total": 1.0},
        label=f"rcc-pfl,learning-rate={rate}",
    )


def test_what_is_best_for_the_middle_half_is_taken_with_all_that_was_tried():
    scores = {0.1: (0.5, 0.5, 0.5, 0.9), 0.2: (0.6, 0.6, 0.6, 0.1), 0.3: (0.1,) * 4}
    runs = [whole(rate, *own) for rate, own in scores.items()]
    found = best_of(runs, [{"learning-rate": rate} for rate in scores])
    assert found.label == runs[1].label
    assert found.models == {"cluster-0": 0.2}
    assert found.reports is runs[1].reports
    assert found.tuned.values == {"learning-rate": 0.2}
    assert [one.values["learning-rate"] for one in found.tuned.tried] == [0.1, 0.2, 0.3]
    assert [one.score for one in found.tuned.tried] == pytest.approx([0.6, 0.475, 0.1])
    assert best_of([whole(0.1, 0.5), whole(0.2, 0.5)], [{}, {}]).models == {"cluster-0": 0.1}
    assert found.tuned.describe(4).startswith("learning-rate=0.2 (of 3 tried: 6 rounds")


def test_what_it_cost_is_what_clients_moved():
    one = replace(whole(0.1, 0.5), bytes={"train-up": 10, "between-servers-up": 7})
    assert best_of([one], [{}]).tuned.tried[0].bytes == 10
