"""Failures of the same client, step and reason are one, with its rounds in words."""

import pytest

from strategies.rounds.failures import FailureLog


@pytest.mark.parametrize(
    ("rounds", "when"),
    [
        ([0], "before training"),
        ([3], "in round 3"),
        ([1, 2, 3, 5, 5, 7, 8], "in rounds 1–3, 5, 7–8"),
    ],
)
def test_rounds_of_a_failure_are_one_sentence(rounds, when):
    log = FailureLog()
    for number in rounds:
        log.add(4, "train", number, "its disk\nis full")
    (failure,) = log
    assert failure.describe("rome") == f"rome could not train {when}: its disk is full"


def test_steps_and_reasons_of_a_client_stay_separate_and_copies_too():
    log = FailureLog()
    for step, number, reason in (("evaluate", 2, "late"), ("losses", 1, "late"), ("train", 1, "?")):
        log.add(0, step, number, reason)
    other = log.copy()
    other.add(0, "train", 2, "?")
    actions = ["failed at losses", "could not train", "could not be tested"]
    assert [failure.action for failure in log] == actions
    assert [failure.rounds for failure in log] == [(1,), (1,), (2,)]
