"""Steps for coroutines: one thread runs the engine as long as any of them waits, whatever event loops they are in.

A coroutine says how far it wants a request to come, and waits for a future of its own loop. The thread runs a step for
all, wakes those whose wish is fulfilled, and so on. With nobody waiting there are no steps, as with streams that are
read without ``await``: who does not ask for more gets no more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

from cabochon.engine.engine import Engine
from cabochon.engine.request import RequestState
from cabochon.errors import RunError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A coroutine that waits."""

    state: RequestState
    tokens: int
    loop: AbstractEventLoop
    woken: Future[None]

    @property
    def served(self) -> bool:
        """Whether what it waits for is there, or nobody is any more who could be woken."""
        return self.state.has_come(self.tokens) or self.loop.is_closed()


class Driver:
    """Runs an engine for coroutines. Any thread, and any event loop, may call it."""

    def __init__(self, engine: Engine) -> None:
        """The thread begins with the first coroutine that has to wait."""
        self._step: Callable[[], object] = engine.step
        # A coroutine that is collected forgets its wish, wherever its last reference goes: in here as well.
        self._lock = RLock()
        self._waiters: set[_Waiter] = set()
        self._worker: ThreadPoolExecutor | None = None
        self._busy = False

    async def advance(self, state: RequestState, tokens: int) -> None:
        """As ``Engine.advance``, but other coroutines go on meanwhile."""
        # Twice the start-up time of this package, which programs without coroutines are spared.
        from asyncio import get_running_loop

        while not state.has_come(tokens):
            loop = get_running_loop()
            waiter = _Waiter(state, tokens, loop, loop.create_future())
            self._add(waiter)
            try:
                await waiter.woken
            finally:
                with self._lock:
                    self._waiters.discard(waiter)

    def close(self) -> None:
        """Lets the thread end. The engine has been closed: all requests have ended, and whoever waits is woken."""
        with self._lock:
            self._step = _no_step
            worker = self._worker
        if worker is not None:
            worker.shutdown(wait=False)

    def _add(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.add(waiter)
            if not self._busy:
                self._worker = self._worker or ThreadPoolExecutor(1, "cabochon-steps")
                self._begin_turn()

    def _begin_turn(self) -> None:
        """With the lock held. Each turn is work of its own, so that at exit Python waits for one step, not for all."""
        assert self._worker is not None
        try:
            self._worker.submit(self._turn)
            self._busy = True
        except RuntimeError:  # no work is taken any more
            self._busy = False
            self._wake_served()
            self._fail(RunError("the program ends; nothing is generated any more"))

    def _turn(self) -> None:
        """One step, if anybody still waits for one."""
        with self._lock:
            self._wake_served()
            waiting = bool(self._waiters)
        error: BaseException | None = None
        if waiting:
            try:
                self._step()
            except BaseException as raised:
                error = raised
        with self._lock:
            self._wake_served()
            if error is not None:
                self._fail(error)
            self._busy = False
            if self._waiters:
                self._begin_turn()

    def _wake_served(self) -> None:
        self._wake([waiter for waiter in list(self._waiters) if waiter.served], None)

    def _fail(self, error: BaseException) -> None:
        """Nobody is left waiting for a step that will not come."""
        self._wake(list(self._waiters), error)

    def _wake(self, waiters: list[_Waiter], error: BaseException | None) -> None:
        self._waiters.difference_update(waiters)
        for loop in {waiter.loop for waiter in waiters}:
            futures = [waiter.woken for waiter in waiters if waiter.loop is loop]
            try:
                loop.call_soon_threadsafe(_settle, futures, error)
            except RuntimeError:  # the loop has been closed, and nobody is there who could be woken
                continue


def _no_step() -> None:
    """Of an engine that has been closed; the model's memory is not held for it."""


def _settle(futures: list[Future[None]], error: BaseException | None) -> None:
    """In the loop's own thread."""
    for future in futures:
        if future.done():  # its coroutine was cancelled
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
