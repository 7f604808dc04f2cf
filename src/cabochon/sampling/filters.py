"""Filters of candidates, one small function each; ``sampler.py`` applies them in the order they stand here.

Candidates are always in the order of the model's logits (largest first, equal ones by id), and every filter keeps a
beginning of them that has at least one. Arithmetic is binary32, sums run in candidate order; see ``docs/sampling.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cabochon.ops import numerics
from cabochon.types import Float32, Int32


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ids that may still be chosen, n of them."""

    ids: Int32
    """[n]"""
    logits: Float32
    """[n] descending."""

    def first(self, n: int) -> Candidates:
        """The best ``n``."""
        return Candidates(self.ids[:n], self.logits[:n])


def candidates(logits: Float32, most: int = 0) -> Candidates:
    """The ``most`` best ids of a row [V] of logits, in order; all of them if it is 0."""
    if 0 < most < len(logits):
        return Candidates(*numerics.top_k(logits, most))
    ids = _descending(logits)
    return Candidates(ids, logits[ids])


def temperature(c: Candidates, t: float) -> Candidates:
    """Logits less the best one's, divided by ``t`` > 0.

    Taking the best away first changes no probability, and lets no ``t`` overflow: the best is 0 always.
    """
    limits = np.finfo(np.float32)
    divisor = np.float32(min(max(t, float(limits.tiny)), float(limits.max)))
    with np.errstate(over="ignore"):
        return Candidates(c.ids, (c.logits - c.logits[0]) / divisor)


def top_k(c: Candidates, k: int) -> Candidates:
    """The best ``k``, whatever ties at the border; 0 keeps all."""
    return c.first(k) if k else c


def top_p(c: Candidates, p: float) -> Candidates:
    """The fewest best ones whose share of the sum of all candidates is at least ``p``; 1 keeps all."""
    if p == 1:
        return c
    sums = np.cumsum(weights(c))
    return c.first(int(np.searchsorted(sums, np.float32(p) * sums[-1], side="left")) + 1)


def min_p(c: Candidates, p: float) -> Candidates:
    """Those whose probability is at least ``p`` times the best one's; 0 keeps all."""
    return c.first(int(np.count_nonzero(weights(c) >= np.float32(p))))


def draw(c: Candidates, u: float) -> int:
    """The id that ``u`` in (0, 1) falls on: the first whose sum of weights exceeds ``u`` times the whole."""
    sums = np.cumsum(weights(c)).astype(np.float64)
    return int(c.ids[np.searchsorted(sums, u * sums[-1], side="right")])


def weights(c: Candidates) -> Float32:
    """Probabilities [n] up to a common factor: the best one's is exactly 1. Needs logits out of ``temperature``."""
    return numerics.exp(c.logits)


def _descending(logits: Float32) -> Int32:
    """All ids [V] by (logit descending, id ascending).

    Two stable passes over halves of 16 bits, for which NumPy has a radix sort: some three times faster than a stable
    sort of floats, and a vocabulary is sorted for every token where top-k is off.
    """
    # Subtracted from zero, so that both zeros are one. Of negative numbers all bits are turned, of others the first:
    # then the bits, read as a whole number, rise with the value.
    bits = (np.float32(0) - logits).view(np.uint32)
    keys = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    low = np.argsort(keys.astype(np.uint16), kind="stable")
    high = np.argsort((keys >> 16).astype(np.uint16)[low], kind="stable")
    return low[high].astype(np.int32)
