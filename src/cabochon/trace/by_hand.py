"""The loop of cached generation, step by step, every integer of a step in plain sight.

A text here owns all of its pages and lets none go, so any step can be made of it: the next token's as the engine makes
it, the whole text's once more, or one that is wrong on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.kvcache.pages import PageTable
from cabochon.kvcache.store import INT8_BLOCK, KVStore
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
            _differing(_stored(mine, layer, group, keys, what), _stored(right, layer, group, keys, what), tolerance)
            for what in ("keys", "values")
        ]
        if any(d.any() for d in differ):
            names = [name for name, d in zip(("key", "value"), differ, strict=True) if d.any()]
            return KVDifference(layer, " and ".join(names), int(np.argmax(differ[0] | differ[1])))
    return None


def _stored(text: PagedText, layer: int, group: int, keys: int, what: str) -> Float32:
    """[keys, G, E] as they are stored, widened to binary32."""
    pages = text.tables[group].entries
    kv, store = text.store.layers[layer], text.store
    array, scales = (kv.keys, kv.key_scales) if what == "keys" else (kv.values, kv.value_scales)
    values = _widened(array[pages], None if scales is None else scales[pages], store.kv_type, by_dim=what == "keys")
    out = values.transpose(0, 3, 1, 2) if what == "keys" else values.transpose(0, 2, 1, 3)
    return out.reshape(-1, *out.shape[2:])[:keys]


def _widened(stored: NDArray[np.generic], scales: Float32 | None, kv_type: str, *, by_dim: bool) -> Float32:
    if kv_type == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    values = stored.astype(np.float32)
    if scales is not None:
        axis = 2 if by_dim else 3
        blocks = np.repeat(scales, INT8_BLOCK, axis=axis)
        values *= blocks[:, :, : values.shape[2]] if by_dim else blocks[..., : values.shape[3]]
    return values


def _differing(mine: Float32, right: Float32, tolerance: float) -> NDArray[np.bool_]:
    """[keys] which differ."""
    if tolerance:
        size = float(np.sqrt(np.mean(right.astype(np.float64) ** 2)))
        off = ~(np.abs(mine - right) <= tolerance * size)
    else:
        off = mine.view(np.uint32) != right.view(np.uint32)
    differing: NDArray[np.bool_] = off.any(axis=(1, 2))
    return differing
