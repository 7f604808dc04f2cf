"""Ctrl-C as a wish to end soon, where what has been done is to be kept whole."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def first_one_waits() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C or SIGTERM has come. Only the second one interrupts."""
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    try:
        before = [signal.signal(number, note) for number in _SIGNALS]
    except ValueError:  # not in the main thread, where no signal comes
        yield lambda: False
        return
    try:
        yield lambda: came
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
