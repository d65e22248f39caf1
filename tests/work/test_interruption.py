"""Signals: the first waits for the step under way, the second does not."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ldsearch.errors import LdsearchError
from ldsearch.work.interruption import Interrupted, interruptible


@pytest.fixture(autouse=True)
def as_on_a_terminal() -> Iterator[None]:
    """A shell's background jobs, CI's among them, start with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@BOTH
def test_the_first_signal_is_noted_and_said_once_and_the_work_goes_on_to_where_it_checks(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with interruptible() as stop:
        stop.check()
        assert stop.requested is None
        signal.raise_signal(number)
        assert stop.requested == number
        with pytest.raises(Interrupted) as caught:
            stop.check()
    assert caught.value.signum == number
    assert str(caught.value) == f"interrupted by {number.name}"
    assert capfd.readouterr().err.strip() == "finishing the current step; once more to stop at once"


@BOTH
def test_the_second_signal_stops_at_once(number: signal.Signals) -> None:
    with interruptible() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert stop.requested == signal.SIGTERM


def test_a_stop_that_was_asked_for_is_no_error_of_ours_and_not_what_an_except_for_them_catches() -> None:
    assert not issubclass(Interrupted, LdsearchError)


def test_the_old_handlers_come_back_however_the_work_ended() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interruptible() as stop:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [stop, stop]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise KeyboardInterrupt
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def inner_work() -> None:
    with interruptible() as stop:
        signal.raise_signal(signal.SIGTERM)
        stop.check()


def test_who_asks_the_inner_work_asks_the_outer_too() -> None:
    with interruptible() as outer:
        with pytest.raises(Interrupted):
            inner_work()
        assert signal.getsignal(signal.SIGTERM) is outer
        with pytest.raises(Interrupted) as caught:
            outer.check()
    assert caught.value.signum == signal.SIGTERM


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested is None
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nobody_asks_and_no_handler_is_touched() -> None:
    seen: list[object] = []

    def work() -> None:
        with interruptible() as stop:
            seen.extend((signal.getsignal(signal.SIGTERM), stop.requested))
            stop.check()
            seen.append("done")

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, None, "done"]


def test_a_forked_worker_keeps_the_request_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with interruptible():
        worker = os.fork()
        if worker == 0:
            signal.raise_signal(signal.SIGINT)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 7
    assert capfd.readouterr().err == ""
