"""Dequantisation equals the file format's definition bit for bit; the test quantisers write valid blocks."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as reference_dequantize

from cabochon.checkpoint import dequantize as module
from cabochon.checkpoint.dequantize import dequantize, dequantize_rows
from cabochon.checkpoint.gguf import read_gguf
from cabochon.errors import TensorError, UsageError
from cabochon.testing.quantize import quantize
from cabochon.types import Bytes, Float32, RawTensor, WeightType

ALL_TYPES = list(WeightType)


def reference(rows: Bytes, kind: WeightType) -> Float32:
    with np.errstate(all="ignore"):
        result: Float32 = reference_dequantize(rows, gguf.GGMLQuantizationType(int(kind)))
    return result


def assert_same_bits(ours: Float32, theirs: Float32) -> None:
    """Bits equal; where the reference is not a number, no number either (which one, no format defines)."""
    assert ours.dtype == np.float32
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], np.ascontiguousarray(theirs).view(np.uint32)[~nan])


def random_tensor(kind: WeightType, rows: int, blocks: int, seed: int = 0) -> RawTensor:
    """Every byte random: all quants, and scales of every size, sign and kind (zero, subnormal, infinite, NaN)."""
    size = rows * blocks * kind.block_bytes
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return RawTensor("t", kind, (rows, blocks * kind.block_values), data)


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_random_blocks_equal_the_gguf_package(kind: WeightType) -> None:
    tensor = random_tensor(kind, rows=97, blocks=5)
    assert_same_bits(dequantize(tensor), reference(tensor.data.reshape(97, -1), kind))


SCALES = np.array([0, -0.0, 1, -1, 6e-8, 6.1e-5, 65504, -65504, 3.3, np.inf, -np.inf, np.nan], dtype="<f2")
SCALE_AT = {
    WeightType.Q4_0: (0,),
    WeightType.Q4_1: (0, 2),
    WeightType.Q5_0: (0,),
    WeightType.Q5_1: (0, 2),
    WeightType.Q8_0: (0,),
    WeightType.Q2_K: (80, 82),
    WeightType.Q3_K: (108,),
    WeightType.Q4_K: (0, 2),
    WeightType.Q5_K: (0, 2),
    WeightType.Q6_K: (208,),
    WeightType.IQ4_NL: (0,),
    WeightType.IQ4_XS: (0,),
}
"""Where the float16 scales of each quantised type lie in a block."""


@pytest.mark.parametrize("kind", [kind for kind in ALL_TYPES if kind.block_values > 1], ids=lambda kind: kind.name)
def test_extreme_scales_equal_the_gguf_package(kind: WeightType) -> None:
    tensor = random_tensor(kind, rows=len(SCALES), blocks=len(SCALES), seed=1)
    blocks = tensor.data.reshape(len(SCALES), len(SCALES), kind.block_bytes)
    pairs = np.stack(np.broadcast_arrays(SCALES[:, None], SCALES[None, :]), axis=-1)
    for which, at in enumerate(SCALE_AT[kind]):
        blocks[:, :, at : at + 2] = np.ascontiguousarray(pairs[:, :, which, None]).view(np.uint8)
    assert_same_bits(dequantize(tensor), reference(tensor.data.reshape(len(SCALES), -1), kind))


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_blocks_of_one_byte_equal_the_gguf_package(kind: WeightType) -> None:
    """Every byte of a block the same: all zeros, all ones, every scale and quant at an end of its range."""
    width = max(kind.block_bytes, 16)
    data = np.repeat(np.array([0x00, 0x0F, 0x3F, 0x7B, 0x80, 0xF0, 0xFB, 0xFF], np.uint8)[:, None], width, axis=1)
    tensor = RawTensor("t", kind, (8, width // kind.block_bytes * kind.block_values), data.reshape(-1))
    assert_same_bits(dequantize(tensor), reference(data, kind))


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_block_sizes_are_those_of_the_gguf_package(kind: WeightType) -> None:
    theirs = gguf.GGMLQuantizationType[kind.name]
    assert kind == theirs.value
    assert (kind.block_values, kind.block_bytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_shape_is_kept_whatever_its_dimensions() -> None:
    cube = quantize("t", np.arange(2 * 3 * 64, dtype=np.float32).reshape(2, 3, 64), WeightType.F32)
    np.testing.assert_array_equal(dequantize(cube), np.arange(384, dtype=np.float32).reshape(2, 3, 64))
    vector = quantize("t", np.arange(64, dtype=np.float32), WeightType.F16)
    assert dequantize(vector).shape == (64,)


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_whole(kind: WeightType) -> None:
    tensor = random_tensor(kind, rows=11, blocks=2, seed=2)
    whole = dequantize(tensor)
    for first, last in [(0, 11), (0, 0), (11, 11), (3, 4), (7, 11)]:
        assert_same_bits(dequantize_rows(tensor, first, last), whole[first:last])


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = random_tensor(WeightType.Q6_K, rows=13, blocks=2, seed=3)
    whole = dequantize(tensor)
    for chunk in (1, 513, 2048):
        monkeypatch.setattr(module, "CHUNK_VALUES", chunk)
        assert_same_bits(dequantize(tensor), whole)


def test_unaligned_data() -> None:
    for kind in ALL_TYPES:
        tensor = random_tensor(kind, rows=3, blocks=2, seed=4)
        shifted = np.concatenate([np.zeros(1, np.uint8), tensor.data])[1:]
        assert_same_bits(dequantize(RawTensor("t", kind, tensor.shape, shifted)), dequantize(tensor))


def test_wrong_sizes_and_rows_are_named() -> None:
    tensor = random_tensor(WeightType.Q8_0, rows=2, blocks=1)
    with pytest.raises(TensorError, match=r"tensor t: 68 bytes do not hold shape \(3, 32\)"):
        dequantize(RawTensor("t", WeightType.Q8_0, (3, 32), tensor.data))
    with pytest.raises(TensorError, match="do not hold"):
        dequantize(RawTensor("t", WeightType.Q8_0, (2, 33), tensor.data))
    for first, last in [(-1, 1), (1, 0), (0, 3)]:
        with pytest.raises(TensorError, match="rows"):
            dequantize_rows(tensor, first, last)


# Half a step of each format for values within [-1, 1], the rounding of scales included; where one end of the range does
# not reach as far as the other, a whole step, and for the IQ4 code what that end lacks.
STEPS = {
    WeightType.F32: 0.0,
    WeightType.F16: 2.0**-12,
    WeightType.Q4_0: 1.01 / 8,
    WeightType.Q4_1: 0.51 * 2 / 15,
    WeightType.Q5_0: 1.01 / 16,
    WeightType.Q5_1: 0.51 * 2 / 31,
    WeightType.Q8_0: 0.51 / 127,
    WeightType.Q2_K: 0.55 * 2 / 3,
    WeightType.Q3_K: 1.1 / 4,
    WeightType.Q4_K: 0.6 * 2 / 15,
    WeightType.Q5_K: 0.65 * 2 / 31,
    WeightType.Q6_K: 0.65 / 31,
    WeightType.IQ4_NL: 14.1 / 127,
    WeightType.IQ4_XS: 16.3 / 127,
    WeightType.BF16: 2.0**-9,
}


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_quantisers_are_within_a_step(kind: WeightType) -> None:
    values = np.random.default_rng(5).uniform(-1, 1, (7, 512)).astype(np.float32)
    values[0] = 0
    values[1] *= np.float32(0.125)
    back = dequantize(quantize("t", values, kind))
    scale = np.array([0, 0.125, 1, 1, 1, 1, 1])[:, None] * STEPS[kind] + 1e-6 * (kind != WeightType.F32)
    error = np.abs(back - values)
    assert (error <= scale).all()
    assert error.max() >= 0.7 * STEPS[kind]
    assert not back[0].any()


def test_quantisers_refuse_part_of_a_block() -> None:
    with pytest.raises(UsageError, match="rows of 48 are not whole blocks of Q8_0"):
        quantize("t", np.zeros((2, 48), np.float32), WeightType.Q8_0)


@pytest.mark.real_model
def test_every_tensor_of_the_real_model(real_model_path: Path) -> None:
    """In slices of rows, so that the embedding does not need gigabytes."""
    kinds = set()
    for tensor in read_gguf(real_model_path).tensors.values():
        kinds.add(tensor.type)
        matrix = RawTensor(tensor.name, tensor.type, (tensor.values // tensor.shape[-1], tensor.shape[-1]), tensor.data)
        rows = tensor.data.reshape(matrix.shape[0], -1)
        for first in range(0, len(rows), 16384):
            last = min(first + 16384, len(rows))
            ours = dequantize_rows(matrix, first, last)
            assert (ours.view(np.uint32) == reference(rows[first:last], tensor.type).view(np.uint32)).all(), tensor.name
    assert kinds == {WeightType.F32, WeightType.Q5_0, WeightType.Q8_0, WeightType.Q4_K, WeightType.Q6_K}
