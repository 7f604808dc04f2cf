"""Reading GGUF files: strict, and safe with files of unknown origin.

Every count, length and offset is checked against the size of the file before it is used, numbers of things against
fixed limits, so that a damaged or hostile file gives a ``CheckpointError`` quickly and with little memory. Tensor data
is mapped, not read: opening costs what the header costs. The layout is described in ``gguf_format.py``.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from cabochon.checkpoint.gguf_format import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    MAGIC,
    NUMBER_DTYPES,
    TENSOR_TYPE_NAMES,
    VERSIONS,
    MetadataType,
    MetadataValue,
    printable,
)
from cabochon.checkpoint.mapped import MappedFile, map_file
from cabochon.checkpoint.strings import PREFIX, StringArray
from cabochon.errors import CheckpointError, TensorError, UnsupportedError
from cabochon.types import Bytes, RawTensor, WeightType

MAX_HEADER = 128 << 20
"""Bytes of metadata and tensor table; a vocabulary of 262,144 tokens takes 6.5 MB."""

MAX_ENTRIES = 1 << 16
"""Metadata entries, tensors, and arrays within arrays, all of a file together."""

MAX_STRINGS = 1 << 22
"""Elements of an array of strings."""

MAX_NAME = 65535
"""Bytes of a key or a tensor's name."""

MAX_DEPTH = 4
"""Arrays within arrays."""

_SHORTEST_FILE = 24
_SHORTEST_ENTRY = 13
_SHORTEST_TENSOR = 32
_SUPPORTED = frozenset(int(kind) for kind in WeightType)
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """An open GGUF file. Tensor data stays mapped as long as this or one of its tensors lives."""

    path: Path
    version: int
    size: int
    """Bytes."""
    metadata: Mapping[str, MetadataValue]
    """In the file's order."""
    tensors: Mapping[str, RawTensor]
    """By the file's names, in its order."""
    mapped: MappedFile = field(repr=False, compare=False)
    """What holds the tensors' data."""


def read_gguf(path: str | Path) -> GGUFFile:
    """Opens the file at ``path``.

    Raises ``CheckpointError`` if it is missing, not a regular file, not GGUF, truncated or contradicts itself;
    ``TensorError`` where one tensor is at fault; ``UnsupportedError`` for versions other than 2 and 3, big-endian
    files and tensor types without a decoder.
    """
    path = Path(path)
    mapped = map_file(path, _SHORTEST_FILE, "GGUF")
    content = mapped.content
    header = _Header(path, content)
    version = header.version()
    tensor_count = header.count("tensors", header.u64(), MAX_ENTRIES, _SHORTEST_TENSOR)
    entry_count = header.count("metadata entries", header.u64(), MAX_ENTRIES, _SHORTEST_ENTRY)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(entry_count):
        key = header.name("a metadata key")
        if key in metadata:
            raise CheckpointError(f"{path}: metadata key {printable(key)} occurs twice")
        metadata[key] = header.value(key, header.u32())
    alignment = _alignment(path, metadata)
    tensors = _tensors(path, content, header, tensor_count, alignment)
    return GGUFFile(path, version, len(content), MappingProxyType(metadata), MappingProxyType(tensors), mapped)


class _Header:
    """A position in the file that moves forward over checked values."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.position = 0
        self._buffer = buffer
        self._limit = min(len(buffer), MAX_HEADER)
        self._inner_arrays = 0

    def _take(self, size: int, what: str) -> int:
        """Moves over ``size`` bytes and returns where they start."""
        start = self.position
        if size > self._limit - start:
            where = "the file ends" if self._limit == len(self._buffer) else f"the header exceeds {MAX_HEADER} bytes"
            raise CheckpointError(f"{self.path}: {where} within {what}; it is damaged or truncated")
        self.position = start + size
        return start

    def u32(self) -> int:
        """A 32-bit count or type."""
        start = self._take(4, "the header")
        return int(_U32.unpack_from(self._buffer, start)[0])

    def u64(self) -> int:
        """A 64-bit count, size or offset."""
        start = self._take(8, "the header")
        return int(_U64.unpack_from(self._buffer, start)[0])

    def version(self) -> int:
        """The magic, then the version."""
        start = self._take(4, "the magic")
        magic = bytes(self._buffer[start : start + 4])
        if magic != MAGIC:
            raise CheckpointError(f"{self.path}: not a GGUF file, it begins with {magic!r}")
        version = self.u32()
        if version in VERSIONS:
            return version
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise UnsupportedError(f"{self.path}: a big-endian GGUF file; only little-endian ones are supported")
        raise UnsupportedError(f"{self.path}: GGUF version {version}; only 2 and 3 are supported")

    def count(self, what: str, number: int, most: int, shortest: int) -> int:
        """``number`` if so many things, ``shortest`` bytes at least each, can be in the rest of the header."""
        if number > most:
            raise CheckpointError(f"{self.path}: claims {number} {what}; more than {most} is not plausible")
        if number * shortest > self._limit - self.position:
            raise CheckpointError(f"{self.path}: claims {number} {what}, more than fit in the file; it is damaged")
        return number

    def name(self, what: str) -> str:
        """A key or a tensor's name."""
        length = self.u64()
        if length > MAX_NAME:
            raise CheckpointError(f"{self.path}: {what} of {length} bytes; more than {MAX_NAME} is not plausible")
        if not length:
            raise CheckpointError(f"{self.path}: {what} is empty; the file is damaged")
        return self._text(length, what)

    def _text(self, length: int, what: str) -> str:
        start = self._take(length, what)
        try:
            return self._buffer[start : start + length].decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{self.path}: {what} is not UTF-8") from None

    def value(self, key: str, kind: int, depth: int = 0) -> MetadataValue:
        """A metadata value of type ``kind``, belonging to ``key``."""
        what = f"metadata {printable(key)}"
        if kind == MetadataType.STRING:
            return self._text(self.u64(), what)
        if kind == MetadataType.ARRAY:
            return self._array(key, depth)
        dtype = self._dtype(kind, what)
        start = self._take(dtype.itemsize, what)
        number = np.frombuffer(self._buffer, dtype, 1, start)
        self._check_booleans(number, what)
        scalar: bool | int | float = number.tolist()[0]
        return scalar

    def _dtype(self, kind: int, what: str) -> np.dtype[np.generic]:
        try:
            return NUMBER_DTYPES[MetadataType(kind)]
        except ValueError:
            raise CheckpointError(f"{self.path}: {what} has type {kind}, which GGUF does not define") from None

    def _check_booleans(self, values: np.ndarray[tuple[int], np.dtype[np.generic]], what: str) -> None:
        if values.dtype == np.bool_ and values.size and values.view(np.uint8).max() > 1:
            raise CheckpointError(f"{self.path}: {what} has a boolean that is neither 0 nor 1")

    def _array(self, key: str, depth: int) -> MetadataValue:
        what = f"metadata {printable(key)}"
        kind, number = self.u32(), self.u64()
        elements = f"elements in {what}"
        if kind == MetadataType.STRING:
            return self._strings(self.count(elements, number, MAX_STRINGS, PREFIX), what)
        if kind == MetadataType.ARRAY:
            if depth + 1 >= MAX_DEPTH:
                raise CheckpointError(f"{self.path}: {what} nests arrays more than {MAX_DEPTH} deep")
            number = self.count(elements, number, MAX_ENTRIES, 12)
            self._inner_arrays += number
            if self._inner_arrays > MAX_ENTRIES:
                raise CheckpointError(
                    f"{self.path}: {what}: more than {MAX_ENTRIES} arrays within arrays in one file is not plausible"
                )
            return tuple(self.value(key, MetadataType.ARRAY, depth + 1) for _ in range(number))
        dtype = self._dtype(kind, what)
        number = self.count(elements, number, MAX_HEADER, dtype.itemsize)
        start = self._take(number * dtype.itemsize, what)
        # A copy: aligned, and independent of the mapping.
        values = np.frombuffer(self._buffer, dtype, number, start).copy() if number else np.empty(0, dtype)
        self._check_booleans(values, what)
        values.setflags(write=False)
        return values

    def _strings(self, number: int, what: str) -> StringArray:
        rest = np.frombuffer(self._buffer, np.uint8, self._limit - self.position, self.position)
        strings = StringArray.read(rest, number)
        self.position += strings.nbytes
        if len(strings) < number:
            # The next one is at fault, and has the same faults as a string that is alone.
            self._text(self.u64(), what)
        return strings


def _alignment(path: Path, metadata: Mapping[str, MetadataValue]) -> int:
    alignment = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    if isinstance(alignment, int) and 8 <= alignment <= 1 << 20 and not alignment & (alignment - 1):
        return alignment
    shown = printable(str(alignment))
    raise CheckpointError(f"{path}: {ALIGNMENT_KEY} is {shown}; it must be a power of two from 8 to 1048576")


@dataclass(frozen=True, slots=True)
class _TableEntry:
    """One row of the tensor table; ``size`` in bytes, ``offset`` from the start of the data."""

    name: str
    type: WeightType
    shape: tuple[int, ...]
    size: int
    offset: int


def _tensors(path: Path, buffer: mmap.mmap, header: _Header, count: int, alignment: int) -> dict[str, RawTensor]:
    table: dict[str, _TableEntry] = {}
    for _ in range(count):
        entry = _table_entry(path, header)
        if entry.name in table:
            raise TensorError(f"{path}: tensor {printable(entry.name)} occurs twice")
        if entry.offset % alignment:
            raise TensorError(f"{path}: tensor {printable(entry.name)} is not aligned to {alignment} bytes")
        table[entry.name] = entry
    data_start = -(-header.position // alignment) * alignment
    _check_places(path, table, len(buffer) - data_start)
    content: Bytes = np.frombuffer(buffer, dtype=np.uint8)
    tensors = {}
    for entry in table.values():
        start = data_start + entry.offset
        tensors[entry.name] = RawTensor(entry.name, entry.type, entry.shape, content[start : start + entry.size])
    return tensors


def _table_entry(path: Path, header: _Header) -> _TableEntry:
    name = header.name("a tensor's name")
    what = f"{path}: tensor {printable(name)}"
    dimensions = header.u32()
    if not 1 <= dimensions <= 4:
        raise TensorError(f"{what} has {dimensions} dimensions; 1 to 4 are possible")
    shape = tuple(header.u64() for _ in range(dimensions))[::-1]
    number = header.u32()
    offset = header.u64()
    if number not in _SUPPORTED:
        kind_name = TENSOR_TYPE_NAMES.get(number, str(number))
        supported = ", ".join(kind.name for kind in WeightType)
        raise UnsupportedError(f"{what} has type {kind_name}, which is not supported (supported: {supported})")
    kind = WeightType(number)
    if 0 in shape:
        raise TensorError(f"{what} has a dimension of 0")
    if shape[-1] % kind.block_values:
        raise TensorError(f"{what} has rows of {shape[-1]} values, not whole blocks of {kind.name}")
    # Python integers do not overflow; the product is compared with the file's size next.
    values = 1
    for dimension in shape:
        values *= dimension
    return _TableEntry(name, kind, shape, values // kind.block_values * kind.block_bytes, offset)


def _check_places(path: Path, table: Mapping[str, _TableEntry], data_size: int) -> None:
    """Each tensor lies within the data, and none on another."""
    end, before = 0, ""
    for entry in sorted(table.values(), key=lambda entry: entry.offset):
        name = printable(entry.name)
        if entry.offset + entry.size > data_size:
            raise TensorError(f"{path}: tensor {name} ends beyond the file; it is damaged or truncated")
        if entry.offset < end:
            raise TensorError(f"{path}: tensor {name} overlaps {before}")
        end, before = entry.offset + entry.size, name
