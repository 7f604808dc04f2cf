"""Inverse frequencies of rotary positions, the same numbers on every backend and machine."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import accumulate, repeat
from operator import mul

import numpy as np

from cabochon.ops.protocol import Rope
from cabochon.types import Float32

_DIGITS = 40
"""Decimal digits of the intermediate results: far more than binary32's 9, so only the last rounding counts."""


def inverse_frequencies(rope: Rope, head_dim: int) -> Float32:
    """``theta ** (-2i / E) / factor`` for i < E/2, each rounded once to binary32: [E/2].

    In decimal arithmetic, because powers in binary differ from one mathematical library to the next.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        theta, factor = Decimal(rope.theta), Decimal(rope.factor)
        # One power and products of it: their error, too, stays far behind the digits that count.
        ratio = theta ** (Decimal(-2) / head_dim)
        exact = accumulate(repeat(ratio, head_dim // 2 - 1), mul, initial=1 / factor)
        return np.array([_nearest_binary32(value) for value in exact], dtype=np.float32)


def _nearest_binary32(value: Decimal) -> np.float32:
    # By way of binary64 the value would be rounded twice; a neighbour may be closer.
    guess = np.float32(float(value))
    around = (guess, np.nextafter(guess, np.float32(0)), np.nextafter(guess, np.float32(np.inf)))
    return min(around, key=lambda near: abs(Decimal(float(near)) - value))
