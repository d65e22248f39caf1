"""Signals: the first waits for the step under way, the second does not."""

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from ldsearch.work.interruption import Interrupted, interruptible
from tests.stops import ask_to_stop

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = "finishing the current step; once more to stop at once"


def in_a_process_of_its_own(work: str) -> subprocess.CompletedProcess[str]:
    """Run code that is sent real signals: in a process of many tests a stray one ended all of them.

    A shell's background jobs, CI's among them, start with SIGINT ignored: not this one.
    """
    start = "import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    start += "from ldsearch.errors import LdsearchError\n"
    start += "from ldsearch.work.interruption import Interrupted, interruptible\n"
    return subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(work)], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_said_and_the_work_goes_on_to_where_it_checks_the_second_stops_at_once(
    number: signal.Signals,
) -> None:
    (other,) = {*SIGNALS} - {number}
    done = in_a_process_of_its_own(f"""
        with interruptible() as stop:
            stop.check()
            assert stop.requested is None
            signal.raise_signal({number:d})
            assert stop.requested == {number:d}
            try:
                stop.check()
            except LdsearchError:
                print("an error of ours, which an except for them would swallow")
            except Interrupted as caught:
                print(caught, caught.signum)
            try:
                signal.raise_signal({other:d})
            except KeyboardInterrupt:
                print(stop.requested)
    """)
    assert (done.returncode, done.stderr.strip()) == (0, NOTICE)
    assert done.stdout == f"interrupted by {number.name} {number:d}\n{number:d}\n"


def test_the_old_handlers_come_back_however_the_work_ended() -> None:
    before = [*map(signal.getsignal, SIGNALS)]
    with interruptible() as stop:
        assert [*map(signal.getsignal, SIGNALS)] == [stop, stop]
    assert [*map(signal.getsignal, SIGNALS)] == before
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise KeyboardInterrupt
    assert [*map(signal.getsignal, SIGNALS)] == before


def test_who_asks_the_inner_work_asks_the_outer_too() -> None:
    with interruptible() as outer:
        with interruptible() as inner:
            ask_to_stop()
            with pytest.raises(Interrupted):
                inner.check()
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
            ask_to_stop()
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


def test_a_forked_worker_keeps_the_request_and_says_nothing() -> None:
    done = in_a_process_of_its_own("""
        with interruptible():
            worker = os.fork()
            if worker == 0:
                signal.raise_signal(signal.SIGINT)
                os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
