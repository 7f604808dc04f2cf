"""The loop: plan, build, run, sample, commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.engine.scheduler import Scheduler
from cabochon.errors import UsageError
from cabochon.events import RequestEvent, StepPlan
from cabochon.kvcache.pages import PagePool, PageTable, plan_pages
from cabochon.kvcache.prefix import PrefixCache
from cabochon.kvcache.store import KVStore
from cabochon.model.model import Model
from cabochon.sampling.sampler import sample
from cabochon.types import FinishReason, Float32, StepInput, TokenOut

Observer: TypeAlias = Callable[[StepPlan, StepInput, Float32], None]
"""Told of every step, before its tokens are chosen: the plan, the input, and the logits [R, V] (valid for the call)."""


def pools_for(store: KVStore) -> tuple[PagePool, ...]:
    """A pool over each group's pages of ``store``."""
    return tuple(PagePool(pages) for pages in store.pages)


class Engine:
    """Runs requests on one model. For use by one thread at a time.

    Whatever ends a request, an error in a step included, its pages go back to the pools at once.
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
        observer: Observer | None = None,
    ) -> None:
        """``chunk`` is the most rows of a step, of all sequences together, and ``max_running`` the most sequences that
        run at a time, no more than rows. ``prefixes``, over the same pools, lets texts that begin alike share pages.

        Raises ``UsageError`` if the pools are too small for one sequence of the whole context.
        """
        self._model = model
        self._pools = pools
        self._groups = model.store.layout.groups
        self._prefixes = prefixes
        self._observer = observer
        self._scheduler = Scheduler(chunk, min(max_running, chunk), pools, admit=self._take_pages, pause=self._pause)
        self._states: dict[int, RequestState] = {}
        self._submitted = 0
        self._closed = False
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

    def submit(self, request: Request) -> RequestState:
        """Puts a request in line and returns its handle.

        Raises as ``Limits.check``, and ``UsageError`` once the engine is closed.
        """
        if self._closed:
            raise UsageError("the session is closed")
        request = self.limits.check(request)
        state = RequestState(self._submitted, request, self._new_tables(), list(request.prompt))
        self._submitted += 1
        self._states[state.number] = state
        self._scheduler.add(state)
        return state

    def cancel(self, state: RequestState, reason: FinishReason = "cancelled") -> None:
        """Ends a request; nothing happens if it has ended."""
        if state.phase != "finished":
            self._finish(state, reason)
            self._check_if_idle()

    def cancel_all(self) -> None:
        """Ends all requests."""
        for state in self._scheduler.requests:
            self.cancel(state)

    def close(self) -> None:
        """Ends all requests and takes no more."""
        self.cancel_all()
        self._closed = True

    def step(self) -> tuple[RequestEvent, ...]:
        """Runs one step; what it brought, in the order of the plan. An idle engine does nothing.

        Raises what the model or the sampler raises; the requests of the step have then ended with ``error``, and hold
        it. Others go on with the next call.
        """
        plan = self._scheduler.plan()
        if not plan.sequences:
            return ()
        with self._ending_requests_on_error(plan):
            step = self._build(plan)
            logits = self._model.forward(step)
            if self._observer is not None:
                self._observer(plan, step, logits)
            tokens = self._sample(plan, logits)
            return self._commit(plan, tokens)

    def hidden_states(self, ids: Sequence[int], rows: int) -> Generator[Float32, None, None]:
        """Normalised hidden states [n, D] of all ``ids``, ``rows`` of them at a time, from empty pages.

        Raises ``UsageError`` while requests are unfinished: their pages and these might not fit together.
        """
        if not self.idle:
            raise UsageError("an unfinished generation holds the key/value cache; finish it or close its stream first")
        return self._hidden_states(ids, rows)

    def check_integrity(self) -> None:
        """Raises ``AssertionError`` unless every page is owned as often as counted and all requests are consistent."""
        states = list(self._states.values())
        for state in states:
            state.check()
        for group, pool in enumerate(self._pools):
            pool.check_integrity([state.tables[group] for state in states])
        if self._prefixes is not None:
            self._prefixes.check_integrity()
        if sorted(state.number for state in self._scheduler.requests) != sorted(self._states):
            raise AssertionError("the scheduler's requests are not the engine's")

    def _new_tables(self) -> tuple[PageTable, ...]:
        groups = zip(self._pools, self._groups, strict=True)
        return tuple(PageTable(pool, group.window, self.limits.context) for pool, group in groups)

    def _build(self, plan: StepPlan) -> StepInput:
        parts = []
        for share in plan.sequences:
            state = self._states[share.request]
            logit_rows = [share.rows - 1] if share.samples else []
            parts.append(SequenceRows(state.ids[share.first : share.end], share.first, state.tables, logit_rows))
        return build_step(parts, self._groups)

    def _sample(self, plan: StepPlan, logits: Float32) -> list[TokenOut | None]:
        """For each sequence of the plan its token, or None in the middle of a prompt."""
        rows = iter(logits)
        return [
            self._choose(self._states[share.request].request, next(rows), share.end) if share.samples else None
            for share in plan.sequences
        ]

    def _choose(self, request: Request, logits: Float32, position: int) -> TokenOut:
        return sample(logits, request.params, position, self.limits.vocab, request.logprobs)

    def _commit(self, plan: StepPlan, tokens: Sequence[TokenOut | None]) -> tuple[RequestEvent, ...]:
        events = []
        for share, token in zip(plan.sequences, tokens, strict=True):
            state = self._states[share.request]
            state.computed = share.end
            if self._prefixes is not None and state.trail is not None:
                self._prefixes.extend(state.trail, state.ids, state.computed, state.tables)
            for table in state.tables:
                table.let_go_behind(share.end)
            if token is not None:
                events.append(self._append(state, token))
        self._check_if_idle()
        return tuple(events)

    def _append(self, state: RequestState, token: TokenOut) -> RequestEvent:
        if token.token_id in state.request.stop_ids:
            self._finish(state, "stop")
            return RequestEvent(state.number, None, "stop")
        state.tokens.append(token)
        state.ids.append(token.token_id)
        if len(state.tokens) == state.request.max_tokens:
            self._finish(state, "length")
        return RequestEvent(state.number, token, state.finish_reason)

    def _finish(self, state: RequestState, reason: FinishReason) -> None:
        self._scheduler.remove(state)
        del self._states[state.number]
        state.phase, state.finish_reason = "finished", reason
        self._let_go_pages(state)

    def _take_pages(self, state: RequestState) -> None:
        """Pages that hold the beginning of a text already, for one that begins."""
        if self._prefixes is not None:
            tenant = state.request.tenant
            state.trail, state.computed = self._prefixes.begin(state.ids, state.tables, tenant)
            state.reused = state.computed

    def _let_go_pages(self, state: RequestState) -> None:
        """All pages of a text that ends or has to wait. Those with a name are found again as long as they are kept."""
        if self._prefixes is not None and state.trail is not None:
            self._prefixes.end(state.trail, checkpoint=state.phase == "finished")
            state.trail = None
        for table in state.tables:
            table.let_go_all()

    def _pause(self, state: RequestState) -> None:
        self._let_go_pages(state)
        state.computed = 0

    def _check_if_idle(self) -> None:
        if self.idle:
            self.check_integrity()

    @contextmanager
    def _ending_requests_on_error(self, plan: StepPlan) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # Ctrl-C is no fault of the request.
            fault = error if isinstance(error, Exception) else None
            for share in plan.sequences:
                if share.request in self._states:
                    state = self._states[share.request]
                    state.error = fault
                    self._finish(state, "cancelled" if fault is None else "error")
            raise

    def _hidden_states(self, ids: Sequence[int], rows: int) -> Generator[Float32, None, None]:
        tables = self._new_tables()
        try:
            for first in range(0, len(ids), rows):
                part = ids[first : first + rows]
                end = first + len(part)
                for table in tables:
                    table.grow(end)
                step = build_step([SequenceRows(part, first, tables, range(len(part)))], self._groups)
                yield self._model.hidden(step)
                for table in tables:
                    table.let_go_behind(end)
        finally:
            for table in tables:
                table.let_go_all()
