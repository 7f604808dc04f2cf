"""Stored weights to float32, exactly as the file format defines them.

One function per type turns blocks, ``[n, block_bytes]`` bytes, into ``[n, block_values]`` float32; ``_DECODERS`` lists
them, and a new type is one function and one entry. The order of operations is the format's (the ``gguf`` package is
the reference), so results are equal bit for bit, not only close.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cabochon.errors import TensorError, UnsupportedError
from cabochon.types import Bytes, Float32, RawTensor, WeightType

CHUNK_VALUES = 1 << 20
"""Values decoded at a time: temporaries stay within a few tens of megabytes whatever the tensor's size."""


def dequantize(tensor: RawTensor) -> Float32:
    """All of ``tensor`` as float32 of its shape."""
    rows = tensor.shape[:-1]
    count = int(np.prod(rows, dtype=np.int64))
    return dequantize_rows(tensor, 0, count).reshape(tensor.shape)


def dequantize_rows(tensor: RawTensor, first: int, last: int) -> Float32:
    """Rows ``first`` up to but without ``last`` of ``tensor``, ``[last - first, cols]``; leading dimensions are rows.

    Raises ``UnsupportedError`` for a type without a decoder, ``TensorError`` if the data is not as long as the shape
    says or the rows do not exist.
    """
    decode = _DECODERS.get(tensor.type)
    if decode is None:
        raise UnsupportedError(f"tensor {tensor.name}: no decoder for type {tensor.type.name}")
    cols = tensor.shape[-1]
    rows = tensor.values // cols
    blocks_per_row, rest = divmod(cols, tensor.type.block_values)
    row_bytes = blocks_per_row * tensor.type.block_bytes
    if rest or tensor.data.nbytes != rows * row_bytes:
        raise TensorError(f"tensor {tensor.name}: {tensor.data.nbytes} bytes do not hold shape {tensor.shape}")
    if not 0 <= first <= last <= rows:
        raise TensorError(f"tensor {tensor.name}: rows {first} to {last} of {rows} do not exist")
    out = np.empty((last - first, cols), dtype=np.float32)
    step = max(1, CHUNK_VALUES // cols)
    data = tensor.data.reshape(rows, row_bytes)
    # Scales may be infinite or not numbers in a damaged file; the result then is too, by definition.
    with np.errstate(all="ignore"):
        for start in range(first, last, step):
            end = min(start + step, last)
            blocks = data[start:end].reshape(-1, tensor.type.block_bytes)
            out[start - first : end - first] = decode(blocks).reshape(end - start, cols)
    return out


def _f32(blocks: Bytes) -> Float32:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32, copy=False)


def _f16(blocks: Bytes) -> Float32:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Float32:
    high = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (high << np.uint32(16)).view(np.float32)


def _q8_0(blocks: Bytes) -> Float32:
    """f16 d; 32 int8 q. Value: d * q."""
    d = _f16(blocks[:, :2])
    q = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    return d * q


def _q5_0(blocks: Bytes) -> Float32:
    """f16 d; bit j of a u32 is the fifth bit of value j; 16 bytes: low nibbles 0-15, high nibbles 16-31.

    Value: d * (q - 16).
    """
    d = _f16(blocks[:, :2])
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    q = _nibbles(blocks[:, 6:]) | fifth << np.uint8(4)
    return d * (q.view(np.int8) - np.int8(16)).astype(np.float32)


def _q4_k(blocks: Bytes) -> Float32:
    """f16 d, f16 dmin; 12 bytes of 6-bit scales and minima for 8 sub-blocks of 32; 128 bytes of nibbles.

    Bytes 32i to 32i+31 hold sub-block 2i in their low nibbles and 2i+1 in their high ones.
    Value: d * scale * q - dmin * min.
    """
    n = len(blocks)
    d, dmin = _f16(blocks[:, 0:2]), _f16(blocks[:, 2:4])
    scale, minimum = _six_bit_pairs(blocks[:, 4:16])
    scales = (d * scale.astype(np.float32)).reshape(n, 8, 1)
    minima = (dmin * minimum.astype(np.float32)).reshape(n, 8, 1)
    q = _nibbles(blocks[:, 16:].reshape(n, 4, 32)).reshape(n, 8, 32)
    return (scales * q.astype(np.float32) - minima).reshape(n, 256)


def _q6_k(blocks: Bytes) -> Float32:
    """128 bytes of nibbles, 64 of upper bit pairs, 16 int8 scales for sub-blocks of 16, f16 d.

    Each half of 128 values has 64 nibble bytes (low nibbles: values 0-63, high: 64-127) and 32 bytes of pairs (bits
    2k and 2k+1: values 32k to 32k+31). Value: d * scale * (q - 32).
    """
    n = len(blocks)
    low = _nibbles(blocks[:, :128].reshape(n, 2, 64))
    pairs = blocks[:, 128:192].reshape(n, 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    q = low.reshape(n, 2, 4, 32) | (pairs & np.uint8(3)) << np.uint8(4)
    scale = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    scales = (_f16(blocks[:, 208:]) * scale).reshape(n, 16, 1)
    centred = (q.view(np.int8) - np.int8(32)).reshape(n, 16, 16).astype(np.float32)
    return (scales * centred).reshape(n, 256)


def _nibbles(packed: Bytes) -> Bytes:
    """``[..., m]`` bytes to ``[..., 2m]``: all low nibbles, then all high ones."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


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


_DECODERS: dict[WeightType, Callable[[NDArray[np.uint8]], Float32]] = {
    WeightType.F32: _f32,
    WeightType.F16: _f16,
    WeightType.BF16: _bf16,
    WeightType.Q8_0: _q8_0,
    WeightType.Q5_0: _q5_0,
    WeightType.Q4_K: _q4_k,
    WeightType.Q6_K: _q6_k,
}
