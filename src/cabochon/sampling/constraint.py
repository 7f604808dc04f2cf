"""Which ids may be chosen at all: what a constraint, ``bad_words`` and ``min_tokens`` leave."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cabochon.errors import ConstraintError
from cabochon.sampling.history import History
from cabochon.types import SamplingParams

Mask = NDArray[np.bool_]


class Constraint(Protocol):
    """Says at every step which ids may be chosen next, as a grammar does.

    What it says must depend on the ids it is given and on nothing else: a step may be asked about twice, or never, and
    what has been asked before must make no difference.
    """

    def allowed(self, chosen: Sequence[int]) -> Mask | None:
        """Mask [V] over the ids of the vocabulary, after the reply's ids ``chosen`` so far; None allows all."""
        ...


def allowed_ids(
    params: SamplingParams,
    history: History,
    vocab: int,
    stop_ids: Collection[int] = (),
    constraint: Constraint | None = None,
) -> Mask | None:
    """Mask [``vocab``] of the ids that may be chosen; None if all may.

    Raises ``ConstraintError`` if none may, or the constraint's mask is none.
    """
    given = None if constraint is None else constraint.allowed(history.reply())
    if given is not None and not _is_mask(given, vocab):
        raise ConstraintError(f"a constraint must give None or an array of {vocab} truth values, one for each token")
    forbidden = _completing(params.bad_words, history.ids)
    if params.min_tokens and len(history.reply()) < params.min_tokens:
        forbidden += stop_ids
    if given is None and not forbidden:
        return None
    mask = np.ones(vocab, np.bool_) if given is None else given.copy()
    mask[forbidden] = False
    if not mask.any():
        raise ConstraintError(f"no token may be chosen for position {history.position}: all are forbidden")
    return mask


def _is_mask(given: object, vocab: int) -> bool:
    return isinstance(given, np.ndarray) and given.dtype == np.bool_ and given.shape == (vocab,)


def _completing(words: Sequence[Sequence[int]], ids: Sequence[int]) -> list[int]:
    """The last id of each word that the text ends in all other ids of."""
    return [word[-1] for word in words if _ends_with(ids, word[:-1])]


def _ends_with(ids: Sequence[int], end: Sequence[int]) -> bool:
    return not end or tuple(ids[-len(end) :]) == tuple(end)
