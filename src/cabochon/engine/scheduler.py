"""Which rows run next (stop 3). Plans are integers only; no array and no token is looked at here."""

from __future__ import annotations

from collections import deque

from cabochon.engine.request import RequestState
from cabochon.events import SequencePlan, StepPlan


class Scheduler:
    """One request runs, the others wait in order of arrival.

    A step takes the next ``chunk`` positions at most of what is known of the sequence and not yet stored: a piece of
    its prompt, or the one token just chosen. The two are no different here.
    """

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._waiting: deque[RequestState] = deque()
        self._running: list[RequestState] = []

    @property
    def requests(self) -> list[RequestState]:
        """All that are not finished, those that run first."""
        return [*self._running, *self._waiting]

    def add(self, state: RequestState) -> None:
        """A new request, last in line."""
        self._waiting.append(state)

    def remove(self, state: RequestState) -> None:
        """A request that has ended, wherever it stood."""
        (self._running if state.phase == "running" else self._waiting).remove(state)

    def plan(self) -> StepPlan:
        """The next step; without sequences if nothing is to be done."""
        if not self._running and self._waiting:
            state = self._waiting.popleft()
            state.phase = "running"
            self._running.append(state)
        return StepPlan(tuple(self._share(state) for state in self._running))

    def _share(self, state: RequestState) -> SequencePlan:
        left = len(state.ids) - state.computed
        rows = min(left, self._chunk)
        return SequencePlan(state.number, state.computed, rows, samples=rows == left)
