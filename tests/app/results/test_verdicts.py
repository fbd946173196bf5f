"""Which verdict a client gets from what clients say of their models."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fl_app.results.verdict import JOIN, SAME, STAY, UNSURE
from fl_app.results.verdicts import pair_of, pooled_pair, verdicts_of
from fl_core.json_records import to_json
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES


def run(strategy, validated, metrics=OF_CLASSES, clusters=None):
    report = SimpleNamespace(validated=validated)
    clients = dict.fromkeys(range(9), 0) if clusters is None else clusters
    return SimpleNamespace(
        strategy=strategy,
        label=strategy,
        label_of=lambda client: strategy,
        seed=0,
        reports=[report],
        of_client=clients,
        metrics=metrics,
    )


def validated(score, num=100, **pairs):
    """Return what a client says of a model: its score, and its comparisons with others."""
    return {"": [num, score, 0.5], **{name: list(pair) for name, pair in pairs.items()}}


def federation(*pairs, num=100, clusters=None):
    """Return the verdicts where clients compared one model with staying alone: wins and losses."""
    local = {client: validated(0.5, num) for client in range(len(pairs))}
    other = {client: validated(0.5, num, local=pair) for client, pair in enumerate(pairs)}
    return verdicts_of([run("local", local), run("rcc", other, clusters=clusters)])


def test_a_client_joins_where_it_gains_almost_surely():
    found = federation((30, 5), (25, 5), (20, 9), clusters={0: 3, 1: 3, 2: 0})
    first = found.clients[0]
    assert (first.verdict, first.strategy, first.cluster) == (JOIN, "rcc", 3)
    assert first.gain.observed == 0.25
    assert 0 < first.gain.low < first.gain.mean < first.gain.observed
    assert first.gain.probability > 0.99
    assert first.samples_needed is None
    mean, low, high = found.means["rcc"]
    assert mean == pytest.approx((0.25 + 0.2 + 0.11) / 3, abs=0.02)
    assert low < mean < high
    joining = [one.gain.mean for one in found.clients if one.verdict == JOIN]
    mean, low, high = found.mean_of_joining
    assert mean == pytest.approx(np.mean(joining))
    assert low < mean < high < low + first.gain.high - first.gain.low


def test_the_gains_of_others_make_a_client_join_that_alone_could_not_tell():
    alone = federation((9, 3), num=40).clients[0]
    assert (alone.verdict, alone.strategy) == (UNSURE, "rcc")
    assert alone.samples_needed > 40
    among = federation((9, 3), *[(10, 3)] * 9, num=40).clients[0]
    assert (among.verdict, among.gain.observed) == (JOIN, alone.gain.observed)


def test_no_client_joins_against_its_samples_whatever_the_others_gain():
    found = federation((4, 5), *[(30, 5)] * 9).clients[0]
    assert found.gain.observed == -0.01
    assert found.verdict == UNSURE


def test_a_client_stays_alone_where_every_other_model_is_surely_worse():
    local = dict.fromkeys(range(3), validated(0.9))
    single = dict.fromkeys(range(3), validated(0.5, local=(2, 42)))
    worse = dict.fromkeys(range(3), validated(0.6, local=(3, 33)))
    found = verdicts_of([run("local", local), run("single", single), run("rcc", worse)]).clients[0]
    assert (found.verdict, found.strategy, found.compared) == (STAY, "local", "rcc")
    assert found.gain.high < 0
    close = dict.fromkeys(range(3), validated(0.88, local=(3, 5)))
    found = verdicts_of([run("local", local), run("single", single), run("rcc", close)]).clients[0]
    assert (found.verdict, found.strategy, found.compared) == (UNSURE, "local", "rcc")


def test_no_client_stays_alone_for_want_of_a_comparison():
    """A test may be lost, or a resumed run's: what was not compared may be the better model."""
    worse = validated(0.6, local=(3, 43))
    runs = [
        run("local", {0: validated(0.9), 1: validated(0.9)}),
        run("single", {1: worse}),
        run("rcc", {0: worse, 1: worse}),
    ]
    lost, whole = verdicts_of(runs).clients
    assert (lost.client, lost.verdict, lost.strategy) == (0, UNSURE, "local")
    assert set(lost.gains) == {"rcc"}
    assert (whole.verdict, set(whole.gains)) == (STAY, {"single", "rcc"})
    runs[1].reports[0].validated.clear()
    assert [one.client for one in verdicts_of(runs).clients] == [0, 1]


def test_a_gain_within_a_point_does_not_matter_and_the_local_model_is_used():
    found = federation((21, 20), (20, 21), (20, 20), num=10_000).clients[0]
    assert (found.verdict, found.strategy, found.cluster) == (SAME, "local", 0)


def test_the_best_model_of_the_federation_is_chosen_unless_a_clients_own_is_clearly_another():
    clients = range(6)
    runs = [
        run("local", {client: validated(0.5) for client in clients}),
        run("a", {client: validated(0.7, local=(30, 10)) for client in clients}),
        run(
            "b",
            {
                **{client: validated(0.6, local=(18, 10)) for client in clients},
                4: validated(0.7, local=(32, 10)),
                5: validated(0.9, local=(50, 1)),
            },
        ),
    ]
    found = verdicts_of(runs)
    assert [one.compared for one in found.clients] == ["a", "a", "a", "a", "a", "b"]
    assert [one.verdict for one in found.clients] == [JOIN] * 6
    middle = sorted(one.gain.mean for one in found.clients)[1:5]
    assert found.mean_of_joining[0] == pytest.approx(np.mean(middle))


def test_errors_of_numbers_are_better_if_lower_and_gains_are_in_their_unit():
    pairs = [(2.0, 4.0), (1.5, 3.0), (1.0, 2.0)]
    local = {client: validated(5.0) for client in range(3)}
    other = {client: validated(4.0, local=pair) for client, pair in enumerate(pairs)}
    found = verdicts_of([run("local", local, OF_A_NUMBER), run("rcc", other, OF_A_NUMBER)])
    assert [one.verdict for one in found.clients] == [JOIN] * 3
    gain = found.clients[0].gain
    assert gain.observed == pytest.approx(2.0)
    assert 1.0 < gain.low < gain.mean < 2.0 < gain.high
    joining = np.mean([one.gain.mean for one in found.clients])
    assert found.mean_of_joining[0] == pytest.approx(joining)
    thousand = {client: validated(5000.0) for client in range(3)}
    pairs = [(1000 * mean, 1e6 * variance) for mean, variance in pairs]
    other = {client: validated(4000.0, local=pair) for client, pair in enumerate(pairs)}
    same = verdicts_of([run("local", thousand, OF_A_NUMBER), run("rcc", other, OF_A_NUMBER)])
    assert same.clients[0].gain.mean == pytest.approx(1000 * gain.mean)
    assert same.clients[0].gain.probability == pytest.approx(gain.probability)


def test_by_hand_folds_are_counted_together():
    """Differences 1, 3 and 8, 8: mean 5 and variance (16 + 4 + 9 + 9) / 3."""
    assert pooled_pair([(2, 2.0, 2.0), None, (2, 8.0, 0.0)], is_number=True) == (
        4,
        pytest.approx(5),
        pytest.approx(38 / 3),
    )
    assert pooled_pair([(1, 1.0, 0.0)], is_number=True) is None
    assert pooled_pair([(20, 3, 1), (30, 4, 6)], is_number=False) == (50, 7, 7)
    assert pooled_pair([None], is_number=False) is None


def test_verdicts_rest_on_the_samples_of_all_folds():
    """A fold's strategy may have chosen another value, so its label differs."""

    def fold(num, pair, label):
        local = {client: validated(0.5, num) for client in range(4)}
        other = {client: validated(0.5, num, local=pair) for client in range(4)}
        other = run("rcc", other)
        other.label = label
        return [run("local", local), other]

    whole = verdicts_of(fold(100, (30, 10), "rcc"))
    assert verdicts_of(fold(60, (20, 4), "rcc"), fold(40, (10, 6), "rcc,x=2")) == whole
    lost = fold(40, (10, 6), "rcc")
    lost[1].reports[0].validated.pop(0)
    counts = [one.validation_samples for one in verdicts_of(fold(60, (20, 4), "rcc"), lost).clients]
    assert counts == [60, 100, 100, 100]


def test_of_a_federation_without_a_difference_that_matters_the_local_models_are_used():
    found = federation(*[(15, 15), (18, 12), (12, 18)] * 10, num=300)
    assert found.no_difference
    assert {one.verdict for one in found.clients} == {UNSURE}
    assert {one.strategy for one in found.clients} == {"local"}
    assert found.headline(OF_CLASSES.main, []).startswith(
        "Training with others makes no difference that matters. rcc brings "
    )
    for pairs in ([(25, 11), (11, 25)] * 100, [(24, 15)] * 30, [(1, 1)] * 3):
        assert federation(*pairs, num=300).no_difference is None, pairs


def test_the_order_of_clients_and_of_strategies_changes_nothing():
    first = {0: validated(0.5), 4: validated(0.7)}
    second = {4: validated(0.6, local=(2, 12)), 0: validated(0.8, local=(32, 2))}
    one = verdicts_of([run("local", first), run("rcc", second)])
    back = {0: validated(0.5, rcc=(2, 32)), 4: validated(0.7, rcc=(12, 2))}
    plain = {0: validated(0.8), 4: validated(0.6)}
    assert one == verdicts_of([run("rcc", plain), run("local", back)])
    assert [each.client for each in one.clients] == [0, 4]


def test_a_comparison_is_the_same_whichever_model_it_was_reported_with():
    """It is of as many samples as the report that has it says."""
    runs = [
        run("rcc", {0: validated(0.5, 1)}),
        run("local", {0: validated(0.5, 1000, rcc=(0, 900))}),
    ]
    tables = {one.strategy: one.reports[0].validated for one in runs}
    assert pair_of(tables, 0, "rcc", is_number=False) == (1000, 900, 0)
    runs[1].reports[0].validated[0]["rcc"] = [-2.0, 4.0]
    assert pair_of(tables, 0, "rcc", is_number=True) == (1000, 2.0, 4.0)


def test_at_most_ten_times_the_median_of_the_claimed_validation_samples_counts():
    """1,000 of a claimed 10^12, of which the shares of wins and losses stay."""
    others = {client: validated(0.5, local=(20, 9)) for client in (1, 2)}

    def judged(num, pair):
        local = {client: validated(0.5) for client in range(3)} | {0: validated(0.5, num)}
        rcc = {0: validated(0.5, num, local=pair), **others}
        return verdicts_of([run("local", local), run("rcc", rcc)])

    claimed = judged(10**12, (0.25e12, 0.125e12))
    assert to_json(claimed) == to_json(judged(1000, (250, 125)))
    assert claimed.clients[0].validation_samples == 1000


def test_a_quarter_of_those_that_join_does_not_decide_their_mean_gain():
    honest = federation((30, 5), (31, 5), (32, 5), (33, 5))
    attacked = federation((30, 5), (31, 5), (32, 5), (100, 0))
    assert [one.verdict for one in attacked.clients] == [JOIN] * 4
    assert attacked.clients[3].gain.mean > 0.9
    # Untrimmed, 0.67 more of one client would be 0.17 more of the mean.
    assert attacked.mean_of_joining[0] == pytest.approx(honest.mean_of_joining[0], abs=0.02)


def test_there_is_no_verdict_for_a_client_that_compared_nothing():
    half = validated(0.5)
    assert verdicts_of([run("local", {}), run("rcc", {})]) is None
    assert verdicts_of([run("rcc", {0: half}), run("x", {0: half})]) is None
    assert verdicts_of([run("local", {0: half})]) is None
    lost = [run("local", {0: half, 1: half}), run("rcc", {1: validated(0.9, local=(40, 0))})]
    assert [one.client for one in verdicts_of(lost).clients] == [1]
    one = [run("local", {0: validated(5, 1), 1: validated(5)}, OF_A_NUMBER)]
    one += [run("x", {i: validated(3, n, local=(2, 4)) for i, n in ((0, 1), (1, 9))}, OF_A_NUMBER)]
    assert [one.client for one in verdicts_of(one).clients] == [1]  # one difference says nothing


@pytest.mark.parametrize("metrics", [OF_CLASSES, OF_A_NUMBER])
def test_any_numbers_of_a_client_give_verdicts_that_can_be_read(metrics):
    """A client may send whatever is finite; what it sends does not decide for the others."""
    pairs = {0: (1e30, 1e30), 1: (0.0, 0.0), 2: (0.5, 1.0), 3: (0.6, 1.2)}
    local = {client: validated(5.0, 20) for client in pairs}
    local[0] = validated(1e38, 10**12)
    other = {client: validated(4.0, 20, local=pair) for client, pair in pairs.items()}
    other[0] = validated(1e38, 10**12, local=pairs[0])
    found = verdicts_of([run("local", local, metrics), run("rcc", other, metrics)])
    assert len(json.loads(to_json(found))["clients"]) == 4
    numbers = [(one.gain.low, one.gain.mean, one.gain.high) for one in found.clients]
    assert np.isfinite(numbers).all()
    assert abs(found.clients[2].gain.observed) <= 1
