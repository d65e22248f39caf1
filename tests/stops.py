"""Asks this process to stop, as a signal would."""

import signal


def ask_to_stop(number: int = signal.SIGTERM) -> None:
    """Call what holds the signal back: in a process of many tests none is sent that could end it."""
    handler = signal.getsignal(number)
    assert callable(handler), f"nothing holds {signal.Signals(number).name} back"
    handler(number, None)
