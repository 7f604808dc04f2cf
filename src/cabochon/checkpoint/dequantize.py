"""Stored weights to float32, exactly as the file format defines them.

One function per type turns blocks, ``[n, block_bytes]`` bytes, into ``[n, block_values]`` float32; ``_DECODERS`` lists
them, and a new type is one function, in ``blocks_of_32.py`` or ``blocks_of_256.py``, and one entry. The order of
operations is the format's (the ``gguf`` package is the reference), so results are equal bit for bit, not only close.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cabochon.checkpoint import blocks_of_32, blocks_of_256
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


def _bf16(blocks: Bytes) -> Float32:
    high = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (high << np.uint32(16)).view(np.float32)


_DECODERS: dict[WeightType, Callable[[Bytes], Float32]] = {
    WeightType.F32: _f32,
    WeightType.F16: blocks_of_32.f16,
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
