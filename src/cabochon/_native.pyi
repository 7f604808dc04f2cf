"""Types of the native core (``native/binding.cpp``).

Arrays are taken as they are: one of another type or order raises ``TypeError``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

def version() -> str:
    """The version this module was built as."""

def exp_f32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """``exp`` of each value [n] (docs/arithmetic.md section 2)."""

def log_sum_exp(row: NDArray[np.float32]) -> float:
    """Logarithm of the sum of exponentials of a row [V] (section 7). Raises ``ValueError`` if it is empty."""

def top_k(row: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Ids [k] and values [k] of the largest of a row [V], by (value descending, id ascending).

    NaN counts as minus infinity. Raises ``ValueError`` unless 1 <= k <= V.
    """

def philox_uniform(seed: int, position: int, choice: int) -> float:
    """A number in (0, 1), exact in binary64 (section 8). ``seed`` has 64 bits, the others 32; none is negative."""
