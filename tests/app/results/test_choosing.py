"""Which of a strategy's values is best on validation samples."""

from types import SimpleNamespace

import pytest

from fl_app.results.choosing import validates_better, validation_score
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES


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


def test_who_has_compared_nothing_is_not_better_than_who_has():
    assert validates_better(run(0.1), run())
    assert not validates_better(run(), run(0.1))
    assert not validates_better(run(), run())
