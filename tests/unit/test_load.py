"""Strict loading: every tensor the model needs, of its shape and type, and no other; else an error names it."""

from __future__ import annotations

import mmap
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.gguf import read_gguf
from cabochon.checkpoint.load import Checkpoint, load_checkpoint
from cabochon.checkpoint.names import gguf_name
from cabochon.checkpoint.strings import StringArray
from cabochon.checkpoint.write import write_gguf
from cabochon.errors import CheckpointError, TensorError, UnsupportedError
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import tensor_specs
from cabochon.testing.quantize import quantize
from cabochon.testing.tiny import (
    MIXED_TYPES,
    tiny_config,
    tiny_config_k,
    tiny_metadata,
    tiny_tensors,
    tiny_weights,
    write_tiny_gguf,
)
from cabochon.testing.vocabulary import tiny_vocabulary
from cabochon.types import RawTensor, WeightType

CONFIG = tiny_config(layers=2, hidden=64, ffn=96, pattern=2)


def loaded(path: Path, tensors: dict[str, RawTensor], config: GemmaConfig = CONFIG) -> Checkpoint:
    """What is loaded from a file with ``tensors`` (by GGUF's names) and metadata for ``config``."""
    named = [replace(tensor, name=name) for name, tensor in tensors.items()]
    write_gguf(path / "t.gguf", tiny_metadata(config, tiny_vocabulary(config.vocab)), named)
    return load_checkpoint(path / "t.gguf")


def sound(config: GemmaConfig = CONFIG) -> dict[str, RawTensor]:
    return {gguf_name(name): tensor for name, tensor in tiny_tensors(config, tiny_weights(config)).items()}


@pytest.mark.parametrize(
    ("config", "types"),
    [
        (tiny_config(), WeightType.F32),
        (tiny_config(tied_head=False), WeightType.Q8_0),
        (tiny_config(), {"query": WeightType.Q5_0, "down": WeightType.BF16, "up": WeightType.F16}),
        (tiny_config_k(), MIXED_TYPES),
    ],
)
def test_loads_every_tensor_unchanged(
    config: GemmaConfig, types: WeightType | dict[str, WeightType], tmp_path: Path
) -> None:
    weights = tiny_weights(config, seed=1)
    checkpoint = load_checkpoint(write_tiny_gguf(tmp_path / "t.gguf", config, weights, types=types))
    expected = tiny_tensors(config, weights, types)
    assert checkpoint.config == config
    assert list(checkpoint.tensors) == list(expected) == [spec.name for spec in tensor_specs(config)]
    for name, tensor in checkpoint.tensors.items():
        assert (tensor.name, tensor.type, tensor.shape) == (name, expected[name].type, expected[name].shape)
        assert tensor.data.tobytes() == expected[name].data.tobytes()


def test_norms_are_the_plain_gain(tmp_path: Path) -> None:
    """GGUF's Gemma 3 gains have the one added already."""
    weights = tiny_weights(CONFIG)
    checkpoint = load_checkpoint(write_tiny_gguf(tmp_path / "t.gguf", CONFIG, weights))
    np.testing.assert_array_equal(dequantize(checkpoint.tensors["final_norm"]), weights["final_norm"])


@pytest.mark.real_model
def test_the_real_model(real_model_path: Path) -> None:
    checkpoint = load_checkpoint(real_model_path)
    assert len(checkpoint.tensors) == 236
    assert checkpoint.name == "Gemma 3 270m"
    # A gain of this tensor that is exactly 0 was -1 before the one was added.
    assert dequantize(checkpoint.tensors["layers.0.attention_post_norm"]).min() == 0


def test_head_of_its_own_is_used(tmp_path: Path) -> None:
    tied, untied = tiny_config(), tiny_config(tied_head=False)
    assert "head" not in load_checkpoint(write_tiny_gguf(tmp_path / "tied.gguf", tied)).tensors
    weights = tiny_weights(untied)
    head = load_checkpoint(write_tiny_gguf(tmp_path / "untied.gguf", untied, weights)).tensors["head"]
    assert head.data.tobytes() == weights["head"].tobytes() != weights["embedding"].tobytes()


@pytest.mark.parametrize("name", sorted(sound()))
def test_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    tensors = sound()
    del tensors[name]
    with pytest.raises(TensorError, match=f"tensor {name} is missing"):
        loaded(tmp_path, tensors)


@pytest.mark.parametrize("name", sorted(sound()))
def test_misshapen_tensor_is_named(name: str, tmp_path: Path) -> None:
    tensors = sound()
    shape = tensors[name].shape
    wrong = (*shape[:-1], shape[-1] + 32)
    tensors[name] = quantize(name, np.zeros(wrong, np.float32), WeightType.F32)
    with pytest.raises(TensorError, match=rf"tensor {name if name != 'token_embd.weight' else 'token_embd'}"):
        loaded(tmp_path, tensors)


def test_transposed_tensor_is_named(tmp_path: Path) -> None:
    tensors = sound()
    tensors["blk.1.ffn_up.weight"] = quantize("x", np.zeros((64, 96), np.float32), WeightType.F32)
    message = r"tensor blk\.1\.ffn_up\.weight has shape \(64, 96\); the metadata asks for \(96, 64\)"
    with pytest.raises(TensorError, match=message):
        loaded(tmp_path, tensors)


def test_matrix_with_a_dimension_too_many(tmp_path: Path) -> None:
    for name in ("token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"):
        tensors = sound()
        tensors[name] = replace(tensors[name], shape=(1, *tensors[name].shape))
        with pytest.raises(TensorError, match=f"tensor {name} has"):
            loaded(tmp_path, tensors)


@pytest.mark.parametrize("extra", ["blk.2.attn_q.weight", "blk.0.attn_q.bias", "v.patch_embd.weight", "odd\nname"])
def test_left_over_tensor_is_named(extra: str, tmp_path: Path) -> None:
    tensors = sound() | {extra: quantize("x", np.zeros(32, np.float32), WeightType.F32)}
    with pytest.raises(
        TensorError, match=f"{extra.encode('unicode_escape').decode()!s}.* is not part".replace("\\", ".*")
    ):
        loaded(tmp_path, tensors)


def test_rope_factors_that_change_nothing_are_left_out(tmp_path: Path) -> None:
    ones = np.ones(16, np.float32)
    tensors = sound() | {"rope_freqs.weight": quantize("x", ones, WeightType.F32)}
    assert list(loaded(tmp_path, tensors).tensors) == [spec.name for spec in tensor_specs(CONFIG)]
    ones[7] = 2
    tensors["rope_freqs.weight"] = quantize("x", ones, WeightType.F32)
    with pytest.raises(UnsupportedError, match=r"rope_freqs\.weight rescales"):
        loaded(tmp_path, tensors)


def test_norm_of_another_type_is_named(tmp_path: Path) -> None:
    tensors = sound()
    tensors["blk.0.ffn_norm.weight"] = quantize("x", np.ones(64, np.float32), WeightType.Q8_0)
    with pytest.raises(TensorError, match=r"blk\.0\.ffn_norm\.weight has type Q8_0"):
        loaded(tmp_path, tensors)


@pytest.mark.parametrize(
    ("key", "value", "tensor"),
    [
        ("block_count", 3, "blk.2.attn_norm.weight is missing"),
        ("block_count", 1, "blk.1.attn_norm.weight is not part"),
        ("embedding_length", 128, r"token_embd.weight has shape \(367, 64\)"),
        ("feed_forward_length", 97, "blk.0.ffn_gate.weight has shape"),
        ("attention.head_count", 2, "blk.0.attn_q.weight has shape"),
        ("attention.head_count_kv", 1, "blk.0.attn_k.weight has shape"),
    ],
)
def test_metadata_that_contradicts_a_tensor(key: str, value: int, tensor: str, tmp_path: Path) -> None:
    changes = {f"gemma3.{key}": value, "gemma3.attention.sliding_window_pattern": 2}
    path = write_tiny_gguf(tmp_path / "t.gguf", CONFIG, metadata=changes)
    with pytest.raises(TensorError, match=tensor):
        load_checkpoint(path)


def test_heads_that_agree_with_every_shape_but_the_norms(tmp_path: Path) -> None:
    """Twice the heads of half the size fit all matrices; the norm of queries tells."""
    keys = {"attention.key_length": 16, "attention.value_length": 16, "attention.head_count": 8}
    changes = {f"gemma3.{key}": value for key, value in keys.items()} | {"gemma3.attention.head_count_kv": 4}
    path = write_tiny_gguf(tmp_path / "t.gguf", CONFIG, metadata=changes)
    with pytest.raises(TensorError, match=r"blk\.0\.attn_q_norm\.weight has shape \(32,\)"):
        load_checkpoint(path)


def test_tokenizer_metadata_source_and_name(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "some.gguf", CONFIG)
    checkpoint = load_checkpoint(str(path))
    assert checkpoint.source == path
    assert checkpoint.name == "Tiny Gemma"
    tokens = checkpoint.tokenizer["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray)
    assert tuple(tokens) == tiny_vocabulary(367).tokens
    assert all(key.startswith("tokenizer.") for key in checkpoint.tokenizer)
    unnamed = write_tiny_gguf(tmp_path / "some.gguf", CONFIG, metadata={"general.name": None})
    assert load_checkpoint(unnamed).name == "some"


def test_released_tensors_leave_memory_and_stay_readable(tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)
    checkpoint = load_checkpoint(write_tiny_gguf(tmp_path / "t.gguf", CONFIG, weights))
    embedding = checkpoint.tensors["embedding"]
    whole = embedding.data.tobytes()
    held = resident(checkpoint.source)
    checkpoint.mapped.release(embedding)
    # All but the pages it shares with its neighbours.
    assert held - resident(checkpoint.source) >= (len(whole) - 2 * mmap.PAGESIZE) / 1024
    assert embedding.data.tobytes() == whole == weights["embedding"].tobytes()


def test_release_of_any_tensor_is_harmless(tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)
    checkpoint = load_checkpoint(write_tiny_gguf(tmp_path / "t.gguf", CONFIG, weights))
    for name, tensor in checkpoint.tensors.items():
        checkpoint.mapped.release(tensor)
        assert tensor.data.tobytes() == weights[name].tobytes()
    checkpoint.mapped.release(quantize("elsewhere", np.zeros(99999, np.float32), WeightType.F32))


def resident(path: Path) -> int:
    """KiB of the file's mapping that are in memory."""
    sections = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    mine = [section for section in sections if str(path) in section]
    return sum(int(kib) for section in mine for kib in re.findall(r"^Rss: +(\d+) kB", section, re.MULTILINE))


# Where a model is looked for.


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or directory; the only model known by name is demo"):
        load_checkpoint(tmp_path / "nothing.gguf")


def test_directory_with_one_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a directory without a model"):
        load_checkpoint(tmp_path)
    path = write_tiny_gguf(tmp_path / "b.gguf", CONFIG)
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "c.gguf").mkdir()
    assert load_checkpoint(tmp_path).source == path
    shutil.copy(path, tmp_path / "a.gguf")
    with pytest.raises(CheckpointError, match=r"a directory with 2 models; name one of them \(a\.gguf, b\.gguf\)"):
        load_checkpoint(tmp_path)


def test_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_text("This is a text, not a model, and long enough to be one.")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        load_checkpoint(tmp_path / "x.bin")
    with pytest.raises(CheckpointError, match=r"'a\\x00b': no such file"):
        load_checkpoint("a\0b")


def test_names_of_tensors() -> None:
    assert gguf_name("layers.17.attention_post_norm") == "blk.17.post_attention_norm.weight"
    for wrong in ("layers.x.query", "layers.1.nothing", "blk.1.query", "layers.1", ""):
        with pytest.raises(TensorError, match="GGUF has no name"):
            gguf_name(wrong)


def test_an_empty_file_of_tensors(tmp_path: Path) -> None:
    write_gguf(tmp_path / "t.gguf", tiny_metadata(CONFIG, tiny_vocabulary(367)), [])
    assert not read_gguf(tmp_path / "t.gguf").tensors
    with pytest.raises(TensorError, match=r"token_embd\.weight is missing"):
        load_checkpoint(tmp_path / "t.gguf")
