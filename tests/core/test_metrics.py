"""What is measured of classes and of a number: how it is written, and which direction is better."""

import math

import pytest
from flwr.app import MetricRecord, RecordDict

from fl_core.metrics import OF_A_NUMBER, OF_CLASSES, metrics_in, metrics_of
from strategies.rounds.replies import read_tests

ACCURACY, RMSE = OF_CLASSES.main, OF_A_NUMBER.main
MAE, R2 = OF_A_NUMBER.others


def test_values_for_people():
    assert [ACCURACY.shown(value) for value in (0.9321, 1.0, 0.0)] == ["93.2", "100.0", "0.0"]
    assert (ACCURACY.with_unit(0.5), ACCURACY.head, ACCURACY.heading) == (
        *("50.0 %", "accuracy %", "Accuracy"),
    )
    shown = [RMSE.shown(value) for value in (1.39, 53.12345, 1234.5, 0.00012345)]
    assert shown == ["1.390", "53.12", "1234", "0.0001234"]
    assert (RMSE.with_unit(2.0), RMSE.head, RMSE.heading) == ("2.000", "RMSE", "RMSE")


def test_the_worst_is_the_lowest_accuracy_and_the_highest_error():
    assert (ACCURACY.worst([0.9, 0.2, 0.5]), ACCURACY.extreme) == (0.2, "lowest")
    assert (RMSE.worst([0.9, 0.2, 0.5]), RMSE.extreme) == (0.9, "highest")


def test_results_tell_by_their_keys_what_was_measured():
    assert metrics_in({"accuracy": 1}) is metrics_of(is_regression=False) is OF_CLASSES
    assert metrics_in({"rmse": 1}) is metrics_of(is_regression=True) is OF_A_NUMBER


def read_of(metrics, **sent):
    found, other, compared = read_tests(RecordDict({"metrics": MetricRecord(sent)}), metrics)
    assert not other
    assert not compared
    return found


def test_what_a_client_compared_is_read_and_nonsense_refused():
    def read(**sent):
        records = {"metrics": MetricRecord({"accuracy": 0.5}), "validation": MetricRecord(sent)}
        return read_tests(RecordDict(records), OF_CLASSES)[2]

    whole = {"num-examples": 9, "score": 0.5, "loss": 0.25}
    assert read(**whole, local=[3.0, 1.0]) == {"": [9, 0.5, 0.25], "local": [3.0, 1.0]}
    for wrong in (
        {"num-examples": 0},
        {"score": -1.0},
        {"score": math.nan},
        {"local": 3.0},
        {"local": [1.0]},
        {"local": [1.0, math.inf]},
    ):
        with pytest.raises(ValueError, match=r"compared models on|comparison with \"local\""):
            read(**{**whole, **wrong})
    assert read(**{**whole, "loss": math.nan})[""][2] == math.inf


def test_a_number_s_test_is_read_and_what_is_no_metric_of_it_is_passed_over():
    sent = {"rmse": 2.0, "mae": 1.0, "r2": -3.0, "loss": 4.0, "accuracy": 7.0}
    found = read_of(OF_A_NUMBER, **sent)
    assert found == {"rmse": 2, "mae": 1, "r2": -3, "loss": 4}
    assert read_of(OF_A_NUMBER, rmse=2.0, loss=math.nan) == {"rmse": 2}
    assert read_of(OF_CLASSES, accuracy=0.5, rmse=2.0) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"accuracy": 0.5}, "its rmse is None, not a number of at least 0"),
        ({"rmse": -1.0}, "its rmse is -1.0, not a number of at least 0"),
        ({"rmse": math.inf}, "its rmse is inf, not a number of at least 0"),
        ({"rmse": 1.0, "mae": math.nan}, "its mae is nan, not a number of at least 0"),
        ({"rmse": 1.0, "r2": 1.5}, r"its r2 is 1\.5, not a number of at most 1"),
    ],
)
def test_a_test_that_cannot_be_is_refused(sent, message):
    with pytest.raises(ValueError, match=message):
        read_of(OF_A_NUMBER, **sent)
