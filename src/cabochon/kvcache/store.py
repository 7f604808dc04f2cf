"""The arrays that hold keys and values, one pair per layer.

Keys lie as ``[pages, kv_heads, head_dim, PAGE]`` and values as ``[pages, kv_heads, PAGE, head_dim]``: in both attention
products the vector lanes are then outputs. Keys are stored after norm and rotation, and never change again.

``float16`` and ``float32`` are NumPy's; ``bf16`` is kept as its 16 bits in ``uint16``; ``int8`` has one binary32 scale
per block of 32 along head_dim (the last block may be shorter), laid out like its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon.kvcache.groups import KVGroup, KVLayout
from cabochon.types import PAGE, Bytes, Float32, KVType

INT8_BLOCK = 32
"""Values that share one scale in an int8 cache."""

_DTYPES: dict[KVType, type[np.generic]] = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "int8": np.int8}


@dataclass(frozen=True, slots=True)
class LayerKV:
    """One layer's arrays."""

    keys: NDArray[Any]
    """[pages, G, E, PAGE]"""
    values: NDArray[Any]
    """[pages, G, PAGE, E]"""
    key_scales: Float32 | None
    """[pages, G, ceil(E / 32), PAGE]; int8 only."""
    value_scales: Float32 | None
    """[pages, G, PAGE, ceil(E / 32)]; int8 only."""


class KVStore:
    """All layers' arrays, reserved at once. Memory is not initialised: nothing out of a key range is ever read."""

    def __init__(self, layout: KVLayout, pages: Sequence[int], kv_type: KVType) -> None:
        """``pages`` has the number of pages of each group."""
        self.layout = layout
        self.kv_type = kv_type
        self.pages = tuple(pages)
        self.layers: tuple[LayerKV, ...] = tuple(
            _allocate(layout.groups[group], self.pages[group], kv_type) for group in layout.group_of
        )

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(page_bytes(g, self.kv_type) * n for g, n in zip(self.layout.groups, self.pages, strict=True))

    def page(self, group: int, page: int) -> Iterator[Bytes]:
        """The memory of one page: layer by layer of its group keys, values, then the scales of both if there are."""
        for layer in self.layout.groups[group].layers:
            kv = self.layers[layer]
            for array in (kv.keys, kv.values, kv.key_scales, kv.value_scales):
                if array is not None:
                    yield array[page].reshape(-1).view(np.uint8)

    def copy_page(self, group: int, source: int, target: int) -> None:
        """Copies one page of every layer of a group."""
        for old, new in zip(self.page(group, source), self.page(group, target), strict=True):
            new[:] = old


def page_bytes(group: KVGroup, kv_type: KVType) -> int:
    """Bytes of one page over all layers of its group, scales included."""
    values = 2 * group.kv_heads * group.head_dim * PAGE
    scales = 2 * group.kv_heads * -(-group.head_dim // INT8_BLOCK) * PAGE * 4 if kv_type == "int8" else 0
    return len(group.layers) * (values * np.dtype(_DTYPES[kv_type]).itemsize + scales)


def _allocate(group: KVGroup, pages: int, kv_type: KVType) -> LayerKV:
    heads, dim, blocks = group.kv_heads, group.head_dim, -(-group.head_dim // INT8_BLOCK)
    scaled = kv_type == "int8"
    return LayerKV(
        keys=np.empty((pages, heads, dim, PAGE), _DTYPES[kv_type]),
        values=np.empty((pages, heads, PAGE, dim), _DTYPES[kv_type]),
        key_scales=np.empty((pages, heads, blocks, PAGE), np.float32) if scaled else None,
        value_scales=np.empty((pages, heads, PAGE, blocks), np.float32) if scaled else None,
    )
