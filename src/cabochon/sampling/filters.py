"""Filters of candidates, one small function each; ``sampler.py`` applies them.

Candidates are always in the order of their logits (largest first, equal ones by id), and every filter leaves at least
one, in that order. Arithmetic is binary32, sums run in candidate order; see ``docs/sampling.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cabochon.ops import numerics
from cabochon.types import LOGITS_A_PEAK, Float32, Int32


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

    def only(self, kept: NDArray[np.bool_]) -> Candidates:
        """Those that the mask [n] keeps."""
        return Candidates(self.ids[kept], self.logits[kept])


def candidates(logits: Float32, most: int = 0, peaks: Float32 | None = None) -> Candidates:
    """The ``most`` best ids of a row [V] of logits, in order; all of them if it is 0.

    An id whose logit is minus infinity is none. With the row's ``peaks`` (``LogitRow``) few of its values are looked
    at.
    """
    if peaks is not None and 0 < most < len(peaks):
        best = _best_by_peaks(logits, most, peaks)
    elif 0 < most < len(logits):
        best = Candidates(*numerics.top_k(logits, most))
    else:
        ids = _descending(logits)
        best = Candidates(ids, logits[ids])
    return best.first(int(np.count_nonzero(best.logits > -np.inf)))


def _best_by_peaks(logits: Float32, most: int, peaks: Float32) -> Candidates:
    """Each of the best is among neighbours whose peak is one of the ``most`` best, or equals the last of those."""
    _, best_peaks = numerics.top_k(peaks, most)
    ids = (np.flatnonzero(peaks >= best_peaks[-1])[:, None] * LOGITS_A_PEAK + np.arange(LOGITS_A_PEAK)).ravel()
    ids = ids[ids < len(logits)].astype(np.int32)
    places, values = numerics.top_k(logits[ids], most)
    return Candidates(ids[places], values)


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
    return c if p == 1 else c.first(_reaching(weights(c), p, "left"))


def top_p_of_gemma_pytorch(c: Candidates, p: float) -> Candidates:
    """Those before whom the share of the sum of all candidates is at most ``p``; 1 keeps all.

    One more than ``top_p`` keeps where a share is exactly ``p``.
    """
    return c if p == 1 else c.first(_reaching(weights(c), p, "right"))


def typical(c: Candidates, p: float) -> Candidates:
    """The fewest most typical ones whose share of the sum of all candidates is at least ``p``; 1 keeps all.

    The nearer a candidate's surprise, minus the logarithm of its probability, is to the mean surprise, the entropy, the
    more typical it is (Meister et al., "Locally typical sampling", 2022). Of equally typical ones the first goes first.
    """
    if p == 1:
        return c
    share = weights(c)
    surprise = numerics.log_sum_exp(c.logits) - c.logits
    # Without weight surprise may be infinite, and counts nothing.
    counted = np.multiply(share, surprise, out=np.zeros_like(share), where=share > 0)
    entropy = np.cumsum(counted)[-1] / np.cumsum(share)[-1]
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    kept = np.zeros(len(order), np.bool_)
    kept[order[: _reaching(share[order], p, "left")]] = True
    return c.only(kept)


def min_p(c: Candidates, p: float) -> Candidates:
    """Those whose probability is at least ``p`` times the best one's; 0 keeps all."""
    return c.first(int(np.count_nonzero(weights(c) >= np.float32(p))))


def xtc(c: Candidates, threshold: float, probability: float, u: float) -> Candidates:
    """If ``u`` in (0, 1) is below ``probability``, removes those whose share is at least ``threshold``, but the last.

    "Exclude top choices", by P. E. Weidmann.
    """
    if u >= probability:
        return c
    share = weights(c)
    high = int(np.count_nonzero(share >= np.float32(threshold) * np.cumsum(share)[-1]))
    first = max(high - 1, 0)
    return Candidates(c.ids[first:], c.logits[first:])


def draw(c: Candidates, u: float) -> int:
    """The id that ``u`` in (0, 1) falls on: the first whose sum of weights exceeds ``u`` times the whole."""
    sums = np.cumsum(weights(c)).astype(np.float64)
    return int(c.ids[np.searchsorted(sums, u * sums[-1], side="right")])


def weights(c: Candidates) -> Float32:
    """Probabilities [n] up to a common factor: the first one's is exactly 1."""
    return numerics.exp(c.logits - c.logits[0])


def _reaching(weights: Float32, p: float, side: Literal["left", "right"]) -> int:
    """How many weights of [n] it takes for their sum to reach ``p`` times the whole, or, ``right``, to exceed it."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, np.float32(p) * sums[-1], side=side)) + 1


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
