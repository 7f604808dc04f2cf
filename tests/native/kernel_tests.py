"""What the kernel tests share: the instruction sets, bitwise comparison, arrays at any alignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon._native import check
from cabochon.types import Float32, KVType

ISAS = tuple(check.instruction_sets())
"""The instruction sets this build has and this CPU runs."""


def assert_same_bits(got: NDArray[Any], want: NDArray[Any]) -> None:
    """Equal to the last bit; any NaN equals any other."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.dtype.kind == "f":
        both_nan = np.isnan(got) & np.isnan(want)
        bits = np.dtype(f"u{got.dtype.itemsize}")
        np.testing.assert_array_equal(np.where(both_nan, 0, got.view(bits)), np.where(both_nan, 0, want.view(bits)))
    else:
        np.testing.assert_array_equal(got, want)


def placed(values: NDArray[Any], offset: int = 0) -> Float32:
    """A float32 copy that starts ``offset`` floats after a 64-byte boundary, with NaN around it."""
    room = np.full(values.size + 64, np.nan, np.float32)
    start = -(room.ctypes.data // 4) % 16 + offset
    part = room[start : start + values.size].reshape(values.shape)
    part[...] = values
    return part


def empty(size: int, offset: int = 0) -> Float32:
    """NaN to be written over, ``offset`` floats after a 64-byte boundary."""
    return placed(np.full(size, np.nan), offset)


def kv_layer(kv_type: KVType, memory: Sequence[NDArray[Any]]) -> check.Layer:
    """One layer's keys, values and, for int8, their scales, as the kernels take them."""
    keys, values, *scales = memory
    return check.layer(kv_type, keys, values, scales[0] if scales else None, scales[1] if scales else None)
