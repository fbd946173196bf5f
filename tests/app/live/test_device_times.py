"""What the rounds of devices consist of."""

import pytest

from fl_app.grid.quorum import Took
from fl_app.live.device_times import DeviceTimes
from fl_app.report.device_times import TIMES


def test_two_steps_by_hand():
    """Each step lasts until its last answer; who does not answer has nothing of it."""
    times = DeviceTimes()
    times.answered(7, 4.0, Took(start_up=0.5, work=2.0))
    times.answered(3, 10.0, Took(start_up=1.0, work=6.0))
    times.over(10.5)
    times.answered(3, 2.0, Took(start_up=0.25, work=0.5))
    times.over(2.0)
    assert times.found() == {
        3: {"work": 6.5, "start-up": 1.25, "transfer": 4.25, "waiting": 0.5},
        7: {"work": 2.0, "start-up": 0.5, "transfer": 1.5, "waiting": 6.5},
    }
    assert [sum(parts.values()) for parts in times.found().values()] == [12.5, 10.5]
    assert list(times.found()) == [3, 7]


@pytest.mark.parametrize("took", [Took(9.0, 1.0), Took(0.0, 50.0), Took(50.0, 50.0)])
def test_nobody_took_longer_than_it_was_waited_for(took):
    times = DeviceTimes()
    times.answered(0, 3.0, took)
    times.over(3.0)
    found = times.found()[0]
    assert set(found) == set(TIMES)
    assert min(found.values()) >= 0
    assert sum(found.values()) == 3.0


def test_a_clock_that_was_set_back_leaves_nothing_below_zero():
    times = DeviceTimes()
    times.answered(0, -50.0, Took(0.5, 3.0))
    times.over(-40.0)
    assert set(times.found()[0].values()) == {0.0}


def test_without_an_answer_there_is_nothing():
    times = DeviceTimes()
    times.over(60.0)
    assert times.found() == {}
