"""Random ways to choose tokens, for the requests of ``company.py``."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from cabochon.sampling.constraint import Constraint, Mask
from cabochon.types import SamplingParams


class Winding:
    """Two thirds of the ids, other ones after every token; anything at the beginning of a reply."""

    def __init__(self, vocab: int) -> None:
        self.ids = np.arange(vocab)

    def allowed(self, chosen: Sequence[int]) -> Mask | None:
        return (self.ids + sum(chosen)) % 3 != 0 if chosen else None


def drawn_params(draw: Random, vocab: int) -> SamplingParams:
    """Parameters of one request: some plain, as most are, and others with a few of everything."""
    plain = SamplingParams(
        temperature=draw.choice([0.0, 0.8, 2.0]), top_k=draw.choice([0, 5, 64]), seed=draw.getrandbits(64)
    )
    if draw.random() < 0.4:
        return plain

    def some(value: float, off: float = 0.0) -> float:
        return draw.choice([off, off, value])

    few = range(3, 12)
    return SamplingParams(
        temperature=draw.choice([0.0, 0.8, 2.0, 20.0]),
        top_k=draw.choice([0, 5, 64]),
        top_p=draw.choice([1.0, 0.95, 0.4]),
        min_p=some(0.05),
        typical_p=some(0.8, off=1.0),
        seed=plain.seed,
        choice=draw.choice([0, 1, 2**31 - 1]),
        repetition_penalty=some(1.4, off=1.0),
        presence_penalty=some(0.7),
        frequency_penalty=some(0.4),
        penalty_last_n=draw.choice([0, 7, 40]),
        logit_bias=tuple((i, 2.5) for i in few) if draw.random() < 0.5 else (),
        dry_multiplier=some(0.8),
        dry_allowed_length=draw.choice([1, 2]),
        dry_penalty_last_n=draw.choice([0, 20]),
        dry_sequence_breakers=frozenset(draw.choice([(), (5, 6)])),
        xtc_probability=some(0.5),
        xtc_threshold=draw.choice([0.05, 0.2]),
        bad_words=tuple((draw.randrange(vocab), draw.choice(few)) for _ in range(draw.choice([0, 200]))),
        order=draw.choice(["cabochon", "gemma_pytorch"]),
    )


def drawn_constraint(draw: Random, vocab: int) -> Constraint | None:
    """A constraint for some requests."""
    return Winding(vocab) if draw.random() < 0.2 else None
