"""Writing GGUF files, version 3 by default."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cabochon.checkpoint.gguf_format import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    MAGIC,
    NUMBER_DTYPES,
    MetadataType,
    MetadataValue,
)
from cabochon.checkpoint.strings import StringArray
from cabochon.types import RawTensor

WritableValue: TypeAlias = "MetadataValue | np.generic"
"""What can be written: a numpy scalar chooses the exact type."""

_TYPE_OF_DTYPE = {dtype: kind for kind, dtype in NUMBER_DTYPES.items()}


def write_gguf(
    path: str | Path,
    metadata: Mapping[str, WritableValue],
    tensors: Sequence[RawTensor],
    *,
    version: int = 3,
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Writes ``tensors`` in the given order, with ``metadata`` before them.

    A Python int becomes the first of UINT32, INT32, UINT64, INT64 that holds it, a float FLOAT32; a numpy scalar or
    array keeps its own type. ``general.alignment`` is added when ``alignment`` is not the default.
    """
    Path(path).write_bytes(gguf_bytes(metadata, tensors, version=version, alignment=alignment))


def gguf_bytes(
    metadata: Mapping[str, WritableValue],
    tensors: Sequence[RawTensor],
    *,
    version: int = 3,
    alignment: int = DEFAULT_ALIGNMENT,
) -> bytes:
    """The same file as bytes."""
    entries = dict(metadata)
    if alignment != DEFAULT_ALIGNMENT:
        entries.setdefault(ALIGNMENT_KEY, np.uint32(alignment))
    out = bytearray(MAGIC + struct.pack("<IQQ", version, len(tensors), len(entries)))
    for key, value in entries.items():
        out += _string(key) + _typed(value)
    offset = 0
    for tensor in tensors:
        dimensions = tensor.shape[::-1]
        out += _string(tensor.name)
        out += struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, tensor.type, offset)
        offset += _padded(tensor.data.nbytes, alignment)
    out += bytes(_padded(len(out), alignment) - len(out))
    for tensor in tensors:
        size = tensor.data.nbytes
        out += tensor.data.tobytes() + bytes(_padded(size, alignment) - size)
    return bytes(out)


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: WritableValue) -> bytes:
    kind = _type_of(value)
    return struct.pack("<I", kind) + _payload(kind, value)


def _type_of(value: WritableValue) -> MetadataType:
    if isinstance(value, str):
        return MetadataType.STRING
    if isinstance(value, tuple | StringArray | np.ndarray):
        return MetadataType.ARRAY
    if isinstance(value, np.generic):
        return _TYPE_OF_DTYPE[value.dtype.newbyteorder("<")]
    if isinstance(value, bool):
        return MetadataType.BOOL
    if isinstance(value, int):
        for kind in (MetadataType.UINT32, MetadataType.INT32, MetadataType.UINT64, MetadataType.INT64):
            limits = np.iinfo(NUMBER_DTYPES[kind])
            if limits.min <= value <= limits.max:
                return kind
        raise OverflowError(f"{value} does not fit 64 bits")
    return MetadataType.FLOAT32


def _payload(kind: MetadataType, value: WritableValue) -> bytes:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, np.ndarray):
        element = _TYPE_OF_DTYPE[value.dtype.newbyteorder("<")]
        raw = value.astype(NUMBER_DTYPES[element], copy=False).tobytes()
        return struct.pack("<IQ", element, value.size) + raw
    if isinstance(value, tuple | StringArray):
        kinds = {_type_of(item) for item in value} or {MetadataType.STRING}
        if len(kinds) != 1:
            raise TypeError("the elements of an array must have one type")
        element = kinds.pop()
        return struct.pack("<IQ", element, len(value)) + b"".join(_payload(element, item) for item in value)
    return np.array(value, dtype=NUMBER_DTYPES[kind]).tobytes()
