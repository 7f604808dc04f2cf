"""Float32 to every stored type, by plain rounding to nearest.

Made for tests: valid blocks of good enough quality, no search for better scales.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon.errors import UsageError
from cabochon.types import Bytes, Float32, RawTensor, WeightType


def quantize(name: str, values: Float32, kind: WeightType) -> RawTensor:
    """``values`` as a tensor of type ``kind``.

    Raises ``UsageError`` if the last dimension is not a whole number of the type's blocks.
    """
    if values.shape[-1] % kind.block_values:
        raise UsageError(f"tensor {name}: rows of {values.shape[-1]} are not whole blocks of {kind.name}")
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, kind.block_values)
    return RawTensor(name, kind, tuple(values.shape), _ENCODERS[kind](blocks).reshape(-1))


def _bytes_of(values: NDArray[Any], dtype: str) -> Bytes:
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(len(values), -1)


def _f32(blocks: Float32) -> Bytes:
    return _bytes_of(blocks, "<f4")


def _f16(blocks: Float32) -> Bytes:
    return _bytes_of(blocks, "<f2")


def _bf16(blocks: Float32) -> Bytes:
    bits = blocks.view(np.uint32)
    nearest_even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return _bytes_of(nearest_even >> np.uint32(16), "<u2")


def _scaled(values: Float32, scale: Float32) -> Float32:
    """``values / scale``, 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)


def _stored_f16(scale: Float32) -> Float32:
    """The scale as it will read back from float16."""
    return scale.astype(np.float16).astype(np.float32)


def _q8_0(blocks: Float32) -> Bytes:
    d = _stored_f16(np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127))
    q = np.clip(np.rint(_scaled(blocks, d)), -127, 127)
    return np.hstack([_bytes_of(d, "<f2"), _bytes_of(q, "i1")])


def _q5_0(blocks: Float32) -> Bytes:
    # The value of largest size is given -16, the end of the range that reaches farther.
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    d = _stored_f16(extreme / np.float32(-16))
    q = (np.clip(np.rint(_scaled(blocks, d)), -16, 15) + 16).astype(np.uint8)
    fifth = np.packbits(q >> 4, axis=1, bitorder="little")
    return np.hstack([_bytes_of(d, "<f2"), fifth, _packed_nibbles(q & 15)])


def _q4_k(blocks: Float32) -> Bytes:
    n = len(blocks)
    sub = blocks.reshape(n, 8, 32)
    low = np.minimum(sub.min(axis=2), 0)
    step = (np.maximum(sub.max(axis=2), 0) - low) / np.float32(15)
    d = _stored_f16(step.max(axis=1, keepdims=True) / np.float32(63))
    dmin = _stored_f16((-low).max(axis=1, keepdims=True) / np.float32(63))
    scale = np.clip(np.rint(_scaled(step, np.broadcast_to(d, step.shape))), 0, 63)
    minimum = np.clip(np.rint(_scaled(-low, np.broadcast_to(dmin, low.shape))), 0, 63)
    wide = np.broadcast_to((d * scale)[:, :, None], sub.shape)
    q = np.clip(np.rint(_scaled(sub + (dmin * minimum)[:, :, None], wide)), 0, 15).astype(np.uint8)
    sc, mn = scale.astype(np.uint8), minimum.astype(np.uint8)
    packed = np.hstack(
        [
            sc[:, :4] | (sc[:, 4:] >> 4) << 6,
            mn[:, :4] | (mn[:, 4:] >> 4) << 6,
            (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4,
        ]
    )
    nibbles = _packed_nibbles(q.reshape(n, 4, 64)).reshape(n, 128)
    return np.hstack([_bytes_of(d, "<f2"), _bytes_of(dmin, "<f2"), packed, nibbles])


def _q6_k(blocks: Float32) -> Bytes:
    n = len(blocks)
    sub = blocks.reshape(n, 16, 16)
    step = np.abs(sub).max(axis=2) / np.float32(31)
    d = _stored_f16(step.max(axis=1, keepdims=True) / np.float32(127))
    scale = np.clip(np.rint(_scaled(step, np.broadcast_to(d, step.shape))), 0, 127)
    wide = np.broadcast_to((d * scale)[:, :, None], sub.shape)
    q = (np.clip(np.rint(_scaled(sub, wide)), -32, 31) + 32).astype(np.uint8)
    nibbles = _packed_nibbles((q & 15).reshape(n, 2, 128)).reshape(n, 128)
    quarters = (q >> 4).reshape(n, 2, 4, 32)
    places = np.array([1, 4, 16, 64], np.uint8).reshape(1, 1, 4, 1)
    pairs = (quarters * places).sum(axis=2, dtype=np.uint8).reshape(n, 64)
    return np.hstack([nibbles, pairs, _bytes_of(scale, "i1"), _bytes_of(d, "<f2")])


def _packed_nibbles(q: NDArray[Any]) -> Bytes:
    """``[..., 2m]`` values below 16 to ``[..., m]`` bytes: the first half low, the second half high."""
    half = q.shape[-1] // 2
    packed: Bytes = q[..., :half].astype(np.uint8) | q[..., half:].astype(np.uint8) << np.uint8(4)
    return packed


_ENCODERS: dict[WeightType, Callable[[Float32], Bytes]] = {
    WeightType.F32: _f32,
    WeightType.F16: _f16,
    WeightType.BF16: _bf16,
    WeightType.Q8_0: _q8_0,
    WeightType.Q5_0: _q5_0,
    WeightType.Q4_K: _q4_k,
    WeightType.Q6_K: _q6_k,
}
