"""The vocabulary of GGUF files: magic, metadata types, tensor type names.

Layout, all little endian: magic, u32 version, u64 tensors, u64 metadata entries; the entries (string key, u32 type,
value); the tensor table (string name, u32 dimensions, u64 each fastest first, u32 type, u64 offset); padding to the
alignment; the data, offsets counted from here. A string is a u64 byte length and UTF-8; an array is a u32 element
type, a u64 count and the elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cabochon.checkpoint.strings import StringArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"

MetadataValue: TypeAlias = "str | bool | int | float | NDArray[Any] | StringArray | tuple[MetadataValue, ...]"
"""Scalars as Python values; arrays of numbers and booleans as numpy arrays; arrays of arrays as tuples."""


class MetadataType(IntEnum):
    """Types of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


NUMBER_DTYPES: Mapping[MetadataType, np.dtype[Any]] = MappingProxyType(
    {
        MetadataType.UINT8: np.dtype("<u1"),
        MetadataType.INT8: np.dtype("<i1"),
        MetadataType.UINT16: np.dtype("<u2"),
        MetadataType.INT16: np.dtype("<i2"),
        MetadataType.UINT32: np.dtype("<u4"),
        MetadataType.INT32: np.dtype("<i4"),
        MetadataType.FLOAT32: np.dtype("<f4"),
        MetadataType.BOOL: np.dtype("?"),
        MetadataType.UINT64: np.dtype("<u8"),
        MetadataType.INT64: np.dtype("<i8"),
        MetadataType.FLOAT64: np.dtype("<f8"),
    }
)
"""How each type of fixed size is stored."""

TENSOR_TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {
        0: "F32",
        1: "F16",
        2: "Q4_0",
        3: "Q4_1",
        4: "Q4_2 (withdrawn)",
        5: "Q4_3 (withdrawn)",
        6: "Q5_0",
        7: "Q5_1",
        8: "Q8_0",
        9: "Q8_1",
        10: "Q2_K",
        11: "Q3_K",
        12: "Q4_K",
        13: "Q5_K",
        14: "Q6_K",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        20: "IQ4_NL",
        21: "IQ3_S",
        22: "IQ2_S",
        23: "IQ4_XS",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        29: "IQ1_M",
        30: "BF16",
        31: "Q4_0_4_4 (withdrawn)",
        32: "Q4_0_4_8 (withdrawn)",
        33: "Q4_0_8_8 (withdrawn)",
        34: "TQ1_0",
        35: "TQ2_0",
        36: "IQ4_NL_4_4 (withdrawn)",
        37: "IQ4_NL_4_8 (withdrawn)",
        38: "IQ4_NL_8_8 (withdrawn)",
        39: "MXFP4",
        40: "NVFP4",
        41: "Q1_0",
    }
)
"""Every tensor type the format has had, so that an unknown one can be called by its name."""


def printable(text: str, most: int = 100) -> str:
    """A name from a file, fit for a one-line message: escaped if it has odd characters, cut if it is long."""
    if not text.isprintable() or not text:
        text = ascii(text)
    return text if len(text) <= most else text[:most] + "..."
