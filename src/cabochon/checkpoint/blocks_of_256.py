"""Quantised blocks of 256 values to float32, for ``dequantize.py``: the K-quants and IQ4_XS.

A block has sub-blocks of 16 or 32 values, each with an integer scale and perhaps an integer minimum; the block's own
float16 scale d multiplies the one and dmin the other. Every decoder takes ``[n, block_bytes]`` bytes and gives
``[n, 256]`` values. Integers go to float32 exactly; the float operations and their order are those of the formula each
docstring ends with, products of scales first.
"""

from __future__ import annotations

import numpy as np

from cabochon.checkpoint.blocks_of_32 import bit_fields, centred, f16, iq4
from cabochon.types import Bytes, Float32


def q2_k(blocks: Bytes) -> Float32:
    """16 bytes, low nibbles scales and high ones minima of sub-blocks of 16; 64 bytes of bit pairs; f16 d; f16 dmin.

    Each half of 128 values has 32 bytes of pairs (bits 2k and 2k+1: values 32k to 32k+31).
    Value: d * scale * q - dmin * min.
    """
    scale, minimum = blocks[:, :16] & np.uint8(15), blocks[:, :16] >> np.uint8(4)
    q = bit_fields(blocks[:, 16:80].reshape(-1, 2, 32), 2)
    return _with_minima(f16(blocks[:, 80:82]), scale, f16(blocks[:, 82:84]), minimum, q)


def q3_k(blocks: Bytes) -> Float32:
    """32 bytes with bit k of byte j the third bit of value 32k + j; 64 bytes of pairs as in ``q2_k``; 12 bytes; f16 d.

    The 12 bytes hold scales of sub-blocks of 16, six bits each: their lower four in the nibbles of the first eight
    bytes (low ones 0-7, high ones 8-15), their upper two in the last four (bits 2k and 2k+1: scales 4k to 4k+3).
    Value: d * (scale - 32) * (q - 4).
    """
    third = bit_fields(blocks[:, :32], 1)
    q = bit_fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 256) | third << np.uint8(2)
    scale = bit_fields(blocks[:, 96:104], 4) | bit_fields(blocks[:, 104:108], 2) << np.uint8(4)
    return _scaled(f16(blocks[:, 108:]) * centred(scale, 32), centred(q, 4))


def q4_k(blocks: Bytes) -> Float32:
    """f16 d; f16 dmin; 12 bytes of scales and minima for sub-blocks of 32 (``_six_bit_pairs``); 128 bytes of nibbles.

    Bytes 32i to 32i+31 hold sub-block 2i in their low nibbles and 2i+1 in their high ones.
    Value: d * scale * q - dmin * min.
    """
    scale, minimum = _six_bit_pairs(blocks[:, 4:16])
    q = bit_fields(blocks[:, 16:].reshape(-1, 4, 32), 4)
    return _with_minima(f16(blocks[:, :2]), scale, f16(blocks[:, 2:4]), minimum, q)


def q5_k(blocks: Bytes) -> Float32:
    """As ``q4_k``, with 32 bytes before the nibbles: bit k of byte j is the fifth bit of value 32k + j.

    Value: d * scale * q - dmin * min.
    """
    scale, minimum = _six_bit_pairs(blocks[:, 4:16])
    fifth = bit_fields(blocks[:, 16:48], 1)
    q = bit_fields(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 256) | fifth << np.uint8(4)
    return _with_minima(f16(blocks[:, :2]), scale, f16(blocks[:, 2:4]), minimum, q)


def q6_k(blocks: Bytes) -> Float32:
    """128 bytes of nibbles; 64 of upper bit pairs as in ``q2_k``; 16 int8 scales for sub-blocks of 16; f16 d.

    Each half of 128 values has 64 bytes of nibbles (low ones: values 0-63, high ones 64-127).
    Value: d * scale * (q - 32).
    """
    low = bit_fields(blocks[:, :128].reshape(-1, 2, 64), 4)
    q = low | bit_fields(blocks[:, 128:192].reshape(-1, 2, 32), 2) << np.uint8(4)
    scale = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return _scaled(f16(blocks[:, 208:]) * scale, centred(q, 32))


def iq4_xs(blocks: Bytes) -> Float32:
    """f16 d; two bytes of upper bit pairs and four of nibbles: 8 scales of sub-blocks of 32; 128 bytes of nibbles.

    Scales come lowest bits first. Bytes 16i to 16i+15 hold sub-block i, low nibbles its first half.
    Value: d * (scale - 32) * IQ4_VALUES[q].
    """
    n = len(blocks)
    high = bit_fields(blocks[:, 2:4, None], 2).reshape(n, 8)
    low = bit_fields(blocks[:, 4:8, None], 4).reshape(n, 8)
    scale = centred(low | high << np.uint8(4), 32)
    return _scaled(f16(blocks[:, :2]) * scale, iq4(bit_fields(blocks[:, 8:].reshape(n, 8, 16), 4)))


def _scaled(scales: Float32, q: Float32) -> Float32:
    """Sub-blocks of q, in any shape, each times its scale."""
    n, subs = scales.shape
    return (scales[:, :, None] * q.reshape(n, subs, -1)).reshape(n, 256)


def _with_minima(d: Float32, scale: Bytes, dmin: Float32, minimum: Bytes, q: Bytes) -> Float32:
    n, subs = scale.shape
    minima = dmin * minimum.astype(np.float32)
    products = _scaled(d * scale.astype(np.float32), q.astype(np.float32)).reshape(n, subs, -1)
    return (products - minima[:, :, None]).reshape(n, 256)


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 8 scales and 8 minima of 6 bits each in 12 bytes of a K-quant block, ``[n, 8]`` each.

    The first four of each lie in the low six bits of bytes 0-3 and 4-7; the others have their low nibbles in bytes
    8-11 (scale low, minimum high) and their upper two bits on top of the first four's bytes.
    """
    a, b, c = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    six, four = np.uint8(63), np.uint8(15)
    scale = np.concatenate([a & six, (c & four) | (a >> np.uint8(6)) << np.uint8(4)], axis=1)
    minimum = np.concatenate([b & six, (c >> np.uint8(4)) | (b >> np.uint8(6)) << np.uint8(4)], axis=1)
    return scale, minimum
