"""One row of logits to one token, and log-probabilities."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cabochon.errors import NumericError
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.sampling.constraint import Constraint, allowed_ids
from cabochon.sampling.history import History
from cabochon.sampling.penalties import adjusted, changes_logits
from cabochon.types import NO_BEST, BestId, Float32, LogitRow, SamplingParams, TokenOut

_XTC = 1 << 31
"""Added to a choice's number: the random numbers that decide on XTC are no draw's."""


def sample(
    logits: Float32 | LogitRow,
    params: SamplingParams,
    history: History,
    vocab_limit: int,
    logprobs: int | None = None,
    *,
    stop_ids: Collection[int] = (),
    constraint: Constraint | None = None,
) -> TokenOut:
    """The token after a text, from a row [V] of logits and checked parameters; it depends on nothing else.

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
    unchanged = row is values and len(values) == len(given.values)
    token_id = choose(row, params, history.position, given.peaks if unchanged else None)
    return TokenOut(token_id) if logprobs is None else with_logprobs(token_id, given.values, vocab_limit, logprobs)


def takes_best(params: SamplingParams, constraint: Constraint | None = None) -> bool:
    """Whether ``sample`` gives the id with the largest logit, whatever the text and the other logits are."""
    free = constraint is None and not params.bad_words and not params.min_tokens
    return free and not changes_logits(params) and (params.temperature == 0 or params.top_k == 1)


def best_token(best: BestId, position: int) -> TokenOut:
    """What ``sample`` gives where ``takes_best``, from what a model told of a row. Raises as ``sample`` does."""
    if best.token_id == NO_BEST:
        raise _not_finite(position)
    return TokenOut(best.token_id)


def choose(logits: Float32, params: SamplingParams, position: int, peaks: Float32 | None = None) -> int:
    """The id chosen for a position from a row of logits, of which one at least is finite and none but -inf is not.

    ``peaks`` are the row's (``LogitRow``), if they are known.
    """
    if params.temperature == 0:
        return int(filters.candidates(logits, 1, peaks).ids[0])
    c = _most_probable(logits, params, peaks)
    c = filters.min_p(c, params.min_p)
    if params.xtc_probability:
        u = numerics.uniform(params.seed, position, params.choice + _XTC)
        c = filters.xtc(c, params.xtc_threshold, params.xtc_probability, u)
    return filters.draw(c, numerics.uniform(params.seed, position, params.choice))


def _most_probable(logits: Float32, params: SamplingParams, peaks: Float32 | None) -> filters.Candidates:
    """What temperature, top-k, typical and top-p leave, in the order asked for."""
    if params.order == "gemma_pytorch":
        c = filters.temperature(filters.candidates(logits), params.temperature)
        c = filters.top_p_of_gemma_pytorch(c, params.top_p)
        c = filters.top_k(c, params.top_k)
        return filters.typical(c, params.typical_p)
    # The best k before temperature are the best k after it, and cheaper to find than an order of all.
    c = filters.candidates(logits, params.top_k, peaks)
    c = filters.temperature(c, params.temperature)
    c = filters.top_k(c, params.top_k)
    c = filters.typical(c, params.typical_p)
    return filters.top_p(c, params.top_p)


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
