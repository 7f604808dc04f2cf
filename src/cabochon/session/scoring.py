"""How probable a text is: a request that chooses nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request
from cabochon.errors import UsageError
from cabochon.session.results import Score
from cabochon.types import SamplingParams, TokenOut


def score_of(engine: Engine, ids: tuple[int, ...], top_logprobs: int) -> Score:
    """The score of checked ids, with so many of the most probable in each place; raises as ``Engine.submit`` does, and
    what a step raises."""
    tokens = _scored(engine, Request(ids, SamplingParams(), 0, prompt_logprobs=top_logprobs))
    logprobs = [token.logprob for token in tokens if token.logprob is not None]
    return Score(
        token_ids=ids,
        logprobs=(None, *logprobs),
        perplexity=_perplexity(logprobs),
        top=(None, *(token.top for token in tokens)) if top_logprobs else None,
    )


def _scored(engine: Engine, request: Request) -> Sequence[TokenOut]:
    state = engine.submit(request)
    try:
        engine.advance(state, 0)
    finally:
        engine.cancel(state)
    if state.error is not None:
        raise state.error
    if len(state.scores) < len(request.prompt) - 1:
        raise UsageError("the session was closed, or all of it cancelled, while a text was scored")
    return state.scores


def _perplexity(logprobs: Sequence[float]) -> float | None:
    if not logprobs:
        return None
    surprise = -math.fsum(logprobs) / len(logprobs)
    return math.exp(surprise) if surprise < math.log(sys.float_info.max) else math.inf
