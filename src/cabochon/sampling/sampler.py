"""One row of logits to one token, and log-probabilities."""

from __future__ import annotations

import numpy as np

from cabochon.errors import NumericError
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.types import Float32, SamplingParams, TokenOut


def sample(
    logits: Float32, params: SamplingParams, position: int, vocab_limit: int, logprobs: int | None = None
) -> TokenOut:
    """The token at ``position`` of a text, from a row [V] of logits and checked parameters.

    Only ids below ``vocab_limit`` can be chosen. ``logprobs`` asks for the log-probability of the chosen token, and for
    that many of the most probable ones (0: the chosen one only).

    Raises ``NumericError`` if a logit is infinite or not a number.
    """
    check_finite(logits, position)
    token_id = choose(logits[:vocab_limit], params, position)
    return TokenOut(token_id) if logprobs is None else with_logprobs(token_id, logits, vocab_limit, logprobs)


def choose(logits: Float32, params: SamplingParams, position: int) -> int:
    """The id chosen from a row of finite logits."""
    if params.temperature == 0:
        return int(filters.candidates(logits, 1).ids[0])
    # The best k before temperature are the best k after it, and cheaper to find than an order of all.
    c = filters.candidates(logits, params.top_k)
    c = filters.temperature(c, params.temperature)
    c = filters.top_k(c, params.top_k)
    c = filters.top_p(c, params.top_p)
    c = filters.min_p(c, params.min_p)
    return filters.draw(c, numerics.uniform(params.seed, position))


def with_logprobs(token_id: int, logits: Float32, vocab_limit: int, most_probable: int) -> TokenOut:
    """A token with its log-probability in a row [V] of finite logits, and the best (id, log-probability) pairs."""
    lse = numerics.log_sum_exp(logits)
    top: tuple[tuple[int, float], ...] = ()
    if most_probable:
        best = filters.candidates(logits[:vocab_limit], most_probable).first(most_probable)
        top = tuple(zip(best.ids.tolist(), (best.logits - lse).tolist(), strict=True))
    return TokenOut(token_id, float(logits[token_id] - lse), top)


def check_finite(logits: Float32, position: int) -> None:
    """Raises ``NumericError`` if a logit for the token at ``position`` is infinite or not a number."""
    if not np.isfinite(logits).all():
        raise NumericError(f"a logit for position {position} is not a finite number: weights or activations overflowed")
