"""Keys and values as the pages hold them, in binary32."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cabochon.kvcache.store import INT8_BLOCK, KVStore
from cabochon.types import Float32, Int32, KVType

Stored: TypeAlias = Literal["keys", "values"]


def stored(store: KVStore, layer: int, pages: Int32, what: Stored) -> Float32:
    """[n * PAGE, G, E] of n pages of one layer, one after the other: each as it is stored, widened."""
    kv = store.layers[layer]
    array, scales = (kv.keys, kv.key_scales) if what == "keys" else (kv.values, kv.value_scales)
    values = _widened(array[pages], None if scales is None else scales[pages], store.kv_type, by_dim=what == "keys")
    out = values.transpose(0, 3, 1, 2) if what == "keys" else values.transpose(0, 2, 1, 3)
    return out.reshape(-1, *out.shape[2:])


def _widened(held: NDArray[np.generic], scales: Float32 | None, kv_type: KVType, *, by_dim: bool) -> Float32:
    if kv_type == "bf16":
        return (held.astype(np.uint32) << 16).view(np.float32)
    values = held.astype(np.float32)
    if scales is not None:
        axis = 2 if by_dim else 3
        blocks = np.repeat(scales, INT8_BLOCK, axis=axis)
        values *= blocks[:, :, : values.shape[2]] if by_dim else blocks[..., : values.shape[3]]
    return values
