"""Which rows run next (stop 3). Plans are integers only; no array and no token is looked at here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from cabochon.engine.request import Limits, RequestState
from cabochon.errors import QueueFullError
from cabochon.events import SequencePlan, StepPlan
from cabochon.kvcache.pages import PagePool, PageTable

FEW_ROWS = 8
"""Rows, guesses included, that decoding takes hardly longer than one: weights are read from memory once for all."""

SCORED_ROWS = 32
"""Rows of a step, at most, that are run to score a prompt: the logits of each are as many as the vocabulary."""

Change = Callable[[RequestState], None]


class Scheduler:
    """Continuous batching: each step takes the next token of every running request, then pieces of prompts.

    A request's share of a step is some of what is known of its sequence and not yet stored: a piece of its prompt, or
    the one token just chosen. The two are no different here, but that single rows go first. A step has at most
    ``token_budget`` rows. Requests begin in order of arrival, as far as there are pages; a fork waits for what its
    origin is about to store, and those behind it with it. When pages run out, the newest running request is paused: its
    pages are let go, and it begins again, first in line, when there is room.
    """

    def __init__(
        self, token_budget: int, max_running: int, pools: Sequence[PagePool], *, admit: Change, pause: Change
    ) -> None:
        """``admit`` gives a waiting request what is held of its prompt; ``pause`` takes all pages from a running one.

        The pools must hold one sequence of the whole context.
        """
        self._token_budget = token_budget
        self._max_running = max_running
        self._pools = pools
        self._admit = admit
        self._pause = pause
        self._waiting: deque[RequestState] = deque()
        self._running: list[RequestState] = []
        self._refused: tuple[RequestState, list[int]] | None = None
        """The request that did not fit last, and the free pages it had."""
        self.pauses = 0
        """How often a running request had to make room."""

    @property
    def requests(self) -> list[RequestState]:
        """All that are not finished, those that run first."""
        return [*self._running, *self._waiting]

    def check_line(self, limits: Limits, tokens: int) -> None:
        """Raises ``QueueFullError`` if a prompt of ``tokens`` may not stand in line with those that do."""
        waiting = len(self._waiting)
        if limits.max_waiting is not None and waiting >= limits.max_waiting:
            raise QueueFullError(f"{waiting} requests are waiting already, as many as may; try again later")
        if limits.max_waiting_tokens is None:
            return
        waiting_tokens = sum(len(state.ids) for state in list(self._waiting))  # which a step may change
        if waiting_tokens + tokens > limits.max_waiting_tokens:
            raise QueueFullError(
                f"{waiting_tokens} tokens are waiting already; {tokens} more would be more than the"
                f" {limits.max_waiting_tokens} that may; try again later"
            )

    def add(self, state: RequestState) -> None:
        """A new request, last in line."""
        self._waiting.append(state)

    def remove(self, state: RequestState) -> None:
        """A request that has ended, wherever it stood."""
        (self._running if state.phase == "running" else self._waiting).remove(state)

    def discard(self, state: RequestState) -> None:
        """A request that is not in line after all, if it has come to be added."""
        with suppress(ValueError):
            self._waiting.remove(state)

    def clear(self) -> None:
        """There are no requests."""
        self._running.clear()
        self._waiting.clear()
        self._refused = None

    def plan(self) -> StepPlan:
        """The next step, with pages for all its rows; without sequences if nothing is to be done."""
        shares: dict[int, SequencePlan] = {}
        budget, scored = self._token_budget, SCORED_ROWS
        for state in sorted(self._running, key=lambda state: state.left > 1):
            share = _share(state, budget, scored, self._guesses(state, budget))
            if state.phase == "running" and share.rows and self._make_room(state, share.end, shares):
                shares[state.number] = share
                budget = self._token_budget - sum(share.rows for share in shares.values())
                scored = SCORED_ROWS - sum(share.rows for share in shares.values() if share.scores)
        while self._waiting and len(self._running) < self._max_running and budget:
            state = self._waiting[0]
            if state.awaits_origin or (state.to_score and not scored) or self._still_refused(state):
                break
            self._admit(state)
            share = _share(state, budget, scored)
            if not self._fits(state, share.rows):
                self._pause(state)
                self._refused = state, [pool.free for pool in self._pools]
                break
            self._begin(state)
            _grow(state.tables, share.end)
            shares[state.number] = share
            budget -= share.rows
            scored -= share.rows if share.scores else 0
        return StepPlan(tuple(shares.values()))

    def _guesses(self, state: RequestState, budget: int) -> tuple[int, ...]:
        """Guesses at the tokens after the last one, where few rows run."""
        if state.left > 1 or not state.tokens:
            return ()
        room = min(budget, FEW_ROWS // len(self._running), state.request.max_tokens - len(state.tokens))
        return state.drafter.draft(state.ids, room - 1)

    def _still_refused(self, state: RequestState) -> bool:
        """Whether a request did not fit, and no page has become free since."""
        if self._refused is None or self._refused[0] is not state or not self._running:
            return False
        return all(pool.free <= free for pool, free in zip(self._pools, self._refused[1], strict=True))

    def _begin(self, state: RequestState) -> None:
        self._refused = None
        self._waiting.popleft()
        state.phase = "running"
        self._running.append(state)

    def _fits(self, state: RequestState, rows: int) -> bool:
        """Whether there are pages for the whole of what is known, as far as a sliding group will hold it at once."""
        return all(
            table.missing(len(state.ids) if table.window is None else state.computed + rows) <= pool.free
            for table, pool in zip(state.tables, self._pools, strict=True)
        )

    def _make_room(self, state: RequestState, end: int, shares: dict[int, SequencePlan]) -> bool:
        """Takes pages for keys before ``end``, the newest requests' if need be; False if it is itself the newest."""
        while any(t.missing(end) > pool.free for t, pool in zip(state.tables, self._pools, strict=True)):
            newest = self._running.pop()
            self._pause(newest)
            self.pauses += 1
            newest.phase = "waiting"
            self._waiting.appendleft(newest)
            shares.pop(newest.number, None)
            if newest is state:
                return False
        _grow(state.tables, end)
        return True


def _grow(tables: Sequence[PageTable], end: int) -> None:
    for table in tables:
        table.grow(end)


def _share(state: RequestState, budget: int, scored: int, guesses: tuple[int, ...] = ()) -> SequencePlan:
    """The next rows of a request, as many as the budget has; where its prompt is scored, no other rows with them."""
    first, to_score = state.computed, state.to_score
    if to_score:
        again = len(state.scores) - first  # rows that ran before it was paused
        rows = min(again, budget) if again else min(to_score, budget, scored)
        return SequencePlan(state.number, first, rows, samples=False, scores=not again)
    known = min(state.left, budget)
    samples = known == state.left and state.request.max_tokens > 0
    return SequencePlan(state.number, first, known + len(guesses), samples, guesses, best_only=state.best_only)
