"""Matrices as a GGUF file holds them, made of random bytes with float16 scales of a chosen kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Scales = Literal["usual", "extreme"]


@dataclass(frozen=True)
class Format:
    """One type of weights: GGUF's number, inputs and bytes of a block, where its float16 scales are."""

    name: str
    number: int
    inputs: int
    bytes: int
    scales: tuple[int, ...] = ()

    @property
    def quantized(self) -> bool:
        """True where activations are quantised too."""
        return self.inputs > 1


FORMATS = {
    f.name: f
    for f in (
        Format("F32", 0, 1, 4),
        Format("F16", 1, 1, 2),
        Format("BF16", 30, 1, 2),
        Format("Q4_0", 2, 32, 18, (0,)),
        Format("Q4_1", 3, 32, 20, (0, 2)),
        Format("Q5_0", 6, 32, 22, (0,)),
        Format("Q5_1", 7, 32, 24, (0, 2)),
        Format("Q8_0", 8, 32, 34, (0,)),
        Format("Q2_K", 10, 256, 84, (80, 82)),
        Format("Q3_K", 11, 256, 110, (108,)),
        Format("Q4_K", 12, 256, 144, (0, 2)),
        Format("Q5_K", 13, 256, 176, (0, 2)),
        Format("Q6_K", 14, 256, 210, (208,)),
        Format("IQ4_NL", 20, 32, 18, (0,)),
        Format("IQ4_XS", 23, 256, 136, (0,)),
    )
}

# Zero, subnormal, smallest normal, one, largest; and their negatives.
_EXTREME_F16 = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF], np.uint16)


def random_matrix(rng: np.random.Generator, fmt: Format, rows: int, cols: int, scales: Scales = "usual") -> Bytes:
    """The bytes of a matrix [rows, cols], as one array."""
    if not fmt.quantized:
        return _random_floats(rng, fmt, rows * cols, scales)
    blocks = rng.integers(0, 256, (rows * cols // fmt.inputs, fmt.bytes), np.uint8)
    blocks[rng.random(len(blocks)) < 0.05] = 0
    blocks[rng.random(len(blocks)) < 0.05] = 255
    for at in fmt.scales:
        if scales == "usual":
            d = rng.uniform(-0.05, 0.05, len(blocks)).astype(np.float16).view(np.uint16)
        else:
            d = rng.choice(_EXTREME_F16, len(blocks)) | (rng.integers(0, 2, len(blocks), np.uint16) << 15)
        blocks[:, at : at + 2] = d.astype("<u2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def _random_floats(rng: np.random.Generator, fmt: Format, n: int, scales: Scales) -> Bytes:
    values = rng.standard_normal(n).astype(np.float32)
    if scales == "extreme":
        values *= np.exp2(rng.integers(-140, 120, n)).astype(np.float32)
        values[rng.random(n) < 0.1] = -0.0
    if fmt.name == "F32":
        return values.view(np.uint8)
    if fmt.name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return np.clip(values, -65504, 65504).astype(np.float16).view(np.uint8)


def all_ones(fmt: Format, rows: int, cols: int, scale: float = 1.0) -> Bytes:
    """Every bit of every integer set, and each float16 scale the given one."""
    blocks = np.full((rows * cols // fmt.inputs, fmt.bytes), 255, np.uint8)
    for at in fmt.scales:
        blocks[:, at : at + 2] = np.array([scale], "<f2").view(np.uint8)
    return blocks.reshape(-1)
