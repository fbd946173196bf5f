"""Ctrl-C, once and again: what was started is ended in any case."""

import os
import signal
from threading import Thread

import pytest

import fl_app.simulation.superlink
from fl_app.simulation.processes import uninterrupted
from fl_app.simulation.superlink import private_superlink


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


def test_a_second_ctrl_c_leaves_no_superlink_behind(tmp_path, monkeypatch, capfd):
    ended = []

    def stop(process, home) -> None:
        press()  # by somebody who cannot wait
        process.kill()
        process.wait()
        ended.append(home)

    monkeypatch.setattr(fl_app.simulation.superlink, "program_path", lambda _: "true")
    monkeypatch.setattr(fl_app.simulation.superlink, "_wait_until_healthy", lambda *_: None)
    monkeypatch.setattr(fl_app.simulation.superlink, "stop_family", stop)
    with pytest.raises(KeyboardInterrupt), private_superlink(tmp_path):
        press()
    assert ended == [tmp_path]
    assert "stopping…" in capfd.readouterr().err
