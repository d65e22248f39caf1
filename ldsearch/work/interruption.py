"""Signals that wait for the step under way: SIGINT and SIGTERM ask for a stop, a second one takes it."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTICE = b"\nfinishing the current step; once more to stop at once\n"


class Interrupted(Exception):  # noqa: N818 (nothing went wrong)
    """Raised where work stops on a signal, after saving its state.

    Args:
        signum: The signal received.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum


class Stop:
    """Stop request of a signal; the signal handler that records it."""

    def __init__(self) -> None:
        self.requested: int | None = None
        self._process = os.getpid()

    def __call__(self, signum: int, frame: object) -> None:
        """Note the first signal; give way to the second."""
        if self.requested is not None:
            raise KeyboardInterrupt
        self.requested = signum
        # Data loader workers inherit the handler, and Ctrl-C reaches them too: one notice is enough.
        if os.getpid() == self._process:
            # Not print: a signal may arrive in the middle of one, and buffered files refuse a second entry.
            with contextlib.suppress(OSError):
                os.write(2, _NOTICE)

    def check(self) -> None:
        """Stop here if a stop is requested.

        Raises:
            Interrupted: If so.
        """
        if self.requested is not None:
            raise Interrupted(self.requested)


@contextlib.contextmanager
def interruptible() -> Iterator[Stop]:
    """Hold SIGINT and SIGTERM back until the code inside asks for them with ``check``.

    Inside another ``interruptible`` this is the same stop: a request to the inner work reaches the outer one.
    Outside the main thread, where Python runs no signal handlers, no stop is ever requested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Stop()
        return
    old = {number: signal.getsignal(number) for number in _SIGNALS}
    for handler in old.values():
        if isinstance(handler, Stop):
            yield handler
            return
    # What is ignored (SIGINT below nohup, or in the background of a script) stays ignored, and what Python
    # did not install (None) it could not put back.
    old = {number: handler for number, handler in old.items() if handler not in (signal.SIG_IGN, None)}
    stop = Stop()
    try:
        for number in old:
            signal.signal(number, stop)
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
