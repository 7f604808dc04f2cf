"""Arrays of integers as arithmetic runs, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cabochon.trace.trace import Runs
from cabochon.types import Int32


def runs_of(values: Int32) -> Runs:
    """The fewest runs from the left: each takes what goes on with its difference."""
    numbers = [int(value) for value in values]
    found = list[tuple[int, int, int]]()
    at = 0
    while at < len(numbers):
        difference = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 0
        end = at + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == difference:
            end += 1
        found.append((numbers[at], difference, end - at))
        at = end
    return tuple(found)


def values_of(runs: Runs) -> NDArray[np.int64]:
    """The integers of some runs."""
    parts = [first + difference * np.arange(count) for first, difference, count in runs]
    return np.concatenate([np.empty(0, np.int64), *parts])
