"""One choice of the sampler as a part of a trace: which candidates there were, and why each left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabochon.events import Choice, Stage
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.trace.trace import NOT_ALLOWED, Candidates, ChoiceMade, StageLeft
from cabochon.types import Float32, Int32, LogitRow

LISTED = 50
"""Candidates listed of each choice."""

FEW = 1024
"""Among more ids than these a table of the vocabulary finds places faster."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What of a choice and its logits must be taken while they are there; the rest can be worked out later."""

    token_id: int
    allowed: int
    stages: tuple[Stage, ...]
    draw: float | None
    vocab: int
    """V"""
    ids: Int32
    """[n] the best of the model's logits, and the chosen id if it is not among them."""
    logits: Float32
    """[n] the model's."""
    adjusted: Float32
    """[n] after bias and penalties, -inf where the id could not be chosen."""
    best: np.float32
    """The largest of all that could be chosen, after bias and penalties."""
    logprob: np.float32
    margin: np.float32
    masses: tuple[np.float32, ...]
    """Of each stage: its candidates' share of the whole vocabulary's probability."""


def glance(choice: Choice, logits: LogitRow, listed: int = LISTED) -> Glance:
    """What is to be told of a choice, ``listed`` candidates and the chosen one among it, before the logits are gone.

    The choice must be whole: not of a model that told the best id only.
    """
    assert choice.row is not None
    row, values, token_id = choice.row, logits.values, choice.token.token_id
    best = filters.candidates(values, max(listed, 2), logits.peaks)
    ids = best.ids[:listed]
    if token_id not in ids:
        ids = np.append(ids, np.int32(token_id))
    adjusted = np.where(ids < len(row), row[np.minimum(ids, len(row) - 1)], np.float32(-np.inf))
    lse = numerics.log_sum_exp(values)
    return Glance(
        token_id=token_id,
        allowed=choice.allowed,
        stages=choice.stages,
        draw=choice.draw,
        vocab=len(values),
        ids=ids,
        logits=values[ids],
        adjusted=adjusted,
        best=row[choice.stages[0].ids[0]],
        logprob=values[token_id] - lse,
        margin=best.logits[0] - best.logits[1] if len(best.ids) > 1 else np.float32(0),
        masses=tuple(numerics.exp(values[stage.ids] - lse).sum() for stage in choice.stages),
    )


def choice_made(seen: Glance, position: int, temperature: float) -> ChoiceMade:
    """The part of a trace that tells of the choice of the token at ``position``; its text and end come later."""
    allowed = seen.adjusted > -np.inf
    adjusted = np.where(allowed, seen.adjusted, seen.logits)
    last, greedy = seen.stages[-1], seen.draw is None
    weights = filters.weights(filters.Candidates(last.ids, last.logits))
    sums = np.cumsum(weights)
    places = _places(seen.ids, last.ids, seen.vocab)
    return ChoiceMade(
        position=position,
        token=seen.token_id,
        text="",
        logprob=_number(seen.logprob),
        margin=_number(seen.margin),
        allowed=seen.allowed,
        stages=tuple(_left(stage, mass, seen.vocab) for stage, mass in zip(seen.stages, seen.masses, strict=True)),
        candidates=Candidates(
            ids=tuple(seen.ids.tolist()),
            raw=None,
            logits=_numbers(seen.logits),
            adjusted=_numbers(adjusted) if (adjusted != seen.logits).any() else None,
            scaled=None if greedy else _numbers(_scaled(adjusted, seen.best, temperature)),
            removed=_removed(seen, allowed),
            probabilities=_numbers(np.where(places >= 0, weights[places] / sums[-1], np.float32(0))),
        ),
        draw=seen.draw,
        span=None if greedy else _span(sums.astype(np.float64), int(np.flatnonzero(last.ids == seen.token_id)[0])),
        ends=None,
    )


def _left(stage: Stage, mass: np.float32, vocab: int) -> StageLeft:
    if stage.kept == vocab:
        return StageLeft(stage.name, stage.kept, 1.0)
    if stage.kept > len(stage.ids):  # of these only the best were looked at
        return StageLeft(stage.name, stage.kept, None)
    return StageLeft(stage.name, stage.kept, round(min(float(mass), 1.0), 6))


def _scaled(adjusted: Float32, best: np.float32, temperature: float) -> Float32:
    """The filter's own arithmetic: the best candidate goes first, for it is what the others are taken less."""
    logits = np.concatenate((np.array([best]), adjusted))
    numbered = filters.Candidates(np.arange(len(logits), dtype=np.int32), logits)
    scaled = filters.temperature(numbered, temperature).logits[1:]
    # A temperature near 0 takes the others beyond binary32, but a file has no infinity.
    return np.maximum(scaled, np.finfo(np.float32).min)


def _removed(seen: Glance, allowed: NDArray[np.bool_]) -> tuple[str, ...]:
    """For each id the first part of sampling that did not keep it."""
    reasons = ["" if may else NOT_ALLOWED for may in allowed]
    for stage in seen.stages:
        if stage.kept > len(stage.ids):  # temperature removes nothing
            continue
        for place, found in enumerate(_places(seen.ids, stage.ids, seen.vocab)):
            if found < 0 and not reasons[place]:
                reasons[place] = stage.name
    return tuple(reasons)


def _span(sums: NDArray[np.float64], place: int) -> tuple[float, float]:
    """The share of the candidate at a place in the running sums of weights, as ``filters.draw`` has them."""
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
