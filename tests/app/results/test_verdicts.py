from types import SimpleNamespace

import pytest

from fl_app.report.verdicts import JOIN, ONE, STAY, UNSURE
from fl_app.results.verdicts import pair_of, verdicts_of
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES


def run(strategy, validated, metrics=OF_CLASSES, clusters=None):
    report = SimpleNamespace(validated=validated)
    clients = dict.fromkeys(range(9), 0) if clusters is None else clusters
    return SimpleNamespace(
        strategy=strategy, seed=0, reports=[report], of_client=clients, metrics=metrics
    )


def told(score, num=100, **pairs):
    return {"": [num, score, 0.5], **{name: list(pair) for name, pair in pairs.items()}}


def one_client(**strategies):
    """Return the only verdict where a client was told these of its strategies, in order."""
    runs = [run(name, {0: own}, clusters={0: 3}) for name, own in strategies.items()]
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
    assert (unsure.verdict, unsure.strategy) == (UNSURE, "local")
    assert unsure.samples_needed > 100


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


def test_the_more_clients_and_strategies_there_are_the_surer_one_must_be():
    """6 against none is p = 0.031: enough for one comparison, not for two."""
    alone = [run("local", {0: told(0.5)}), run("rcc", {0: told(0.6, local=(6, 0))})]
    assert verdicts_of(alone).clients[0].verdict == JOIN
    two = [
        run("local", {0: told(0.5), 1: told(0.5)}),
        run("rcc", {0: told(0.6, local=(6, 0)), 1: told(0.5, local=(3, 3))}),
    ]
    assert [one.verdict for one in verdicts_of(two).clients] == [UNSURE, UNSURE]


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


def test_errors_of_numbers_are_better_if_lower():
    runs = [
        run("local", {0: told(5.0)}, OF_A_NUMBER),
        run("rcc", {0: told(3.0, local=(2.0, 4.0))}, OF_A_NUMBER),
    ]
    found = verdicts_of(runs).clients[0]
    assert (found.verdict, found.strategy, found.gain[0]) == (JOIN, "rcc", 2.0)
    tables = {one.strategy: one.reports[0].validated for one in runs}
    assert pair_of(tables, 0, "local", "rcc", is_number=True).gain == -2.0


def test_nobody_is_judged_who_compared_nothing():
    assert verdicts_of([run("local", {}), run("rcc", {})]) is None
    assert verdicts_of([run("rcc", {0: told(0.5)}), run("x", {0: told(0.5)})]) is None
    assert verdicts_of([run("local", {0: told(0.5)})]) is None
    lost = [run("local", {0: told(0.5), 1: told(0.5)}), run("rcc", {1: told(0.9, local=(40, 0))})]
    assert [one.client for one in verdicts_of(lost).clients] == [1]
