"""One row of logits to one token, part by part, and log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import numpy as np

from cabochon.errors import NumericError
from cabochon.events import Choice, Stage
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.sampling.constraint import Constraint, allowed_ids
from cabochon.sampling.history import History
from cabochon.sampling.penalties import adjusted, changes_logits
from cabochon.types import NO_BEST, BestId, Float32, LogitRow, SamplingParams, TokenOut

_XTC = 1 << 31
"""Added to a choice's number: the random numbers that decide on XTC are no draw's."""

_Filter: TypeAlias = tuple[str, bool, Callable[[filters.Candidates], filters.Candidates]]
"""Its name, whether it is on, and what it keeps."""


def sample(
    logits: Float32 | LogitRow,
    params: SamplingParams,
    history: History,
    vocab_limit: int,
    logprobs: int | None = None,
    *,
    stop_ids: Collection[int] = (),
    constraint: Constraint | None = None,
) -> Choice:
    """How the token after a text is chosen: from a row [V] of logits and checked parameters, and nothing else.

    Only ids below ``vocab_limit`` can be chosen, and of those what ``stop_ids`` (see ``min_tokens``), ``bad_words`` and
    the ``constraint`` allow. ``logprobs`` asks for the log-probability of the chosen token, and for that many of the
    most probable ones (0: the chosen one only).

    Raises ``NumericError`` if a logit is infinite or not a number, ``ConstraintError`` if no id may be chosen.
    """
    given = logits if isinstance(logits, LogitRow) else LogitRow(logits)
    check_finite(given, history.position)
    allowed = allowed_ids(params, history, vocab_limit, stop_ids, constraint)
    values = given.values[:vocab_limit]
    row = adjusted(values, params, history)
    if allowed is not None:
        row = np.where(allowed, row, np.float32(-np.inf))
    count = len(row) if allowed is None else int(np.count_nonzero(allowed))
    unchanged = row is values and len(values) == len(given.values)
    parts = tuple(stages(row, count, params, history.position, given.peaks if unchanged else None))
    left = filters.Candidates(parts[-1].ids, parts[-1].logits)
    u = None if params.temperature == 0 else numerics.uniform(params.seed, history.position, params.choice)
    token_id = int(left.ids[0]) if u is None else filters.draw(left, u)
    token = TokenOut(token_id) if logprobs is None else with_logprobs(token_id, given.values, vocab_limit, logprobs)
    return Choice(token, row, count, parts, u)


def takes_best(params: SamplingParams, constraint: Constraint | None = None) -> bool:
    """Whether ``sample`` gives the id with the largest logit, whatever the text and the other logits are."""
    free = constraint is None and not params.bad_words and not params.min_tokens
    return free and not changes_logits(params) and (params.temperature == 0 or params.top_k == 1)


def best_token(best: BestId, position: int) -> Choice:
    """What ``sample`` gives where ``takes_best``, from what a model told of a row. Raises as ``sample`` does."""
    if best.token_id == NO_BEST:
        raise _not_finite(position)
    return Choice(TokenOut(best.token_id))


def stages(
    logits: Float32, allowed: int, params: SamplingParams, position: int, peaks: Float32 | None = None
) -> Iterator[Stage]:
    """What each part of sampling leaves for a position, the parts that are off left out; the last one is drawn from.

    Of a row of logits ``allowed`` are finite, at least one, and the others -inf. ``peaks`` are the row's
    (``LogitRow``), if they are known.
    """
    if params.temperature == 0:
        yield _stage("greedy", filters.candidates(logits, 1, peaks))
        return
    # The best k before temperature are the best k after it, and cheaper to find than an order of all.
    needed = params.top_k if params.order == "cabochon" else 0
    c = filters.temperature(filters.candidates(logits, needed, peaks), params.temperature)
    yield Stage("temperature", allowed, c.ids, c.logits)
    for name, is_on, keep in _filters(params, position):
        if is_on:
            c = keep(c)
            yield _stage(name, c)


def _filters(params: SamplingParams, position: int) -> tuple[_Filter, ...]:
    """In the order asked for."""
    top_k = ("top_k", params.top_k > 0, lambda c: filters.top_k(c, params.top_k))
    typical = ("typical", params.typical_p < 1, lambda c: filters.typical(c, params.typical_p))
    top_p = ("top_p", params.top_p < 1, lambda c: filters.top_p(c, params.top_p))
    min_p = ("min_p", params.min_p > 0, lambda c: filters.min_p(c, params.min_p))
    xtc = ("xtc", params.xtc_probability > 0, lambda c: _xtc(c, params, position))
    if params.order == "gemma_pytorch":
        theirs = ("top_p", params.top_p < 1, lambda c: filters.top_p_of_gemma_pytorch(c, params.top_p))
        return theirs, top_k, typical, min_p, xtc
    return top_k, typical, top_p, min_p, xtc


def _xtc(c: filters.Candidates, params: SamplingParams, position: int) -> filters.Candidates:
    u = numerics.uniform(params.seed, position, params.choice + _XTC)
    return filters.xtc(c, params.xtc_threshold, params.xtc_probability, u)


def _stage(name: str, c: filters.Candidates) -> Stage:
    return Stage(name, len(c.ids), c.ids, c.logits)


def with_logprobs(token_id: int, logits: Float32, vocab_limit: int, most_probable: int) -> TokenOut:
    """A token with its log-probability in a row [V] of finite logits, and the best (id, log-probability) pairs."""
    lse = numerics.log_sum_exp(logits)
    top: tuple[tuple[int, float], ...] = ()
    if most_probable:
        best = filters.candidates(logits[:vocab_limit], most_probable).first(most_probable)
        top = tuple(zip(best.ids.tolist(), (best.logits - lse).tolist(), strict=True))
    return TokenOut(token_id, float(logits[token_id] - lse), top)


def check_finite(logits: LogitRow, position: int) -> None:
    """Raises ``NumericError`` if a logit for the token at ``position`` is infinite or not a number."""
    if not np.isfinite(logits.values if logits.peaks is None else logits.peaks).all():
        raise _not_finite(position)


def _not_finite(position: int) -> NumericError:
    return NumericError(f"a logit for position {position} is not a finite number: weights or activations overflowed")
