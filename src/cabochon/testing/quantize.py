"""Float32 to every stored type, by plain rounding to nearest.

Made for tests: valid blocks of good enough quality, no search for better scales.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cabochon.errors import UsageError
from cabochon.testing import blocks_of_32, blocks_of_256
from cabochon.testing.blocks_of_32 import bytes_of
from cabochon.types import Bytes, Float32, RawTensor, WeightType


def quantize(name: str, values: Float32, kind: WeightType) -> RawTensor:
    """``values`` as a tensor of type ``kind``.

    Raises ``UsageError`` if the last dimension is not a whole number of the type's blocks.
    """
    if values.shape[-1] % kind.block_values:
        raise UsageError(f"tensor {name}: rows of {values.shape[-1]} are not whole blocks of {kind.name}")
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, kind.block_values)
    return RawTensor(name, kind, tuple(values.shape), _ENCODERS[kind](blocks).reshape(-1))


def _f32(blocks: Float32) -> Bytes:
    return bytes_of(blocks, "<f4")


def _f16(blocks: Float32) -> Bytes:
    return bytes_of(blocks, "<f2")


def _bf16(blocks: Float32) -> Bytes:
    bits = blocks.view(np.uint32)
    nearest_even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return bytes_of(nearest_even >> np.uint32(16), "<u2")


_ENCODERS: dict[WeightType, Callable[[Float32], Bytes]] = {
    WeightType.F32: _f32,
    WeightType.F16: _f16,
    WeightType.BF16: _bf16,
    WeightType.Q4_0: blocks_of_32.q4_0,
    WeightType.Q4_1: blocks_of_32.q4_1,
    WeightType.Q5_0: blocks_of_32.q5_0,
    WeightType.Q5_1: blocks_of_32.q5_1,
    WeightType.Q8_0: blocks_of_32.q8_0,
    WeightType.IQ4_NL: blocks_of_32.iq4_nl,
    WeightType.Q2_K: blocks_of_256.q2_k,
    WeightType.Q3_K: blocks_of_256.q3_k,
    WeightType.Q4_K: blocks_of_256.q4_k,
    WeightType.Q5_K: blocks_of_256.q5_k,
    WeightType.Q6_K: blocks_of_256.q6_k,
    WeightType.IQ4_XS: blocks_of_256.iq4_xs,
}
