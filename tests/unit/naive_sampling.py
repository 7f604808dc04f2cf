"""``docs/sampling.md`` once more, slowly: lists, dictionaries and binary64, and nothing of the program's.

Sums of binary32 and of binary64 fall on different sides of a border now and then. ``Naive.margin`` tells how far from
every border a result was; tests leave out what is near.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from cabochon.types import SamplingParams


class Naive:
    """What may be drawn, with its weights, in order."""

    def __init__(
        self,
        logits: Sequence[float],
        params: SamplingParams,
        ids: Sequence[int] = (),
        prompt: int = 0,
        forbidden: Collection[int] = (),
        xtc_u: float = 1.0,
    ) -> None:
        self.margin = math.inf
        self.params = params
        self.logits = [float(x) for x in logits]
        self._penalise(list(ids), prompt)
        left = [i for i in range(len(logits)) if i not in forbidden and not self._completes(i, ids)]
        self.order = sorted(left, key=lambda i: (-self.logits[i], i))
        if params.temperature == 0:
            self.order = self.order[:1]
            return
        best = self.logits[self.order[0]]
        self.weight = {i: math.exp((self.logits[i] - best) / params.temperature) for i in self.order}
        if params.order == "gemma_pytorch":
            self._top_p(beyond=True)
            self._top_k()
            self._typical()
        else:
            self._top_k()
            self._typical()
            self._top_p(beyond=False)
        self._min_p()
        self._xtc(xtc_u)

    @property
    def total(self) -> float:
        return math.fsum(self.weight[i] for i in self.order)

    def draw(self, u: float) -> int:
        if self.params.temperature == 0:
            return self.order[0]
        running = 0.0
        for i in self.order:
            running += self.weight[i]
            self._near(running / self.total, u)
            if running > u * self.total:
                return i
        raise AssertionError("u is not below 1")

    def _near(self, a: float, b: float) -> None:
        self.margin = min(self.margin, abs(a - b))

    def _penalise(self, ids: list[int], prompt: int) -> None:
        p = self.params
        for i, bias in p.logit_bias:
            self.logits[i] += bias
        seen = ids[-p.penalty_last_n :] if p.penalty_last_n else ids
        replied = [i for place, i in enumerate(ids) if place >= prompt and place >= len(ids) - len(seen)]
        for i in set(seen):
            self.logits[i] *= p.repetition_penalty if self.logits[i] <= 0 else 1 / p.repetition_penalty
        for i in set(replied):
            self.logits[i] -= p.presence_penalty + replied.count(i) * p.frequency_penalty
        if p.dry_multiplier:
            text = ids[-p.dry_penalty_last_n :] if p.dry_penalty_last_n else ids
            for i in range(len(self.logits)):
                length = self._repeats(text, i)
                if length >= p.dry_allowed_length:
                    beyond = min(length - p.dry_allowed_length, 50)
                    self.logits[i] -= p.dry_multiplier * p.dry_base**beyond

    def _repeats(self, text: list[int], token: int) -> int:
        """The most n such that the last n ids stood before, with the token after them and no breaker among them."""
        breakers = self.params.dry_sequence_breakers
        if token in breakers:
            return 0
        best = 0
        for n in range(1, len(text)):
            end = text[-n:]
            if any(i in breakers for i in end):
                break
            if any(text[at : at + n] == end and text[at + n] == token for at in range(len(text) - n)):
                best = n
        return best

    def _completes(self, token: int, ids: Sequence[int]) -> bool:
        text = [*ids, token]
        return any(len(w) <= len(text) and text[len(text) - len(w) :] == list(w) for w in self.params.bad_words)

    def _top_k(self) -> None:
        if self.params.top_k:
            self.order = self.order[: self.params.top_k]

    def _top_p(self, *, beyond: bool) -> None:
        if self.params.top_p == 1:
            return
        self.order = self._until(self.order, self.params.top_p, beyond=beyond)

    def _until(self, order: list[int], share: float, *, beyond: bool) -> list[int]:
        total, running, kept = self.total, 0.0, []
        for i in order:
            kept.append(i)
            running += self.weight[i] / total
            self._near(running, share)
            if running > share or (running == share and not beyond):
                break
        return kept

    def _typical(self) -> None:
        if self.params.typical_p == 1:
            return
        total = self.total
        share = {i: self.weight[i] / total for i in self.order}
        surprise = {i: -math.log(share[i]) if share[i] else math.inf for i in self.order}
        entropy = math.fsum(share[i] * surprise[i] for i in self.order if share[i])
        far = {i: abs(surprise[i] - entropy) for i in self.order}
        order = sorted(self.order, key=lambda i: far[i])
        for a, b in itertools.pairwise(order):
            if self.weight[a] != self.weight[b]:
                self._near(far[a], far[b])
        kept = set(self._until(order, self.params.typical_p, beyond=False))
        self.order = [i for i in self.order if i in kept]

    def _min_p(self) -> None:
        best = self.weight[self.order[0]]
        for i in self.order:
            self._near(self.weight[i] / best, self.params.min_p) if self.weight[i] != best else None
        self.order = [i for i in self.order if self.weight[i] / best >= self.params.min_p]

    def _xtc(self, u: float) -> None:
        if u >= self.params.xtc_probability:
            return
        shares = [self.weight[i] / self.total for i in self.order]
        for share in shares:
            self._near(share, self.params.xtc_threshold)
        above = sum(share >= self.params.xtc_threshold for share in shares)
        self.order = self.order[max(above - 1, 0) :]
