"""Which of a strategy's values is best on validation samples."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fl_app.results.choosing import best_of, tried_in, validates_better, validation_score
from fl_app.results.run_result import RunResult
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
from strategies import RoundReport


def run(*scores, metrics=OF_CLASSES):
    validated = {client: {"": [10, score, 0.5]} for client, score in enumerate(scores)}
    return SimpleNamespace(reports=[SimpleNamespace(validated=validated)], metrics=metrics)


def test_the_score_is_the_mean_over_clients_whatever_their_number_of_samples():
    assert validation_score(run(0.5, 0.75, 0.25)) == 0.5


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
    whole, lost = run(0.95, 0.6), run(0.8)  # whose second client's answer was lost
    assert validation_score(lost) > validation_score(whole)
    assert validates_better(whole, lost)
    assert not validates_better(lost, whole)
    assert not validates_better(whole, lost, [1])


CLUSTERS = {0: 0, 1: 0, 2: 1}


def whole(rate, scores, pairs, *, rounds=2, clusters=None):
    """Return a run whose clients have these validation scores, and so many wins and losses.

    In round r client c's accuracy is its score less (rounds − r) / 10; its model is `rate`.
    """
    label = f"rcc-pfl,learning-rate={rate}"
    clusters = CLUSTERS if clusters is None else clusters
    reports = [
        RoundReport(
            number,
            rounds,
            train_loss=rate,
            scores={
                "accuracy": {c: score - (rounds - number) / 10 for c, score in enumerate(scores)}
            },
            validated={
                c: {
                    "": [100, score, 0.5],
                    **{f"rcc-pfl,learning-rate={o}": list(own[c]) for o, own in pairs.items()},
                }
                for c, score in enumerate(scores)
            },
            clusters=clusters,
            other_scores={"accuracy": dict.fromkeys(range(3), rate)},
        )
        for number in range(1, rounds + 1)
    ]
    return RunResult(
        strategy="rcc-pfl",
        seed=0,
        num_clients=3,
        of_client=clusters,
        reports=reports,
        models={f"cluster-{c}": rate for c in set(clusters.values())},
        bytes={"train-up": 10},
        seconds={"total": 1.0},
        failures={},
        label=label,
        tasks_per_round=[[0, 0, 1]] * rounds,
    )


def chosen(*runs):
    rates = [float(run.label.partition("=")[2]) for run in runs]
    return best_of(runs, [{"learning-rate": rate} for rate in rates])


def test_a_cluster_for_which_other_values_are_better_has_what_it_has_by_them():
    first = whole(0.1, (0.5, 0.5, 0.9), {})
    second = whole(0.2, (0.55, 0.5, 0.2), {0.1: [(6, 1), (4, 4), (0, 70)]}, rounds=3)
    second.tasks_per_round[-1] = [1, 0, 0]  # data that move
    third = whole(0.3, (0.1, 0.1, 0.1), {0.1: [(0, 9)] * 3, 0.2: [(0, 9)] * 3})
    found = chosen(first, second, third)
    assert found.label == first.label
    assert found.labels == {0: second.label, 1: second.label}
    assert found.models == {"cluster-0": 0.2, "cluster-1": 0.1}
    assert [report.round for report in found.reports] == [1, 2, 3]
    assert found.tasks_per_round == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert found.tasks == [1, 0, 0]  # of the last round, as in metrics.csv
    assert [list(report.tested.values()) for report in found.reports] == [
        pytest.approx([0.35, 0.3, 0.8]),
        pytest.approx([0.45, 0.4, 0.9]),
        pytest.approx([0.55, 0.5, 0.9]),  # the first run had ended
    ]
    assert found.reports[-1].train_loss == pytest.approx((0.2 + 0.2 + 0.1) / 3)
    assert found.reports[-1].other_scores == {"accuracy": {0: 0.2, 1: 0.2, 2: 0.1}}
    assert found.reports[-1].validated[0] == second.reports[-1].validated[0]
    assert (found.bytes, found.seconds) == (first.bytes, first.seconds)
    assert found.tuned.values == {"learning-rate": 0.1}
    assert found.tuned.of_clusters == {"0": {"learning-rate": 0.2}}
    said = found.tuned.said(3)
    assert said.startswith("learning-rate=0.1, but learning-rate=0.2 in cluster 0 (of 3 tried")


def test_who_has_ended_says_something_only_when_others_are_tested():
    first = whole(0.1, (0.5, 0.5, 0.9), {}, rounds=2)
    second = whole(0.2, (0.6, 0.6, 0.2), {0.1: [(16, 1), (14, 4), (0, 70)]}, rounds=4)
    for report in (*first.reports, *second.reports):
        report.samples.update({0: 10, 1: 10, 2: 10})
    untested = second.reports[2]
    for of_client in (untested.tested, untested.validated, *untested.other_scores.values()):
        of_client.clear()
    found = chosen(first, second)
    assert found.labels.keys() == {0, 1}
    tested = [sorted(report.tested) for report in found.reports]
    assert tested == [[0, 1, 2], [0, 1, 2], [], [0, 1, 2]]
    assert found.reports[2].validated == {}
    assert found.reports[2].other_scores == {"accuracy": {}}
    assert found.reports[3].tested[2] == 0.9
    assert [sorted(report.samples) for report in found.reports] == [[0, 1, 2]] * 2 + [[0, 1]] * 2


def test_what_it_cost_is_what_clients_moved():
    one = replace(whole(0.1, (0.5,) * 3, {}), bytes={"train-up": 10, "between-servers-up": 7})
    assert tried_in(one, {}).bytes == 10


def test_who_is_alone_takes_the_best_of_what_is_surely_better():
    """Five wins and no loss are p = 0.0625; 20 and 30 are both sure."""
    first = whole(0.1, (0.9, 0.9, 0.1), {})
    few = whole(0.2, (0.1, 0.1, 0.15), {0.1: [(0, 9), (0, 9), (5, 0)]})
    assert chosen(first, few).labels == {}
    second = whole(0.2, (0.1, 0.1, 0.3), {0.1: [(0, 9), (0, 9), (20, 0)]})
    third = whole(0.3, (0.1, 0.1, 0.4), {0.1: [(0, 9), (0, 9), (30, 0)], 0.2: [(9, 9)] * 3})
    found = chosen(first, second, third)
    assert found.tuned.of_clusters == {"1": {"learning-rate": 0.3}}
    other_order = chosen(third, whole(0.1, (0.9, 0.9, 0.1), {0.3: [(9, 0), (9, 0), (0, 30)]}))
    assert other_order.tuned.of_clusters == {"1": {"learning-rate": 0.3}}
    assert other_order.models == {"cluster-0": 0.1, "cluster-1": 0.3}


def test_the_more_values_the_surer_who_is_alone_must_be():
    """Seven wins and no loss are p = 0.0156: sure beside one other value, not beside four."""
    first = whole(0.1, (0.9, 0.9, 0.1), {})
    seven = {0.1: [(0, 9), (0, 9), (7, 0)]}
    assert chosen(first, whole(0.2, (0.1, 0.1, 0.17), seven)).labels.keys() == {2}
    others = [whole(rate, (0.1, 0.1, 0.1), {0.1: [(1, 1)] * 3}) for rate in (0.3, 0.4, 0.5)]
    assert chosen(first, whole(0.2, (0.1, 0.1, 0.17), seven), *others).labels == {}


def test_all_take_the_same_where_values_are_equally_good_or_make_other_clusters():
    first = whole(0.1, (0.5, 0.5, 0.9), {})
    equal = whole(0.2, (0.4, 0.6, 0.2), {0.1: [(3, 13), (13, 3), (0, 70)]})
    assert chosen(first, equal).labels == {}
    moved = {0: 0, 1: 1, 2: 1}
    better = whole(0.2, (0.6, 0.6, 0.2), {0.1: [(30, 0), (20, 0), (0, 9)]}, clusters=moved)
    assert chosen(first, better).labels == {}
    assert chosen(first, better).reports is first.reports
