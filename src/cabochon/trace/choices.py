"""One choice of the sampler as a part of a trace: which candidates there were, and why each left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cabochon.events import Choice, Stage
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.trace.trace import Candidates, ChoiceMade, StageLeft
from cabochon.types import Float32, Int32, LogitRow

LISTED = 50
"""Candidates listed of each choice."""

FEW = 1024
"""Among more ids than these a table of the vocabulary finds places faster."""

NOT_ALLOWED = "not allowed"
"""Why an id is no candidate that the tokenizer, a constraint, bad words or ``min_tokens`` forbid."""


def choice_made(
    choice: Choice, logits: LogitRow, position: int, temperature: float, listed: int = LISTED
) -> ChoiceMade:
    """The part of a trace that tells of the choice of the token at ``position``; its text and end come later.

    ``listed`` is how many candidates are listed; the chosen one comes on top of that. The choice must be whole: not of
    a model that told the best id only.
    """
    assert choice.row is not None
    row, values, token_id = choice.row, logits.values, choice.token.token_id
    best = filters.candidates(values, max(listed, 2), logits.peaks)
    ids = best.ids[:listed]
    if token_id not in ids:
        ids = np.append(ids, np.int32(token_id))
    given = values[ids]
    allowed = (ids < len(row)) & (row[np.minimum(ids, len(row) - 1)] > -np.inf)
    adjusted = np.where(allowed, row[np.minimum(ids, len(row) - 1)], given)
    lse = numerics.log_sum_exp(values)
    last = choice.stages[-1]
    greedy = choice.draw is None
    return ChoiceMade(
        position=position,
        token=token_id,
        text="",
        logprob=_number(values[token_id] - lse),
        margin=_number(best.logits[0] - best.logits[1]) if len(best.ids) > 1 else 0.0,
        allowed=choice.allowed,
        stages=tuple(_left(stage, values, lse) for stage in choice.stages),
        candidates=Candidates(
            ids=tuple(ids.tolist()),
            raw=None,
            logits=_numbers(given),
            adjusted=_numbers(adjusted) if (adjusted != given).any() else None,
            scaled=None if greedy else _numbers(_scaled(adjusted, row[choice.stages[0].ids[0]], temperature)),
            removed=_removed(ids, allowed, choice.stages, len(values)),
            probabilities=_numbers(_probabilities(ids, last, len(values))),
        ),
        draw=choice.draw,
        span=None if greedy else _span(token_id, last),
        ends=None,
    )


def _left(stage: Stage, values: Float32, lse: np.float32) -> StageLeft:
    if stage.kept == len(values):
        return StageLeft(stage.name, stage.kept, 1.0)
    if stage.kept > len(stage.ids):  # of these only the best were looked at
        return StageLeft(stage.name, stage.kept, None)
    mass = float(np.exp((values[stage.ids] - lse).astype(np.float64)).sum())
    return StageLeft(stage.name, stage.kept, round(min(mass, 1.0), 6))


def _scaled(adjusted: Float32, best: np.float32, temperature: float) -> Float32:
    """The filter's own arithmetic: the best candidate goes first, for it is what the others are taken less."""
    logits = np.concatenate((np.array([best]), adjusted))
    return filters.temperature(filters.Candidates(np.arange(len(logits), dtype=np.int32), logits), temperature).logits[
        1:
    ]


def _removed(ids: Int32, allowed: NDArray[np.bool_], stages: Sequence[Stage], vocab: int) -> tuple[str, ...]:
    """For each id the first part of sampling that did not keep it."""
    reasons = ["" if may else NOT_ALLOWED for may in allowed]
    for stage in stages:
        if stage.kept > len(stage.ids):  # temperature removes nothing
            continue
        for place, found in enumerate(_places(ids, stage.ids, vocab)):
            if found < 0 and not reasons[place]:
                reasons[place] = stage.name
    return tuple(reasons)


def _probabilities(ids: Int32, last: Stage, vocab: int) -> Float32:
    """[n] of being drawn; of the greedy choice that is 1."""
    weights = filters.weights(filters.Candidates(last.ids, last.logits))
    places = _places(ids, last.ids, vocab)
    found: Float32 = np.where(places >= 0, weights[places] / np.cumsum(weights)[-1], np.float32(0))
    return found


def _span(token_id: int, last: Stage) -> tuple[float, float]:
    """As ``filters.draw`` sums weights up."""
    sums = np.cumsum(filters.weights(filters.Candidates(last.ids, last.logits))).astype(np.float64)
    place = int(np.flatnonzero(last.ids == token_id)[0])
    return float(sums[place - 1] / sums[-1]) if place else 0.0, float(sums[place] / sums[-1])


def _places(ids: Int32, among: Int32, vocab: int) -> NDArray[np.int64]:
    """[n] where each of ``ids`` stands in ``among``; -1 where it does not."""
    if len(among) > FEW:
        table = np.full(vocab, -1)
        table[among] = np.arange(len(among))
        return table[ids]
    equal = ids[:, None] == among[None, :]
    return np.where(equal.any(axis=1), equal.argmax(axis=1), -1)


def _numbers(values: Float32) -> tuple[float, ...]:
    return tuple(map(_number, values))


def _number(value: np.float32) -> float:
    """With the fewest digits that tell it from every other binary32 number."""
    return float(str(value))
