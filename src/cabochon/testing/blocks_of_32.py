"""Float32 to quantised blocks of 32 values, for ``quantize.py``; and the parts that all encoders are made of.

Every encoder takes ``[n, 32]`` values and gives ``[n, block_bytes]`` bytes, laid out as
``cabochon.checkpoint.blocks_of_32`` reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon.checkpoint.blocks_of_32 import IQ4_VALUES
from cabochon.types import Bytes, Float32


def bytes_of(values: NDArray[Any], dtype: str) -> Bytes:
    """``[n, m]`` values as the bytes of n rows of ``dtype``."""
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(len(values), -1)


def packed_fields(q: NDArray[Any], width: int) -> Bytes:
    """``[..., m * 8 / width]`` numbers of ``width`` bits to ``[..., m]`` bytes: the first m are the lowest bits."""
    layers = q.astype(np.uint8).reshape(*q.shape[:-1], 8 // width, -1)
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    packed: Bytes = np.bitwise_or.reduce(layers << shifts, axis=-2)
    return packed


def scaled(values: Float32, scale: Float32) -> Float32:
    """``values / scale``, 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)


def rounded(values: Float32, low: int, high: int) -> Float32:
    """The nearest whole numbers from ``low`` to ``high``."""
    return np.clip(np.rint(values), low, high)


def stored_f16(scale: Float32) -> Float32:
    """The scale as it will read back from float16."""
    return scale.astype(np.float16).astype(np.float32)


def extreme(values: Float32) -> Float32:
    """``[..., m]`` to ``[..., 1]``: the value of largest size, with its sign."""
    return np.take_along_axis(values, np.abs(values).argmax(axis=-1)[..., None], axis=-1)


def nearest_iq4(values: Float32) -> Bytes:
    """The codes whose ``IQ4_VALUES`` are nearest."""
    stops = np.array(IQ4_VALUES, np.float32)
    return np.searchsorted((stops[1:] + stops[:-1]) / 2, values).astype(np.uint8)


def q4_0(blocks: Float32) -> Bytes:
    """The value of largest size is given -8, the end of the range that reaches farther."""
    d = stored_f16(extreme(blocks) / np.float32(-8))
    return np.hstack([bytes_of(d, "<f2"), packed_fields(rounded(scaled(blocks, d), -8, 7) + 8, 4)])


def q4_1(blocks: Float32) -> Bytes:
    """The range from the smallest to the largest value, in 15 steps."""
    d, m, q = _between_ends(blocks, 15)
    return np.hstack([bytes_of(d, "<f2"), bytes_of(m, "<f2"), packed_fields(q, 4)])


def q5_0(blocks: Float32) -> Bytes:
    """The value of largest size is given -16, the end of the range that reaches farther."""
    d = stored_f16(extreme(blocks) / np.float32(-16))
    return np.hstack([bytes_of(d, "<f2"), _five_bits(rounded(scaled(blocks, d), -16, 15) + 16)])


def q5_1(blocks: Float32) -> Bytes:
    """The range from the smallest to the largest value, in 31 steps."""
    d, m, q = _between_ends(blocks, 31)
    return np.hstack([bytes_of(d, "<f2"), bytes_of(m, "<f2"), _five_bits(q)])


def q8_0(blocks: Float32) -> Bytes:
    """The value of largest size is given 127 or -127."""
    d = stored_f16(np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127))
    return np.hstack([bytes_of(d, "<f2"), bytes_of(rounded(scaled(blocks, d), -127, 127), "i1")])


def iq4_nl(blocks: Float32) -> Bytes:
    """The value of largest size is given -127, the end of the code that reaches farther."""
    d = stored_f16(extreme(blocks) / np.float32(-127))
    return np.hstack([bytes_of(d, "<f2"), packed_fields(nearest_iq4(scaled(blocks, d)), 4)])


def _between_ends(blocks: Float32, steps: int) -> tuple[Float32, Float32, Float32]:
    """Step and smallest value as they will read back, and the number of steps of every value."""
    low = blocks.min(axis=1, keepdims=True)
    d, m = stored_f16((blocks.max(axis=1, keepdims=True) - low) / np.float32(steps)), stored_f16(low)
    return d, m, rounded(scaled(blocks - m, d), 0, steps)


def _five_bits(q: Float32) -> Bytes:
    whole = q.astype(np.uint8)
    fifth = np.packbits(whole >> 4, axis=1, bitorder="little")
    return np.hstack([fifth, packed_fields(whole & 15, 4)])
