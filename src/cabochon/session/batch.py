"""Many generations at once, as many together as the session runs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from cabochon.engine.engine import Engine
from cabochon.errors import CabochonError, UsageError
from cabochon.session.results import Generation
from cabochon.session.stream import Stream


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of many: a generation, or why there is none."""

    index: int
    """Its place among all, from 0."""
    result: Generation | None
    error: CabochonError | None


def run_all(engine: Engine, streams: Iterable[Stream | CabochonError], ahead: int) -> Generator[Outcome, None, None]:
    """Runs ``streams`` together, ``ahead`` of them in line at a time; outcomes in their order, as soon as they can be.

    One that fails does not disturb the others; another engine's fails with ``UsageError``. Left early, it ends those
    that run.
    """
    waiting = enumerate(streams)
    running: list[tuple[int, Stream]] = []
    done: dict[int, Outcome] = {}
    given = 0
    try:
        while True:
            while len(running) < ahead and (entry := next(waiting, None)) is not None:
                _start(engine, *entry, running, done)
            if not running:
                break
            if not any(stream.ready for _, stream in running):
                engine.step()
            running = [(index, stream) for index, stream in running if not _advance(index, stream, done)]
            while given in done:
                yield done.pop(given)
                given += 1
        while given in done:
            yield done.pop(given)
            given += 1
    finally:
        for _, stream in running:
            stream.close()


def results_of(outcomes: Generator[Outcome, None, None]) -> Iterator[Generation]:
    """Results; the first error there is is raised, and ends those that run, whoever keeps it."""
    with closing(outcomes):
        for outcome in outcomes:
            if outcome.result is None:
                raise outcome.error or AssertionError("neither a result nor an error")
            yield outcome.result


def _start(
    engine: Engine,
    index: int,
    entry: Stream | CabochonError,
    running: list[tuple[int, Stream]],
    done: dict[int, Outcome],
) -> None:
    if isinstance(entry, CabochonError):
        done[index] = Outcome(index, None, entry)
        return
    try:
        if not (entry.ended or entry.runs_on(engine)):  # it would never be ready
            raise UsageError("the stream is another session's; only that one can run it")
        entry.start()
        running.append((index, entry))
    except CabochonError as error:
        done[index] = Outcome(index, None, error)


def _advance(index: int, stream: Stream, done: dict[int, Outcome]) -> bool:
    """Takes the chunks that are there; whether the stream has come to its end."""
    try:
        while stream.ready and not stream.ended:
            next(stream)
    except CabochonError as error:
        done[index] = Outcome(index, None, error)
        return True
    if stream.ended:
        done[index] = Outcome(index, stream.result, None)
    return stream.ended
