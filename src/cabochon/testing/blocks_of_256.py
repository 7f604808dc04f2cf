"""Float32 to quantised blocks of 256 values, for ``quantize.py``: the K-quants and IQ4_XS.

Every encoder takes ``[n, 256]`` values and gives ``[n, block_bytes]`` bytes, laid out as
``cabochon.checkpoint.blocks_of_256`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cabochon.testing.blocks_of_32 import bytes_of, extreme, nearest_iq4, packed_fields, rounded, scaled, stored_f16
from cabochon.types import Bytes, Float32


def q2_k(blocks: Float32) -> Bytes:
    """Each 16 values from their smallest, or 0, to their largest in 3 steps."""
    parts = _between_ends(blocks, subs=16, steps=3, most=15)
    scales = parts.scale | parts.minimum << np.uint8(4)
    pairs = packed_fields(parts.q.reshape(-1, 2, 128), 2).reshape(-1, 64)
    return np.hstack([scales, pairs, bytes_of(parts.d, "<f2"), bytes_of(parts.dmin, "<f2")])


def q3_k(blocks: Float32) -> Bytes:
    """The value of largest size in each 16 is given -4, the end of the range that reaches farther."""
    sub = blocks.reshape(-1, 16, 16)
    d, scale, wide = _signed_scales(extreme(sub)[:, :, 0] / np.float32(-4))
    q = (rounded(scaled(sub, wide), -4, 3) + 4).astype(np.uint8).reshape(-1, 256)
    pairs = packed_fields((q & 3).reshape(-1, 2, 128), 2).reshape(-1, 64)
    scales = [packed_fields(scale & 15, 4), packed_fields(scale >> 4, 2)]
    return np.hstack([packed_fields(q >> 2, 1), pairs, *scales, bytes_of(d, "<f2")])


def q4_k(blocks: Float32) -> Bytes:
    """Each 32 values from their smallest, or 0, to their largest in 15 steps."""
    parts = _between_ends(blocks, subs=8, steps=15, most=63)
    return np.hstack([_six_bit_head(parts), packed_fields(parts.q.reshape(-1, 4, 64), 4).reshape(-1, 128)])


def q5_k(blocks: Float32) -> Bytes:
    """Each 32 values from their smallest, or 0, to their largest in 31 steps."""
    parts = _between_ends(blocks, subs=8, steps=31, most=63)
    nibbles = packed_fields((parts.q & 15).reshape(-1, 4, 64), 4).reshape(-1, 128)
    return np.hstack([_six_bit_head(parts), packed_fields(parts.q >> 4, 1), nibbles])


def q6_k(blocks: Float32) -> Bytes:
    """The value of largest size in each 16 is given 31 or -31."""
    sub = blocks.reshape(-1, 16, 16)
    step = np.abs(sub).max(axis=2) / np.float32(31)
    d = stored_f16(step.max(axis=1, keepdims=True) / np.float32(127))
    scale = rounded(scaled(step, np.broadcast_to(d, step.shape)), 0, 127)
    wide = np.broadcast_to((d * scale)[:, :, None], sub.shape)
    q = (rounded(scaled(sub, wide), -32, 31) + 32).astype(np.uint8)
    nibbles = packed_fields((q & 15).reshape(-1, 2, 128), 4).reshape(-1, 128)
    pairs = packed_fields((q >> 4).reshape(-1, 2, 128), 2).reshape(-1, 64)
    return np.hstack([nibbles, pairs, bytes_of(scale, "i1"), bytes_of(d, "<f2")])


def iq4_xs(blocks: Float32) -> Bytes:
    """The value of largest size in each 32 is given -127, the end of the code that reaches farther."""
    sub = blocks.reshape(-1, 8, 32)
    d, scale, wide = _signed_scales(extreme(sub)[:, :, 0] / np.float32(-127))
    high = packed_fields((scale >> 4).reshape(-1, 2, 4), 2).reshape(-1, 2)
    low = packed_fields((scale & 15).reshape(-1, 4, 2), 4).reshape(-1, 4)
    nibbles = packed_fields(nearest_iq4(scaled(sub, wide)), 4).reshape(-1, 128)
    return np.hstack([bytes_of(d, "<f2"), high, low, nibbles])


@dataclass(frozen=True, slots=True)
class _Parts:
    """A value is ``d * scale * q - dmin * minimum``; ``[n, 1]``, ``[n, subs]`` and ``[n, 256]``."""

    d: Float32
    dmin: Float32
    scale: Bytes
    minimum: Bytes
    q: Bytes


def _between_ends(blocks: Float32, *, subs: int, steps: int, most: int) -> _Parts:
    sub = blocks.reshape(len(blocks), subs, -1)
    low = np.minimum(sub.min(axis=2), 0)
    step = (np.maximum(sub.max(axis=2), 0) - low) / np.float32(steps)
    d = stored_f16(step.max(axis=1, keepdims=True) / np.float32(most))
    dmin = stored_f16((-low).max(axis=1, keepdims=True) / np.float32(most))
    scale = rounded(scaled(step, np.broadcast_to(d, step.shape)), 0, most)
    minimum = rounded(scaled(-low, np.broadcast_to(dmin, low.shape)), 0, most)
    wide = np.broadcast_to((d * scale)[:, :, None], sub.shape)
    q = rounded(scaled(sub + (dmin * minimum)[:, :, None], wide), 0, steps).reshape(len(blocks), 256)
    return _Parts(d, dmin, scale.astype(np.uint8), minimum.astype(np.uint8), q.astype(np.uint8))


def _signed_scales(step: Float32) -> tuple[Float32, Bytes, Float32]:
    """``[n, subs]`` steps of either sign: d ``[n, 1]``, six bits of each, and each as read back ``[n, subs, 1]``."""
    d = stored_f16(np.abs(step).max(axis=1, keepdims=True) / np.float32(31))
    scale = rounded(scaled(step, np.broadcast_to(d, step.shape)), -31, 31)
    return d, (scale + 32).astype(np.uint8), (d * scale)[:, :, None]


def _six_bit_head(parts: _Parts) -> Bytes:
    """What Q4_K and Q5_K begin with: d, dmin, and scales and minima of six bits in 12 bytes."""
    scale, minimum = parts.scale, parts.minimum
    first = np.hstack([scale[:, :4], minimum[:, :4]]) | np.hstack([scale[:, 4:], minimum[:, 4:]]) >> np.uint8(4) << 6
    last = packed_fields(np.hstack([scale[:, 4:], minimum[:, 4:]]) & 15, 4)
    return np.hstack([bytes_of(parts.d, "<f2"), bytes_of(parts.dmin, "<f2"), first, last])
