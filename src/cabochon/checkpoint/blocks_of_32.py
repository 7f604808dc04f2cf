"""Quantised blocks of 32 values to float32, for ``dequantize.py``; and the parts that all formats are made of.

Every decoder takes ``[n, block_bytes]`` bytes and gives ``[n, 32]`` values. Integers go to float32 exactly; the float
operations and their order are those of the formula each docstring ends with.
"""

from __future__ import annotations

import numpy as np

from cabochon.types import Bytes, Float32

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 16 codes of IQ4_NL and IQ4_XS stand for: denser near zero, where most weights are."""


def f16(packed: Bytes) -> Float32:
    """``[..., 2m]`` bytes to ``[..., m]`` float16 numbers, widened."""
    return np.ascontiguousarray(packed).view("<f2").astype(np.float32)


def bit_fields(packed: Bytes, width: int) -> Bytes:
    """``[..., m]`` bytes to ``[..., m * 8 / width]`` numbers of ``width`` bits: the lowest of all bytes come first."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    fields = packed[..., None, :] >> shifts & np.uint8((1 << width) - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def centred(q: Bytes, zero: int) -> Float32:
    """``q - zero``, for q below 128."""
    return (q.view(np.int8) - np.int8(zero)).astype(np.float32)


def iq4(codes: Bytes) -> Float32:
    """``IQ4_VALUES`` of ``codes``."""
    return np.array(IQ4_VALUES, dtype=np.float32)[codes]


def q4_0(blocks: Bytes) -> Float32:
    """f16 d; 16 bytes: low nibbles are values 0-15, high ones 16-31. Value: d * (q - 8)."""
    return f16(blocks[:, :2]) * centred(bit_fields(blocks[:, 2:], 4), 8)


def q4_1(blocks: Bytes) -> Float32:
    """f16 d; f16 m; nibbles as in ``q4_0``. Value: d * q + m."""
    return f16(blocks[:, :2]) * bit_fields(blocks[:, 4:], 4).astype(np.float32) + f16(blocks[:, 2:4])


def q5_0(blocks: Bytes) -> Float32:
    """f16 d; 20 bytes of five bits (``_five_bits``). Value: d * (q - 16)."""
    return f16(blocks[:, :2]) * centred(_five_bits(blocks[:, 2:]), 16)


def q5_1(blocks: Bytes) -> Float32:
    """f16 d; f16 m; 20 bytes of five bits (``_five_bits``). Value: d * q + m."""
    return f16(blocks[:, :2]) * _five_bits(blocks[:, 4:]).astype(np.float32) + f16(blocks[:, 2:4])


def q8_0(blocks: Bytes) -> Float32:
    """f16 d; 32 int8 q. Value: d * q."""
    return f16(blocks[:, :2]) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def iq4_nl(blocks: Bytes) -> Float32:
    """f16 d; nibbles as in ``q4_0``. Value: d * IQ4_VALUES[q]."""
    return f16(blocks[:, :2]) * iq4(bit_fields(blocks[:, 2:], 4))


def _five_bits(packed: Bytes) -> Bytes:
    """Four bytes, a little-endian number whose bit j is the fifth bit of value j; nibbles as in ``q4_0``."""
    fifth = np.unpackbits(packed[:, :4], axis=1, bitorder="little")
    return bit_fields(packed[:, 4:], 4) | fifth << np.uint8(4)
