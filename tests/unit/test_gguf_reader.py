"""The GGUF reader: agrees with another reader, and refuses every kind of bad file quickly and by name."""

from __future__ import annotations

import os
import re
import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.checkpoint.gguf import MAX_ENTRIES, GGUFFile, read_gguf
from cabochon.checkpoint.gguf_format import MAGIC, NUMBER_DTYPES, TENSOR_TYPE_NAMES, MetadataType, MetadataValue
from cabochon.checkpoint.strings import StringArray
from cabochon.checkpoint.write import gguf_bytes, write_gguf
from cabochon.errors import CheckpointError, TensorError, UnsupportedError
from cabochon.testing.quantize import quantize
from cabochon.testing.tiny import MIXED_TYPES, tiny_config_k, write_tiny_gguf
from cabochon.types import Float32, RawTensor, WeightType


def values(*shape: int) -> Float32:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def small_tensors() -> list[RawTensor]:
    return [
        quantize("a", values(3, 64), WeightType.Q8_0),
        quantize("b", values(5), WeightType.F32),
        quantize("c", values(2, 3, 32), WeightType.Q5_0),
    ]


def small_metadata() -> dict[str, MetadataValue]:
    return {
        "general.architecture": "gemma3",
        "flag": True,
        "pi": 3.140625,
        "words": ("one", "", "drei", "四"),
        "numbers": np.arange(5, dtype=np.int16),
        "nested": (("a", "b"), np.array([1.5, 2.5]), (("c",), ())),
    }


def same(a: MetadataValue, b: MetadataValue) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, tuple | StringArray):
        return isinstance(b, tuple | StringArray) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and a == b


# What is written is what is read.


def numbers(kind: MetadataType) -> st.SearchStrategy[MetadataValue]:
    dtype = NUMBER_DTYPES[kind]
    raw = st.lists(st.integers(0, 255), max_size=5 * dtype.itemsize)
    if kind == MetadataType.BOOL:
        return st.lists(st.booleans(), max_size=5).map(lambda items: np.array(items, dtype))
    return raw.map(lambda items: np.frombuffer(bytes(items[: len(items) // dtype.itemsize * dtype.itemsize]), dtype))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
array = st.one_of(st.lists(text, max_size=4).map(tuple), *map(numbers, NUMBER_DTYPES))
nested = st.recursive(array, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=6)
scalar = st.one_of(text, st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(width=32, allow_nan=False))


def depth(value: object) -> int:
    if isinstance(value, tuple):
        return 1 + max(map(depth, value), default=0)
    return int(isinstance(value, np.ndarray))


@settings(max_examples=60, deadline=None)
@given(
    metadata=st.dictionaries(
        text.filter(bool), st.one_of(scalar, nested.filter(lambda value: depth(value) <= 4)), max_size=6
    ),
    version=st.sampled_from([2, 3]),
    alignment=st.sampled_from([8, 32, 64]),
)
def test_what_is_written_is_read(
    metadata: dict[str, MetadataValue], version: int, alignment: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    metadata.pop("general.alignment", None)
    path = tmp_path_factory.mktemp("gguf") / "file.gguf"
    write_gguf(path, metadata, small_tensors(), version=version, alignment=alignment)
    file = read_gguf(path)
    assert file.version == version
    assert file.metadata.get("general.alignment", 32) == alignment
    for key, value in metadata.items():
        assert same(file.metadata[key], value), key
    assert list(file.tensors) == ["a", "b", "c"]
    for tensor in small_tensors():
        read = file.tensors[tensor.name]
        assert (read.type, read.shape, read.data.tobytes()) == (tensor.type, tensor.shape, tensor.data.tobytes())


def test_numpy_scalars_keep_their_type(tmp_path: Path) -> None:
    write_gguf(tmp_path / "f", {"small": np.uint8(7), "exact": np.float64(0.1), "big": 2**40, "minus": -3}, [])
    reader = gguf.GGUFReader(tmp_path / "f")
    kinds = {key: reader.fields[key].types[0].name for key in ("small", "exact", "big", "minus")}
    assert kinds == {"small": "UINT8", "exact": "FLOAT64", "big": "UINT64", "minus": "INT32"}
    assert read_gguf(tmp_path / "f").metadata["exact"] == 0.1


def test_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config_k(), types=MIXED_TYPES)
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    assert list(ours.metadata) == [key for key in theirs.fields if not key.startswith("GGUF.")]
    for key, value in ours.metadata.items():
        expected = theirs.fields[key].contents()
        if isinstance(value, str | bool | int | float):
            assert value == expected
        else:
            assert list(value) == list(expected)
    assert_same_tensors(ours, theirs)


def test_every_weight_type_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    tensors = [quantize(kind.name, values(3, 512), kind) for kind in WeightType]
    write_gguf(tmp_path / "f.gguf", {}, tensors)
    assert_same_tensors(read_gguf(tmp_path / "f.gguf"), gguf.GGUFReader(tmp_path / "f.gguf"))


def assert_same_tensors(ours: GGUFFile, theirs: gguf.GGUFReader) -> None:
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        read = ours.tensors[tensor.name]
        assert read.type.name == tensor.tensor_type.name
        assert read.shape == tuple(int(n) for n in reversed(tensor.shape))
        assert read.data.tobytes() == tensor.data.tobytes()


def test_reads_files_of_the_gguf_package(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "f.gguf", "gemma3")
    writer.add_array("list", ["x", "y"])
    writer.add_array("flags", [True, False])
    writer.add_float64("wide", 1e300)
    writer.add_tensor("w", values(4, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(tmp_path / "f.gguf")
    assert same(file.metadata["list"], ("x", "y"))
    assert file.metadata["wide"] == 1e300
    assert same(file.metadata["flags"], np.array([True, False]))
    assert file.tensors["w"].data.tobytes() == values(4, 32).tobytes()


def test_data_is_read_only(tmp_path: Path) -> None:
    write_gguf(tmp_path / "f.gguf", {"list": np.arange(3)}, small_tensors())
    file = read_gguf(tmp_path / "f.gguf")
    listed = file.metadata["list"]
    assert isinstance(listed, np.ndarray)
    for values in (file.tensors["a"].data, listed):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


# Bad files. A file is put together from its parts so that each fault can be put in one place.


def string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def entry(key: bytes, kind: int, payload: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + payload


def array_of(kind: int, count: int, payload: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + payload


def row(name: bytes = b"w", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def assembled(
    entries: tuple[bytes, ...] = (),
    rows: tuple[bytes, ...] = (),
    *,
    data: int = 128,
    version: int = 3,
    counts: tuple[int | None, int | None] = (None, None),
) -> bytes:
    tensors = len(rows) if counts[0] is None else counts[0]
    metadata = len(entries) if counts[1] is None else counts[1]
    head = MAGIC + struct.pack("<IQQ", version, tensors, metadata) + b"".join(entries) + b"".join(rows)
    return head + bytes(-len(head) % 32 + data)


HUGE = 2**63 + 7
NEST = array_of(9, 1, array_of(9, 1, array_of(9, 1, array_of(9, 1, array_of(4, 0)))))

BAD_FILES: dict[str, tuple[bytes, type[CheckpointError], str]] = {
    "empty": (b"", CheckpointError, "only 0 bytes"),
    "short": (b"GGUF", CheckpointError, "only 4 bytes"),
    "another format": (b"PK\x03\x04" + bytes(60), CheckpointError, "not a GGUF file"),
    "version 0": (assembled(version=0), UnsupportedError, "version 0"),
    "version 1": (assembled(version=1), UnsupportedError, "version 1"),
    "version 4": (assembled(version=4), UnsupportedError, "version 4"),
    "big-endian": (assembled(version=0x03000000), UnsupportedError, "big-endian"),
    "tensor count": (assembled(counts=(HUGE, 0)), CheckpointError, f"{HUGE} tensors; more than 65536 is"),
    "tensor count below the limit": (assembled(counts=(MAX_ENTRIES, 0)), CheckpointError, "more than fit"),
    "tensor count off by one": (assembled(rows=(row(),), counts=(2, 0)), CheckpointError, "name is empty"),
    "metadata count": (assembled(counts=(0, HUGE)), CheckpointError, "more than 65536 is not plausible"),
    "metadata count below the limit": (assembled(counts=(0, MAX_ENTRIES)), CheckpointError, "more than fit"),
    "key length": (assembled((struct.pack("<Q", HUGE),), counts=(0, 1)), CheckpointError, "metadata key of"),
    "key beyond the end": (assembled((struct.pack("<Q", 9999),), counts=(0, 1)), CheckpointError, "file ends"),
    "key not UTF-8": (assembled((entry(b"\xff\xfe", 7, b"\0"),)), CheckpointError, "not UTF-8"),
    "key empty": (assembled((entry(b"", 7, b"\0"),)), CheckpointError, "key is empty"),
    "key twice": (assembled((entry(b"k", 7, b"\0"), entry(b"k", 7, b"\1"))), CheckpointError, "k occurs twice"),
    "metadata type": (assembled((entry(b"k", 13, bytes(8)),)), CheckpointError, "k has type 13"),
    "boolean": (assembled((entry(b"k", 7, b"\2"),)), CheckpointError, "k has a boolean"),
    "booleans": (assembled((entry(b"k", 9, array_of(7, 3, b"\0\1\7")),)), CheckpointError, "k has a boolean"),
    "string length": (assembled((entry(b"k", 8, struct.pack("<Q", HUGE)),)), CheckpointError, "within metadata k"),
    "string not UTF-8": (assembled((entry(b"k", 8, string(b"\xc3")),)), CheckpointError, "k is not UTF-8"),
    "element type": (assembled((entry(b"k", 9, array_of(77, 1)),)), CheckpointError, "k has type 77"),
    "element count": (assembled((entry(b"k", 9, array_of(4, HUGE)),)), CheckpointError, f"{HUGE} elements"),
    "element count, wrapping": (assembled((entry(b"k", 9, array_of(4, 2**62)),)), CheckpointError, "elements"),
    "element count, near": (assembled((entry(b"k", 9, array_of(10, 100)),)), CheckpointError, "more than fit"),
    "string count": (assembled((entry(b"k", 9, array_of(8, HUGE)),)), CheckpointError, f"{HUGE} elements"),
    "string count, near": (assembled((entry(b"k", 9, array_of(8, 18)),)), CheckpointError, "more than fit"),
    "strings beyond the end": (
        assembled((entry(b"k", 9, array_of(8, 2, string(b"x") + struct.pack("<Q", 500))),)),
        CheckpointError,
        "file ends within metadata k",
    ),
    "strings not UTF-8": (assembled((entry(b"k", 9, array_of(8, 1, string(b"\x80"))),)), CheckpointError, "not UTF-8"),
    "array count": (assembled((entry(b"k", 9, array_of(9, HUGE)),)), CheckpointError, f"{HUGE} elements"),
    "nested too deep": (assembled((entry(b"k", 9, NEST),)), CheckpointError, "k nests arrays"),
    "alignment 0": (assembled((entry(b"general.alignment", 4, bytes(4)),)), CheckpointError, "alignment is 0"),
    "alignment 24": (
        assembled((entry(b"general.alignment", 4, struct.pack("<I", 24)),)),
        CheckpointError,
        "alignment is 24",
    ),
    "alignment 4": (
        assembled((entry(b"general.alignment", 4, struct.pack("<I", 4)),)),
        CheckpointError,
        "alignment is 4",
    ),
    "alignment 2 to the 31": (
        assembled((entry(b"general.alignment", 4, struct.pack("<I", 2**31)),)),
        CheckpointError,
        "alignment is 2147483648",
    ),
    "alignment as text": (
        assembled((entry(b"general.alignment", 8, string(b"32")),)),
        CheckpointError,
        "alignment is 32;",
    ),
    "no dimensions": (assembled(rows=(row(dims=()),)), TensorError, "w has 0 dimensions"),
    "five dimensions": (assembled(rows=(row(dims=(1, 1, 1, 1, 1)),)), TensorError, "w has 5 dimensions"),
    "2 to the 32 dimensions": (
        assembled(rows=(string(b"w") + struct.pack("<I", 2**32 - 1),), counts=(1, 0)),
        TensorError,
        "dimensions",
    ),
    "dimension 0": (assembled(rows=(row(dims=(32, 0)),)), TensorError, "w has a dimension of 0"),
    "overflow of the product": (
        assembled(rows=(row(dims=(2**32, 2**32, 2**32, 2**32)),)),
        TensorError,
        "w ends beyond",
    ),
    "product that wraps to fit": (assembled(rows=(row(dims=(2**62, 4)),)), TensorError, "w ends beyond"),
    "rows not whole blocks": (assembled(rows=(row(dims=(33, 2), kind=8),)), TensorError, "w has rows of 33"),
    "rows of half a K block": (assembled(rows=(row(dims=(128, 2), kind=12),)), TensorError, "blocks of Q4_K"),
    "withdrawn type": (assembled(rows=(row(kind=31),)), UnsupportedError, "w has type Q4_0_4_4"),
    "type without a name": (assembled(rows=(row(kind=99),)), UnsupportedError, "w has type 99"),
    "offset not aligned": (assembled(rows=(row(offset=8),)), TensorError, "w is not aligned"),
    "offset beyond the end": (assembled(rows=(row(offset=4096),)), TensorError, "w ends beyond"),
    "offset that wraps": (assembled(rows=(row(offset=2**64 - 32),)), TensorError, "w ends beyond"),
    "size beyond the end": (assembled(rows=(row(dims=(33,)),)), TensorError, "w ends beyond"),
    "no data": (assembled(rows=(row(),), data=0), TensorError, "w ends beyond"),
    "overlap": (
        assembled(rows=(row(b"v", (16,)), row(b"w", (16,), offset=32)), data=256),
        TensorError,
        "w overlaps v",
    ),
    "same place": (assembled(rows=(row(b"v", (8,)), row(b"w", (8,)))), TensorError, "w overlaps v"),
    "tensor twice": (assembled(rows=(row(dims=(8,)), row(dims=(8,), offset=32))), TensorError, "w occurs twice"),
    "tensor's name not UTF-8": (assembled(rows=(row(b"\xe2\x28"),)), CheckpointError, "name is not UTF-8"),
    "tensor's name length": (
        assembled(rows=(struct.pack("<Q", HUGE),), counts=(1, 0)),
        CheckpointError,
        "tensor's name of",
    ),
}


def test_arrays_within_arrays_are_limited_in_all(tmp_path: Path) -> None:
    half = MAX_ENTRIES // 2
    empty = array_of(9, half, array_of(4, 0) * half)
    path = tmp_path / "model.gguf"
    path.write_bytes(assembled((entry(b"a", 9, empty), entry(b"b", 9, empty))))
    assert len(read_gguf(path).metadata) == 2
    path.write_bytes(assembled((entry(b"a", 9, empty), entry(b"b", 9, empty), entry(b"c", 9, array_of(9, 1)))))
    with pytest.raises(CheckpointError, match="metadata c: more than 65536 arrays within arrays"):
        read_gguf(path)


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file(kind: str, tmp_path: Path) -> None:
    content, error, message = BAD_FILES[kind]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message) as caught:
            read_gguf(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_parts_of_bad_files_make_a_good_one(tmp_path: Path) -> None:
    entries = (entry(b"k", 9, array_of(9, 1, array_of(9, 1, array_of(9, 1, array_of(4, 0))))),)
    (tmp_path / "f").write_bytes(assembled(entries, (row(b"v", (16,)), row(b"w", (16,), offset=64)), data=128))
    assert set(read_gguf(tmp_path / "f").tensors) == {"v", "w"}


@pytest.mark.parametrize("number", [n for n in TENSOR_TYPE_NAMES if n not in list(WeightType)])
def test_unsupported_types_are_named(number: int, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(assembled(rows=(row(b"blk.0.w", (256, 2), kind=number),), data=4096))
    with pytest.raises(UnsupportedError, match=rf"blk\.0\.w has type {re.escape(TENSOR_TYPE_NAMES[number])}"):
        read_gguf(tmp_path / "f")


def test_type_names_are_the_formats_own() -> None:
    for kind in gguf.GGMLQuantizationType:
        assert TENSOR_TYPE_NAMES[kind.value] == kind.name


def test_names_in_messages_are_one_printable_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(assembled(rows=(row(b"evil\n\x1b[31m" + b"x" * 500, dims=(0,)),)))
    with pytest.raises(TensorError) as caught:
        read_gguf(tmp_path / "f")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_truncated_at_every_length(tmp_path: Path) -> None:
    content = gguf_bytes(small_metadata(), small_tensors())
    path = tmp_path / "cut.gguf"
    path.write_bytes(content)
    file = read_gguf(path)
    # The last tensor's padding is not part of it.
    needed = len(content) - (-file.tensors["c"].data.nbytes % 32)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        if length < needed:
            with pytest.raises(CheckpointError):
                read_gguf(path)
        else:
            assert set(read_gguf(path).tensors) == {"a", "b", "c"}


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        read_gguf(tmp_path / "nothing.gguf")


def test_directory_and_pipe_are_not_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match="not a regular file"):
            read_gguf(path)


def test_path_with_a_null_byte() -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_gguf("a\0b")
