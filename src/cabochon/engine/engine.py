"""The loop: plan, build, run, sample, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TypeAlias, TypeVar

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.engine.choose import Chosen, choose
from cabochon.engine.draft import Drafter
from cabochon.engine.holdings import Holdings
from cabochon.engine.loop_guard import loops
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.engine.scheduler import Scheduler
from cabochon.errors import UsageError
from cabochon.events import RequestEvent, SequencePlan, StepPlan, StepRecord
from cabochon.kvcache.pages import PagePool, plan_pages
from cabochon.kvcache.prefix import PrefixCache, common_ids
from cabochon.kvcache.store import KVStore
from cabochon.model.model import Model
from cabochon.sampling.sampler import takes_best
from cabochon.types import FinishReason, Logits, StepInput, TokenOut

T = TypeVar("T")

Observer: TypeAlias = Callable[[StepRecord], None]
"""Told of every step whose tokens have been chosen, before they join their texts."""


def pools_for(store: KVStore) -> tuple[PagePool, ...]:
    """A pool over each group's pages of ``store``."""
    return tuple(PagePool(pages) for pages in store.pages)


class Engine:
    """Runs requests on one model, together. Any thread may call anything. One runs a step, and what else changes pages
    waits for its end; ``submit`` and ``cancel`` never wait.

    Whatever ends a request, an error in a step included, its pages go back to the pools at once. An interruption that
    may have come between any two lines (Ctrl-C) ends all requests, and the pools are as new.
    """

    def __init__(
        self,
        model: Model,
        pools: Sequence[PagePool],
        limits: Limits,
        *,
        chunk: int,
        max_running: int = 1,
        prefixes: PrefixCache | None = None,
        speculate: int = 0,
        observer: Observer | None = None,
    ) -> None:
        """``chunk`` is the most rows of a step, of all sequences together, and ``max_running`` the most sequences that
        run at a time, no more than rows. ``prefixes``, over the same pools, lets texts that begin alike share pages.
        ``speculate`` is the most tokens of a text that are guessed from the text itself and tried in one step.

        Raises ``UsageError`` if the pools are too small for one sequence of the whole context.
        """
        self._model = model
        self._groups = model.store.layout.groups
        self._observer = observer
        self._speculate = speculate
        self.max_running = min(max_running, chunk)
        """The most sequences that run at a time."""
        self._holdings = Holdings(model.store, pools, prefixes, limits.context)
        self._scheduler = Scheduler(chunk, self.max_running, pools, admit=self._holdings.begin, pause=self._pause)
        self._states: dict[int, RequestState] = {}
        self._submitted = 0
        self._closed = False
        self._lock = RLock()
        """Held during a step, and whenever pages change hands."""
        self._door = RLock()
        """Held for a moment where a request comes or goes, never during a step; the last of the two to be taken."""
        self._at_work = False
        self._stepping = False
        self._leaving: list[tuple[RequestState, FinishReason]] = []
        self.prefixes = prefixes
        """The prefix cache, if texts share pages."""
        self.limits = limits
        self.chunk = chunk
        for pool, pages in zip(pools, plan_pages(self._groups, limits.context, chunk), strict=True):
            if pool.pages < pages:
                raise UsageError(
                    f"a pool of {pool.pages} pages is too small: a context of {limits.context} in chunks of {chunk}"
                    f" takes {pages}"
                )

    @property
    def unfinished(self) -> int:
        """Requests running or waiting."""
        return len(self._states)

    @property
    def idle(self) -> bool:
        """Whether no request is running or waiting."""
        return not self._states

    @property
    def pauses(self) -> int:
        """How often a running request had to make room for an older one."""
        return self._scheduler.pauses

    def submit(self, request: Request, fork_of: RequestState | None = None) -> RequestState:
        """Puts a request in line and returns its handle.

        ``fork_of`` is an earlier request whose text begins as this prompt does: one of several replies to one prompt,
        or a text that is gone on with in another way. As long as that runs, this one waits for what both begin with,
        shares its pages and runs only what comes after. One that has ended, or is another engine's or another tenant's,
        has none to share.

        Raises as ``Limits.check``, ``QueueFullError`` if as many requests or tokens wait already as may, and
        ``UsageError`` once the engine is closed.
        """
        request = self.limits.check(request)
        with self._door:
            if self._closed:
                raise UsageError("the session is closed")
            self._scheduler.check_line(self.limits, len(request.prompt))
            ids, drafter, tables = list(request.prompt), Drafter(self._speculate), self._holdings.new_tables()
            state = RequestState(self._submitted, request, tables, ids, drafter, self._best_only(request))
            ours = fork_of is not None and self._states.get(fork_of.number) is fork_of
            if fork_of is not None and ours and fork_of.request.tenant == request.tenant:
                state.fork_of, state.shared = fork_of, min(common_ids(fork_of.ids, ids), len(ids) - 1)
            self._submitted += 1
            try:
                self._states[state.number] = state
                self._scheduler.add(state)
            except BaseException:  # Ctrl-C
                self._scheduler.discard(state)
                self._states.pop(state.number, None)
                raise
        return state

    def cancel(self, state: RequestState, reason: FinishReason = "cancelled") -> None:
        """Ends a request; nothing happens if it has ended. While a step runs, in whatever thread, it ends after it."""
        if state.phase != "finished":
            self._leaving.append((state, reason))
            self._settle()

    def cancel_all(self) -> None:
        """Ends all requests."""
        self.at_rest(self._leave_all)

    def close(self) -> None:
        """Ends all requests and takes no more."""
        with self._door:
            self._closed = True
        self.cancel_all()

    def step(self) -> tuple[RequestEvent, ...]:
        """Runs one step; what it brought, in the order of the plan. An idle engine does nothing.

        What a sequence's share raises (an overflow) ends its request with ``error``, which holds it; the others of the
        step are run without it, and none is any different for it.

        Raises ``UsageError`` within a step: a constraint or an observer cannot wait for another generation.
        """
        return self.at_rest(self._step)

    def advance(self, state: RequestState, tokens: int) -> None:
        """Runs steps until more than ``tokens`` tokens of a request have been chosen, or it has ended.

        Where several threads wait, each in turn runs steps for all.
        """
        while not state.has_come(tokens):
            self.at_rest(lambda: None if state.has_come(tokens) else self.step())

    def at_rest(self, work: Callable[[], T]) -> T:
        """Calls ``work`` while no step runs on another thread: pages may be read, and others named."""
        try:
            return self._turn(work)
        finally:
            self._settle()

    def check_integrity(self) -> None:
        """Raises ``AssertionError`` unless every page is owned as often as counted and all requests are consistent."""
        with self._door:
            states, scheduled = list(self._states.values()), self._scheduler.requests
        for state in states:
            state.check()
        self._holdings.check_integrity(states)
        if sorted(state.number for state in scheduled) != [state.number for state in states]:
            raise AssertionError("the scheduler's requests are not the engine's")

    # ---- A step -------------------------------------------------------------------------------------------------

    def _step(self) -> tuple[RequestEvent, ...]:
        if self._stepping:
            raise UsageError("nothing can be generated from within a step, as by a constraint or an observer")
        try:
            self._stepping = True
            return self._run_step()
        finally:
            self._stepping = False

    def _run_step(self) -> tuple[RequestEvent, ...]:
        plan = self._scheduler.plan()
        try:
            return self._run(plan)
        except Exception as error:
            if len(plan.sequences) == 1 and not plan.sequences[0].guesses:
                return self._fail(plan.sequences[0], error)
        return tuple(event for share in plan.sequences for event in self._run_alone(share))

    def _run(self, plan: StepPlan) -> tuple[RequestEvent, ...]:
        if not plan.sequences:
            return ()
        start = time.perf_counter()
        step = self._build(plan)
        logits = self._model.run(step)
        chosen = self._choose(plan, logits)
        seconds = time.perf_counter() - start
        if self._observer is not None:
            choices = tuple(new.choices for new in chosen)
            self._observer(StepRecord(plan, step, logits, choices, seconds))
        return self._commit(plan, chosen, seconds)

    def _run_alone(self, share: SequencePlan) -> tuple[RequestEvent, ...]:
        share = share.without_guesses  # what these raise the text itself may never come to, or later
        try:
            return self._run(StepPlan((share,)))
        except Exception as error:
            return self._fail(share, error)

    def _fail(self, share: SequencePlan, error: Exception) -> tuple[RequestEvent, ...]:
        state = self._states[share.request]
        state.error = error
        self._finish(state, "error")
        return (RequestEvent(state.number, None, "error"),)

    def _build(self, plan: StepPlan) -> StepInput:
        parts = []
        for share in plan.sequences:
            state = self._states[share.request]
            ids = [*state.ids[share.first : share.first + share.known], *share.guesses]
            wanted = range(share.rows - share.logits, share.rows)
            rows = ((), wanted) if share.best_only else (wanted, ())
            parts.append(SequenceRows(ids, share.first, state.tables, *rows))
        return build_step(parts, self._groups)

    def _choose(self, plan: StepPlan, logits: Logits) -> list[Chosen]:
        """What the logits give each sequence of the plan."""
        rows, bests, vocab = logits.rows(), iter(logits.bests), self.limits.vocab
        return [choose(share, rows, bests, self._states[share.request], vocab) for share in plan.sequences]

    def _commit(self, plan: StepPlan, chosen: Sequence[Chosen], seconds: float) -> tuple[RequestEvent, ...]:
        events = []
        for share, new in zip(plan.sequences, chosen, strict=True):
            state = self._states[share.request]
            decoding = bool(state.tokens)
            state.scores += new.scores
            appended = self._append_all(state, new.tokens)
            state.work.count(share.rows, len(appended), seconds, decoding=decoding)
            right = max(len(appended) - 1, 0)
            state.drafter.learn(len(share.guesses), right)
            self._holdings.stored(state, share.first + share.known + right)
            if not (state.left or appended):  # a prompt that is only scored
                appended.append(RequestEvent(state.number, None, "length"))
            if appended and appended[-1].finish_reason is not None:
                self._finish(state, appended[-1].finish_reason)
            events += appended
        return tuple(events)

    def _append_all(self, state: RequestState, tokens: Sequence[TokenOut]) -> list[RequestEvent]:
        """What the tokens brought, up to the one that ends the request."""
        events = list[RequestEvent]()
        for token in tokens:
            events.append(self._append(state, token))
            if events[-1].finish_reason is not None:
                break
        return events

    def _append(self, state: RequestState, token: TokenOut) -> RequestEvent:
        if token.token_id in state.request.stop_ids:
            return RequestEvent(state.number, None, "stop")
        state.tokens.append(token)
        state.ids.append(token.token_id)
        return RequestEvent(state.number, token, self._end(state))

    def _end(self, state: RequestState) -> FinishReason | None:
        """Why a request ends with the token it just got, if it does."""
        request = state.request
        if request.loop_guard and loops(state.ids, len(request.prompt), request.loop_guard):
            return "loop"
        return "length" if len(state.tokens) == request.max_tokens else None

    def _best_only(self, request: Request) -> bool:
        """Whether the model may keep all logits to itself but the best id's."""
        seen = self._observer is not None or self.limits.vocab < self._model.config.vocab
        return not seen and request.logprobs is None and takes_best(request.params, request.constraint)

    # ---- Requests -------------------------------------------------------------------------------------------------

    def _pause(self, state: RequestState) -> None:
        self._holdings.let_go(state)
        state.computed = 0

    def _finish(self, state: RequestState, reason: FinishReason) -> None:
        with self._door:
            self._scheduler.remove(state)
            del self._states[state.number]
        state.phase, state.finish_reason, state.fork_of = "finished", reason, None
        self._holdings.let_go(state)

    # ---- One at a time --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Sees off whoever is to leave, unless another thread is at work: it comes here when it is done."""
        while self._leaving and self._lock.acquire(blocking=False):
            try:
                if self._at_work:
                    return
                self._turn(lambda: None)
            finally:
                self._lock.release()

    # No context manager: Ctrl-C at its end would leave it open until whoever holds the exception lets it go.
    def _turn(self, work: Callable[[], T]) -> T:
        """What changes requests and pages: one thread at a time, and nothing is left half done."""
        with self._lock:
            if self._at_work:  # within a step: an observer's call, or a stream that is collected
                return work()
            try:
                self._at_work = True
                try:
                    result = work()
                except Exception:
                    self._see_off()
                    raise
                self._see_off()
                return result
            except BaseException as error:
                if not isinstance(error, Exception):  # Ctrl-C: it may have come between any two lines
                    self._start_over()
                raise
            finally:
                self._at_work = False

    def _see_off(self) -> None:
        """Ends the requests that are to leave."""
        while self._leaving:
            state, reason = self._leaving.pop()
            if state.phase != "finished":
                self._finish(state, reason)
        if self.idle:
            self.check_integrity()

    def _leave_all(self) -> None:
        self._leaving += [(state, "cancelled") for state in self._scheduler.requests]

    def _start_over(self) -> None:
        """All requests end, and nobody owns a page."""
        with self._door:
            states = list(self._states.values())
            self._states.clear()
            self._leaving.clear()
            self._scheduler.clear()
        for state in states:
            state.phase, state.finish_reason, state.fork_of = "finished", "cancelled", None
        self._holdings.start_over(states)
