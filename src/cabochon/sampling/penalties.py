"""Changes to the logits of single ids, before any other filter: bias, and penalties for what the text holds already.

They work on a row [V] of logits of their own and run in the order they stand here. All is binary32, one operation after
the other; see ``docs/sampling.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from cabochon.sampling.history import History
from cabochon.types import Float32, SamplingParams

DRY_REACH = 50
"""A sequence that is longer than allowed by more than this is penalised as one that is longer by this."""

_LARGEST = np.finfo(np.float32).max


def changes_logits(params: SamplingParams) -> bool:
    """Whether bias or penalties are asked for."""
    penalised = params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
    return bool(penalised or params.logit_bias or params.dry_multiplier)


def adjusted(logits: Float32, params: SamplingParams, history: History) -> Float32:
    """A row [V] of finite logits with bias and penalties; the row itself where none is asked for.

    What would leave binary32's range stays at its end.
    """
    if not changes_logits(params):
        return logits
    row = logits.copy()
    with np.errstate(over="ignore"):
        bias(row, params.logit_bias)
        repetition(row, history.text(params.penalty_last_n), params.repetition_penalty)
        occurrence(row, history.reply(params.penalty_last_n), params.presence_penalty, params.frequency_penalty)
        dry(row, history.text(params.dry_penalty_last_n), params)
    return np.clip(row, -_LARGEST, _LARGEST, out=row)


def bias(row: Float32, pairs: Sequence[tuple[int, float]]) -> None:
    """Adds to the logit of each (id, value) its value."""
    for token_id, value in pairs:
        row[token_id] += np.float32(value)


def repetition(row: Float32, ids: Sequence[int], penalty: float) -> None:
    """Divides the logit of each id in ``ids`` by ``penalty`` if it is positive, and multiplies it if not.

    Once, however often the id is there (Keskar et al., "CTRL", 2019; for logits below 0 as everybody does since).
    """
    if penalty == 1:
        return
    seen = np.array(list(set(ids)), np.int64)
    values, factor = row[seen], np.float32(penalty)
    row[seen] = np.where(values > 0, values / factor, values * factor)


def occurrence(row: Float32, ids: Sequence[int], presence: float, frequency: float) -> None:
    """Takes ``frequency`` times its count in ``ids``, plus ``presence``, from the logit of each id there."""
    if not (presence or frequency):
        return
    counts = Counter(ids)
    times = np.array(list(counts.values()), np.float32)
    row[np.array(list(counts), np.int64)] -= times * np.float32(frequency) + np.float32(presence)


def dry(row: Float32, ids: Sequence[int], params: SamplingParams) -> None:
    """From ids that would lengthen a repeated sequence, takes the multiplier times a power of the base.

    "Don't repeat yourself", by P. E. Weidmann: see ``repeated``. The exponent is the sequence's length beyond what is
    allowed; the power is a product in binary64, factor by factor.
    """
    if not params.dry_multiplier:
        return
    allowed = params.dry_allowed_length
    for token_id, length in repeated(ids, params.dry_sequence_breakers, allowed + DRY_REACH).items():
        if length >= allowed:
            penalty = params.dry_multiplier
            for _ in range(length - allowed):
                penalty *= params.dry_base
            row[token_id] -= np.float32(min(penalty, float(_LARGEST)))


def repeated(ids: Sequence[int], breakers: Collection[int], longest: int) -> Mapping[int, int]:
    """For each id that earlier in ``ids`` has followed what they end with: the length of that, as far as it agrees.

    The largest if there are several, and ``longest`` at most. What agrees holds no breaker, and no breaker is told of.
    """
    if not ids or ids[-1] in breakers:
        return {}
    text = np.asarray(ids, np.int64)
    ends = np.flatnonzero(text[:-1] == text[-1])
    following = text[ends + 1].tolist()
    lengths = np.ones(len(ends), np.int64)
    agreeing = np.arange(len(ends))
    for length in range(1, min(longest, len(ids))):
        if ids[-1 - length] in breakers:
            break
        agreeing = agreeing[ends[agreeing] >= length]
        agreeing = agreeing[text[ends[agreeing] - length] == text[-1 - length]]
        if not len(agreeing):
            break
        lengths[agreeing] += 1
    best: dict[int, int] = {}
    for token_id, length in zip(following, lengths.tolist(), strict=True):
        if token_id not in breakers:
            best[token_id] = max(best.get(token_id, 0), length)
    return best
