"""The first law, checked on any prompt: generating with the cache gives, at every step, the logits of one pass.

1. The text is generated as always.
2. The finished sequence is run in one step, from empty pages: no key or value of an earlier step is used.
3. The text is generated again, and each step's logits are held against those of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request, RequestState
from cabochon.errors import UsageError
from cabochon.events import StepPlan, StepRecord
from cabochon.session.session import Session
from cabochon.types import Float32


@dataclass(frozen=True, slots=True)
class Verification:
    """What was compared, and what came of it."""

    equal: bool
    """Whether every logit of every step had the same bits."""
    steps: int
    """Steps that chose a token, and were compared."""
    max_abs_difference: float
    """The largest difference of two logits: 0.0 where all are equal."""
    tokens_run_cached: int
    """Rows that the cached run took through the model."""
    tokens_run_recomputed: int
    """Rows of the one pass."""
    token_ids: tuple[int, ...]
    """The tokens generated."""


def verify(session: Session, prompt: str | Sequence[int], **options: Any) -> Verification:
    """Compares a cached generation with one pass over its finished sequence; options are those of ``Session.request``.

    The session must have been loaded with ``whole_context``, unless prompt and ``max_tokens`` fit into its chunk.

    Raises ``UsageError`` if the session has no room for the pass or is busy, and whatever ``generate`` raises.
    """
    request = session.request(prompt, **options)
    check_room(session, request)
    return _compare(session, request)


def check_idle(session: Session) -> None:
    """Raises ``UsageError`` if a generation is under way, whose pages another engine would not know of."""
    if not session.idle:
        raise UsageError("an unfinished generation holds the key/value cache; finish it or close its stream first")


def check_room(session: Session, request: Request) -> None:
    """Raises ``UsageError`` unless one step can take the whole text, and nothing else is under way."""
    longest = len(request.prompt) + request.max_tokens
    if longest > session.rows:
        raise UsageError(
            f"prompt and max_tokens together are {longest}, but one step takes {session.rows} rows;"
            " load the model with whole_context=True"
        )
    check_idle(session)


def _compare(session: Session, request: Request) -> Verification:
    steps: list[tuple[StepPlan, Float32]] = []

    def remember(record: StepRecord) -> None:
        # The logits are the model's own memory, and comparing needs the model: keep a copy for after the step.
        steps.append((record.plan, record.logits.values.copy()))

    first = finished(session.new_engine(), request)
    hidden = session.one_pass(first.ids)

    equal, compared, largest, rows = True, 0, 0.0, 0
    engine = session.new_engine(remember)
    second = engine.submit(request)
    try:
        # Another token comes of other logits, so the answer is known then; those after it would say nothing.
        while not engine.idle and second.ids == first.ids[: len(second.ids)]:
            engine.step()
            for plan, logits in steps:
                rows += plan.rows
                for share, cached in zip([s for s in plan.sequences if s.samples], logits, strict=True):
                    recomputed = session.model.head(hidden[share.end - 1 : share.end])[0]
                    equal = equal and cached.tobytes() == recomputed.tobytes()
                    largest = max(largest, float(np.abs(cached - recomputed).max()))
                    compared += 1
            steps.clear()
    finally:
        engine.cancel(second)
    return Verification(
        equal=equal,
        steps=compared,
        max_abs_difference=largest,
        tokens_run_cached=rows,
        tokens_run_recomputed=len(hidden),
        token_ids=tuple(token.token_id for token in first.tokens),
    )


def finished(engine: Engine, request: Request) -> RequestState:
    """A request, run to its end on an engine with nothing else to do."""
    state = engine.submit(request)
    try:
        while not engine.idle:
            engine.step()
    finally:
        engine.cancel(state)
    return state
