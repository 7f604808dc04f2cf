"""Damaged files: whatever bytes change, loading gives a model or a one-line error about the file, and soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cabochon.checkpoint.gguf import read_gguf
from cabochon.checkpoint.load import load_checkpoint
from cabochon.errors import CheckpointError
from cabochon.testing.tiny import tiny_config, tiny_tensors, tiny_weights, write_tiny_gguf
from cabochon.types import WeightType


def tiny_file(path: Path) -> bytes:
    """A whole model of one layer in few bytes: the vocabulary of its metadata is left out."""
    config = tiny_config(layers=1, hidden=32, ffn=32, heads=1, kv_heads=1, head_dim=32, vocab=338)
    absent = dict.fromkeys(("tokens", "scores", "token_type"))
    metadata = {f"tokenizer.ggml.{key}": value for key, value in absent.items()}
    file = write_tiny_gguf(path, config, tiny_weights(config), types=WeightType.Q8_0, metadata=metadata)
    assert len(load_checkpoint(file).tensors) == len(tiny_tensors(config, tiny_weights(config)))
    return file.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_file(tmp_path_factory.mktemp("whole") / "tiny.gguf")


@pytest.fixture(scope="module")
def header(whole: bytes) -> int:
    """Bytes before the data."""
    first = whole.index(b"token_embd.weight")
    last = whole.rindex(b"output_norm.weight")
    return max(first, last) + 64


def survives(path: Path, content: bytes, read: Callable[[Path], object] = load_checkpoint) -> None:
    path.write_bytes(content)
    message = ""
    try:
        read(path)
    except CheckpointError as error:
        message = str(error)
    assert message.isprintable()


interesting = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 10, 12, 13, 31, 32, 63, 64, 127, 128, 254, 255])
byte = st.one_of(interesting, st.integers(0, 255))
# Mostly one or two faults: more are found out by the first.
faults = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), byte), min_size=1, max_size=4)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(unhurried, max_examples=400)
@given(faults=faults)
def test_changed_bytes_of_the_header(
    faults: list[tuple[float, int]], whole: bytes, header: int, tmp_path: Path
) -> None:
    content = bytearray(whole)
    for place, value in faults:
        content[int(place * header)] = value
    survives(tmp_path / "changed.gguf", bytes(content))


@settings(unhurried, max_examples=100)
@given(faults=faults, length=st.floats(0, 1), by=st.integers(-9, 9))
def test_cut_moved_and_changed(
    faults: list[tuple[float, int]], length: float, by: int, whole: bytes, header: int, tmp_path: Path
) -> None:
    """Bytes put in or taken out shift everything behind them."""
    content = bytearray(whole[: int(length * len(whole))])
    for place, value in faults:
        at = int(place * min(header, len(content)))
        if by < 0:
            del content[at : at - by]
        else:
            content[at:at] = bytes([value]) * by
    survives(tmp_path / "moved.gguf", bytes(content))


def test_every_byte_of_the_header_inverted(whole: bytes, header: int, tmp_path: Path) -> None:
    for place in range(header):
        content = bytearray(whole)
        content[place] ^= 0xFF
        survives(tmp_path / "inverted.gguf", bytes(content))


@settings(unhurried, max_examples=100)
@given(content=st.binary(max_size=300), tensors=st.integers(0, 5), entries=st.integers(0, 5))
def test_noise_behind_a_sound_beginning(content: bytes, tensors: int, entries: int, tmp_path: Path) -> None:
    start = b"GGUF" + (3).to_bytes(4, "little") + tensors.to_bytes(8, "little") + entries.to_bytes(8, "little")
    survives(tmp_path / "noise.gguf", start + content, read_gguf)
