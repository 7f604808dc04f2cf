"""The few functions of ``docs/arithmetic.md`` that sampling and scoring need, from the native core.

NumPy's own exponential and logarithm change their last bits with the CPU; these do not.
"""

from __future__ import annotations

import numpy as np

from cabochon import _native
from cabochon.types import Float32, Int32


def exp(values: Float32) -> Float32:
    """``exp`` of each value [n]: below -87 it is +0, above 88 infinity (section 2)."""
    return _native.exp_f32(np.ascontiguousarray(values, np.float32))


def log_sum_exp(row: Float32) -> np.float32:
    """Logarithm of the sum of exponentials of a row [V] of logits, in chunks of 1,024 (section 7)."""
    return np.float32(_native.log_sum_exp(np.ascontiguousarray(row, np.float32)))


def top_k(row: Float32, k: int) -> tuple[Int32, Float32]:
    """Ids [k] and values [k] of the k largest of a row [V], by (value descending, id ascending); 1 <= k <= V."""
    return _native.top_k(np.ascontiguousarray(row, np.float32), k)


def uniform(seed: int, position: int, choice: int = 0) -> float:
    """The random number in (0, 1) of a seed (64 bits) and a position in the text (section 8)."""
    return _native.philox_uniform(seed, position, choice)
