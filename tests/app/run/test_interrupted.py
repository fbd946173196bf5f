"""Ctrl-C, once and again: what was started is ended in any case."""

import os
import signal
from threading import Thread

import pytest

from fl_app.simulation import launch
from fl_app.simulation.launch import uninterrupted


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Where tests are started in the background, Python is born with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    """Do what a terminal does at Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_being_ended_is_not_interrupted_and_the_next_thing_is(capfd):
    with uninterrupted():
        press()
        press()
    assert capfd.readouterr().err == "stopping…\nstopping…\n"
    with pytest.raises(KeyboardInterrupt):
        press()


def test_signals_that_mean_something_else_are_left_alone(monkeypatch):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("own"))
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["own"]


def test_another_thread_may_end_things_too():
    done = []

    def end() -> None:
        with uninterrupted():
            done.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=end)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_a_second_ctrl_c_does_not_stop_the_stopping(monkeypatch, capfd):
    ended = []

    def stop(process) -> None:
        press()  # by somebody who cannot wait
        process.kill()
        ended.append(process.wait())

    monkeypatch.setattr(launch, "_stop", stop)
    monkeypatch.setattr(launch.sys, "executable", "cat")
    with pytest.raises(KeyboardInterrupt):
        launch.run_on_ray({}, lambda line: press(), workers=1, gpus=0.0)
    assert ended
    assert "stopping…" in capfd.readouterr().err
