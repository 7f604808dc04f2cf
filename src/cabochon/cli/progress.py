"""A progress bar on stderr, for loads that take long; none if nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 0.3
"""Seconds before a bar appears."""


@contextmanager
def loading_bar(what: str = "loading") -> Iterator[Callable[[int, int], None] | None]:
    """A function to be told (done, in all), which draws a bar on stderr; None where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    # Half the start-up time of the command line; most runs draw no bar.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(stderr=True),
        transient=True,
        # Else what is printed to stdout meanwhile would come out on stderr.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(what)
    start = time.monotonic()

    def show(done: int, total: int) -> None:
        if time.monotonic() - start >= PATIENCE:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
