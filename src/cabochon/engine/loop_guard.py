"""Whether a reply has fallen into a loop: it ends in one short sequence, over and over.

A reply of ids loops if, for some period p from 1 to 64, its last n ids are each the same as the id p places before it
among them, where n is the larger of 48 and p times the number of repetitions asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from cabochon.errors import UsageError
from cabochon.sampling.params import whole_number

LONGEST_PERIOD = 64
FEWEST_TOKENS = 48
"""However often they repeat, fewer tokens are no loop: a row of dashes, a short list."""

FEWEST_REPETITIONS = 2
MOST_REPETITIONS = 1000
"""More would be a slip of the hand."""


def checked_loop_guard(value: object) -> int:
    """How many repetitions are a loop, as a plain ``int``, 0 for none; raises ``UsageError`` for what cannot be."""
    repetitions = whole_number("loop_guard", value, at_least=0, at_most=MOST_REPETITIONS)
    if 0 < repetitions < FEWEST_REPETITIONS:
        raise UsageError(f"loop_guard must be 0 (off) or at least {FEWEST_REPETITIONS} repetitions, not {repetitions}")
    return repetitions


def loops(ids: Sequence[int], first: int, repetitions: int) -> bool:
    """Whether the reply that begins at ``first`` in ``ids`` ends in a loop of so many repetitions."""
    reply = len(ids) - first
    for period in range(1, LONGEST_PERIOD + 1):
        length = max(FEWEST_TOKENS, period * repetitions)
        if length > reply:
            return False
        if ids[-1] == ids[-1 - period] and ids[-length:-period] == ids[period - length :]:
            return True
    return False
