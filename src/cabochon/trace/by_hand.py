"""The loop of cached generation, step by step, every integer of a step in plain sight.

A text here owns all of its pages and lets none go, so any step can be made of it: the next token's as the engine makes
it, the whole text's once more, or one that is wrong on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.kvcache.pages import PageTable
from cabochon.kvcache.store import KVStore
from cabochon.trace.stored import Stored, stored
from cabochon.types import PAGE, Float32, StepInput

_NAN_BYTE = 0xFF
"""Every type of keys and values, or of their scales, has a NaN of such bytes."""


@dataclass(frozen=True, slots=True)
class PagedText:
    """A sequence in pages of its own."""

    store: KVStore
    tables: Sequence[PageTable]
    """[P] of all its pages in each group."""

    def step(self, ids: Sequence[int], first: int, end: int) -> StepInput:
        """The step that runs ``ids[first:end]`` at these positions and wants the logits after the last."""
        for table in self.tables:
            table.grow(end)
        rows = SequenceRows(ids[first:end], first, self.tables, (end - first - 1,))
        return build_step([rows], self.store.layout.groups)

    def slot(self, group: int, key: int) -> int:
        """Where a key is stored."""
        return int(self.tables[group].entries[key // PAGE]) * PAGE + key % PAGE

    def forget(self) -> None:
        """Fills all its pages with NaN: whatever is read before it is written again shows."""
        for group, table in enumerate(self.tables):
            for page in table.held:
                for memory in self.store.page(group, page):
                    memory.fill(_NAN_BYTE)

    def close(self) -> None:
        """Lets all its pages go."""
        for table in self.tables:
            table.let_go_all()


@dataclass(frozen=True, slots=True)
class KVDifference:
    """Where two texts first store something else, layer by layer from the first."""

    layer: int
    what: str
    """``key``, ``value``, or ``key and value``."""
    position: int
    """The first position of that layer."""


def first_difference(mine: PagedText, right: PagedText, keys: int, tolerance: float = 0.0) -> KVDifference | None:
    """The first layer in which the first ``keys`` keys or values of two texts in one store differ.

    Without a ``tolerance`` every bit counts; with one, differences of more than that share of the layer's root mean
    square.
    """
    for layer, group in enumerate(mine.store.layout.group_of):
        differ = [
            _differing(_of(mine, layer, group, keys, what), _of(right, layer, group, keys, what), tolerance)
            for what in get_args(Stored)
        ]
        if any(d.any() for d in differ):
            names = [name for name, d in zip(("key", "value"), differ, strict=True) if d.any()]
            return KVDifference(layer, " and ".join(names), int(np.argmax(differ[0] | differ[1])))
    return None


def _of(text: PagedText, layer: int, group: int, keys: int, what: Stored) -> Float32:
    return stored(text.store, layer, text.tables[group].entries, what)[:keys]


def _differing(mine: Float32, right: Float32, tolerance: float) -> NDArray[np.bool_]:
    """[keys] which differ."""
    if tolerance:
        size = float(np.sqrt(np.mean(right.astype(np.float64) ** 2)))
        off = ~(np.abs(mine - right) <= tolerance * size)
    else:
        off = mine.view(np.uint32) != right.view(np.uint32)
    differing: NDArray[np.bool_] = off.any(axis=(1, 2))
    return differing
