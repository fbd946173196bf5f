import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, t

from fl_app.results.statistics import Counts
from fl_app.results.verdict import JOIN, ONE, STAY, UNSURE
from fl_app.results.verdicts import pair_of, verdicts_of
from fl_core.json_records import to_json
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
from tests.samples import sampled


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


def told(score, num=100, **pairs):
    return {"": [num, score, 0.5], **{name: list(pair) for name, pair in pairs.items()}}


def one_client(metrics=OF_CLASSES, **strategies):
    """Return the only verdict where a client was told these of its strategies, in order."""
    runs = [run(name, {0: own}, metrics, clusters={0: 3}) for name, own in strategies.items()]
    return verdicts_of(runs).clients[0]


def test_a_client_joins_where_its_group_is_surely_better_than_staying_alone():
    found = one_client(
        local=told(0.6),
        single=told(0.65, local=(15, 10)),
        rcc=told(0.85, local=(30, 5), single=(22, 2)),
    )
    assert (found.verdict, found.strategy, found.cluster) == (JOIN, "rcc", 3)
    assert found.gain[0] == pytest.approx(0.25)
    assert 0 < found.gain[1] < 0.25 < found.gain[2]
    assert found.gain_over_single[0] == pytest.approx(0.2)
    assert found.gain_over_single[1:] == Counts(22, 2, 100).interval(0.05 / 2)
    assert found.samples_needed is None


def test_one_model_for_all_is_a_verdict_of_its_own():
    found = one_client(local=told(0.6), single=told(0.85, local=(30, 5)))
    assert (found.verdict, found.strategy, found.gain_over_single) == (ONE, "single", None)


def test_a_client_stays_alone_where_every_other_model_is_surely_worse():
    found = one_client(
        local=told(0.9), single=told(0.5, local=(2, 42)), rcc=told(0.6, local=(3, 33))
    )
    assert (found.verdict, found.strategy, found.compared) == (STAY, "local", "rcc")
    assert found.gain[2] < 0
    unsure = one_client(
        local=told(0.9), single=told(0.5, local=(2, 42)), rcc=told(0.88, local=(3, 5))
    )
    assert (unsure.verdict, unsure.strategy, unsure.compared) == (UNSURE, "local", "rcc")
    assert unsure.samples_needed > 100


def test_nobody_stays_alone_for_want_of_a_comparison():
    """A test may be lost, or a resumed run's: what was not compared may be the better model."""
    runs = [
        run("local", {0: told(0.9), 1: told(0.9)}),
        run("single", {1: told(0.5, local=(2, 42))}),
        run("rcc", {0: told(0.6, local=(3, 33)), 1: told(0.6, local=(3, 33))}),
    ]
    lost, whole = verdicts_of(runs).clients
    assert (lost.client, lost.verdict, lost.strategy) == (0, UNSURE, "local")
    assert set(lost.candidates) == {"rcc"}
    assert (whole.verdict, set(whole.candidates)) == (STAY, {"single", "rcc"})
    assert verdicts_of(runs).told_among_all == 1  # nor at the stricter error
    runs[2].reports[0].validated[0] = told(0.95, local=(20, 1))
    assert verdicts_of(runs).clients[0].verdict == JOIN
    runs[1].reports[0].validated.clear()
    assert [one.client for one in verdicts_of(runs).clients] == [0, 1]


def test_more_samples_are_needed_than_did_not_tell():
    found = one_client(local=told(0.1, num=5), single=told(0.9, num=5, local=(5, 0)))
    assert (found.verdict, found.samples_needed) == (UNSURE, 6)
    found = one_client(local=told(0.1, num=9), single=told(0.6, num=9, local=(5, 0)))
    assert found.samples_needed > 9


def test_who_cannot_tell_uses_the_best_so_far_and_its_own_if_equal():
    better = one_client(local=told(0.6), rcc=told(0.62, local=(4, 2)))
    assert (better.verdict, better.strategy) == (UNSURE, "rcc")
    equal = one_client(local=told(0.6), rcc=told(0.6, local=(4, 4)))
    assert (equal.verdict, equal.strategy, equal.samples_needed) == (UNSURE, "local", None)


def test_of_two_that_are_surely_better_the_best_is_chosen_and_never_one_that_is_not():
    found = one_client(
        local=told(0.5),
        a=told(0.8, local=(32, 2)),
        b=told(0.85, local=(36, 1), a=(6, 1)),
        c=told(0.84, num=100, local=(60, 26), a=(8, 4), b=(1, 2)),
    )
    assert (found.verdict, found.strategy) == (JOIN, "b")
    # b gains more, but may be chance (p = 0.15); a's gain is sure.
    found = one_client(
        local=told(0.5), a=told(0.6, local=(10, 0)), b=told(0.65, local=(55, 40), a=(20, 15))
    )
    assert (found.verdict, found.strategy, found.compared) == (JOIN, "a", "a")


def clients_of(*pairs):
    """Return what is judged where clients compared one model with staying alone."""
    local = {client: told(0.5) for client in range(len(pairs))}
    other = {client: told(0.5, local=pair) for client, pair in enumerate(pairs)}
    return verdicts_of([run("local", local), run("rcc", other)])


def test_the_more_strategies_there_are_the_surer_a_client_must_be():
    """6 against none is p = 2/64: enough for one comparison, not for two."""
    one = one_client(local=told(0.5), a=told(0.56, local=(6, 0)))
    assert (one.verdict, one.candidates["a"][3]) == (JOIN, 2 / 64)
    two = one_client(local=told(0.5), a=told(0.56, local=(6, 0)), b=told(0.5, local=(3, 3)))
    assert (two.verdict, two.candidates["a"][3]) == (UNSURE, 2 / 64)
    assert two.gain[1] <= 0 < one.gain[1]
    # Holm: 9 against none is 2/512, twice that is told; then 6 against none needs 5 % itself.
    both = one_client(local=told(0.5), a=told(0.56, local=(6, 0)), b=told(0.59, local=(9, 0)))
    assert both.verdict == JOIN
    assert both.candidates["a"][1] == 0.0 < both.candidates["b"][1]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=8))
def test_a_client_is_judged_by_its_own_comparisons_whoever_else_there_is(pairs):
    found = clients_of(*pairs)
    alone = [clients_of(pair).clients[0] for pair in pairs]
    assert [replace(one, client=0) for one in found.clients] == alone
    told_one_by_one = sum(one.verdict != UNSURE for one in alone)
    assert 0 <= found.told_among_all <= told_one_by_one


def test_how_many_of_all_clients_are_told_with_few_false_discoveries():
    """Benjamini and Hochberg's p-values: the i-th smallest of n, times n / i."""
    # 2/1024, 2/256, 2/64 and 1: times 4, 2, 4/3 and 1 they are 0.008, 0.016, 0.042 and 1.
    assert clients_of((10, 0), (8, 0), (6, 0), (3, 3)).told_among_all == 3
    # 2/64 · 2/1 is above 5 %, for one that is surely worse, too.
    for sure in ((6, 0), (0, 6)):
        found = clients_of(sure, (3, 3))
        assert found.clients[0].verdict != UNSURE
        assert found.told_among_all == 0
    assert clients_of((0, 6)).told_among_all == 1
    assert clients_of((3, 3), (0, 0)).told_among_all == 0
    assert json.loads(to_json(clients_of((6, 0))))["told-among-all"] == 1


def test_staying_alone_is_as_sure_as_the_least_sure_of_its_losses():
    """2/64 with Holm's factor 1, beside 2/1024 with 2, is told; 2/32 is not."""
    sure = one_client(local=told(0.6), a=told(0.5, local=(0, 10)), b=told(0.54, local=(0, 6)))
    assert (sure.verdict, sure.compared, sure.gain[2]) == (STAY, "b", 0.0)
    unsure = one_client(local=told(0.6), a=told(0.5, local=(0, 10)), b=told(0.55, local=(0, 5)))
    assert (unsure.verdict, unsure.strategy) == (UNSURE, "local")


@pytest.mark.parametrize(
    "truth",
    sampled([(gains,) for gains in ((0,) * 4, (-6, -6, -6, 0), (0, 0, 0, 4), (-6,) * 4)], 2),
)
def test_a_verdict_and_the_interval_that_is_shown_err_in_one_case_of_twenty_at_most(truth):
    """True gains of four models in standard errors: those shown are the best that are seen."""
    rng, size, rounds = np.random.default_rng(0), 400, 300
    gains = (np.array(truth) + rng.standard_normal((rounds, 4))) / size**0.5
    variances = rng.chisquare(size - 1, (rounds, 4)) / (size - 1)
    wrong = outside = 0
    for pairs in np.stack([gains, variances], axis=2).tolist():
        others = {f"m{i}": told(5.0, size, local=pair) for i, pair in enumerate(pairs)}
        found = one_client(OF_A_NUMBER, local=told(5.0, size), **others)
        true = truth[int(found.compared[1])] / size**0.5
        wrong += (found.verdict == JOIN and true <= 0) or (
            found.verdict == STAY and max(truth) >= 0
        )
        outside += not found.gain[1] <= true <= found.gain[2]
    assert wrong <= binom.ppf(0.999, rounds, 0.05)
    assert outside <= binom.ppf(0.999, rounds, 0.05)


def test_one_difference_of_numbers_is_no_comparison():
    runs = [
        run("local", {0: told(5.0, num=1), 1: told(5.0)}, OF_A_NUMBER),
        run("rcc", {0: told(3.0, num=1, local=(2.0, 0.0)), 1: told(3, local=(2, 4))}, OF_A_NUMBER),
    ]
    assert [one.client for one in verdicts_of(runs).clients] == [1]


def test_the_order_of_clients_and_of_strategies_changes_nothing():
    first = {0: told(0.5), 4: told(0.7)}
    second = {4: told(0.6, local=(2, 12)), 0: told(0.8, local=(32, 2))}
    one = verdicts_of([run("local", first), run("rcc", second)])
    back = {0: told(0.5, rcc=(2, 32)), 4: told(0.7, rcc=(12, 2))}
    plain = {0: told(0.8), 4: told(0.6)}
    other = verdicts_of([run("rcc", plain), run("local", back)])
    assert one == other
    assert [own.client for own in one.clients] == [0, 4]
    assert one.means["rcc"][0] == pytest.approx((0.3 - 0.1) / 2)


def test_groups_are_compared_with_one_model_for_all_too():
    """Means of 12 and 16 samples of 100: two clients, Student's t with one degree of freedom."""
    runs = [
        run("local", {0: told(0.5), 1: told(0.5)}),
        run("single", {0: told(0.7, local=(30, 10)), 1: told(0.7, local=(30, 10))}),
        run(
            "rcc",
            {
                0: told(0.6, local=(15, 5), single=(4, 16)),
                1: told(0.6, local=(15, 5), single=(2, 18)),
            },
        ),
    ]
    found = verdicts_of(runs)
    assert found.over_single.keys() == {"rcc"}
    mean, low, high = found.over_single["rcc"]
    half = t.isf(0.025, 1) * 0.02  # standard deviation 0.04 / √2, over √2
    assert (mean, low, high) == pytest.approx((-0.14, -0.14 - half, -0.14 + half))
    said = found.said(OF_CLASSES.main)
    assert "Over one model for all: rcc −14 (−39 to +11)." in said
    assert "So one model for all" not in said
    worse = replace(found, over_single={"rcc": (-0.14, -0.2, -0.08), "ditto": (0.1, -0.1, 0.3)})
    assert said_last(worse) == "So one model for all serves clients better than rcc."
    assert not verdicts_of(runs[::2]).over_single  # nobody trained one


def test_an_interval_without_width_is_none():
    """That clients' few samples agree is chance: their mean gain is not known to the last bit."""
    assert not clients_of((0, 0), (2, 2), (1, 1)).means
    found = clients_of((30, 10), (30, 10))
    assert not found.means
    assert found.told_among_all == 2
    assert clients_of((30, 10), (30, 11)).means.keys() == {"rcc"}


def said_last(found):
    return found.said(OF_CLASSES.main).rpartition(". ")[2]


def test_errors_of_numbers_are_better_if_lower():
    runs = [
        run("local", {0: told(5.0)}, OF_A_NUMBER),
        run("rcc", {0: told(3.0, local=(2.0, 4.0))}, OF_A_NUMBER),
    ]
    found = verdicts_of(runs).clients[0]
    assert (found.verdict, found.strategy, found.gain[0]) == (JOIN, "rcc", 2.0)
    tables = {one.strategy: one.reports[0].validated for one in runs}
    assert pair_of(tables, 0, "local", "rcc", is_number=True).gain == -2.0


def test_a_comparison_is_of_as_many_samples_as_its_own_answer_says():
    """Whoever says other numbers with other models changes its own gain, and to none above 1."""
    runs = [
        run("rcc", {0: told(0.5, num=1)}),
        run("local", {0: told(0.5, num=1000, rcc=(0, 900))}),
    ]
    tables = {one.strategy: one.reports[0].validated for one in runs}
    assert pair_of(tables, 0, "rcc", "local", is_number=False) == Counts(900, 0, 1000)
    assert pair_of(tables, 0, "local", "rcc", is_number=False) == Counts(0, 900, 1000)


def test_nobody_is_judged_who_compared_nothing():
    assert verdicts_of([run("local", {}), run("rcc", {})]) is None
    assert verdicts_of([run("rcc", {0: told(0.5)}), run("x", {0: told(0.5)})]) is None
    assert verdicts_of([run("local", {0: told(0.5)})]) is None
    lost = [run("local", {0: told(0.5), 1: told(0.5)}), run("rcc", {1: told(0.9, local=(40, 0))})]
    assert [one.client for one in verdicts_of(lost).clients] == [1]


def test_an_interval_ends_at_0_only_where_holm_tells_more_than_it():
    """Of two, both are at 2.5 %: t = 2.1 of 99 degrees is p = 0.038, told beside a surer one."""
    half = t.isf(0.0125, 99) / 10  # 0.2277
    sure = told(4.5, local=(0.5, 1.0))
    both = one_client(OF_A_NUMBER, local=told(5.0), a=told(4.79, local=(0.21, 1.0)), b=sure)
    assert both.candidates["a"][:3] == pytest.approx((0.21, 0.0, 0.21 + half))
    assert both.candidates["b"][1] == pytest.approx(0.5 - half)
    unsure = told(4.9, local=(0.1, 1.0))
    neither = one_client(OF_A_NUMBER, local=told(5.0), a=told(4.79, local=(0.21, 1.0)), b=unsure)
    assert neither.gain == pytest.approx((0.21, 0.21 - half, 0.21 + half))


def test_intervals_of_several_means_err_together():
    """Of a's gains of 10 and 30 samples in 100 the mean is 0.2 ± t · 0.1, of two means at 2.5 %."""
    runs = [
        run("local", {0: told(0.5), 1: told(0.5)}),
        run("a", {0: told(0.6, local=(15, 5)), 1: told(0.8, local=(35, 5))}),
        run("b", {0: told(0.5, local=(5, 5)), 1: told(0.6, local=(12, 2))}),
    ]
    half = t.isf(0.0125, 1) * 0.1
    assert verdicts_of(runs).means["a"] == pytest.approx((0.2, 0.2 - half, 0.2 + half))
