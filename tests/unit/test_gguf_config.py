"""The config a GGUF file describes, and what is done about keys that are missing, odd or unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from cabochon.checkpoint.gguf import read_gguf
from cabochon.checkpoint.gguf_config import config_from_gguf
from cabochon.checkpoint.write import WritableValue
from cabochon.errors import CheckpointError, TensorError, UnsupportedError
from cabochon.model.config import GemmaConfig
from cabochon.ops.protocol import Rope
from cabochon.testing.tiny import tiny_config, tiny_config_k, write_tiny_gguf
from cabochon.testing.vocabulary import CONTROL, NORMAL, tiny_vocabulary
from cabochon.types import WeightType

SMALL = tiny_config(layers=2, pattern=2, hidden=32, ffn=32, heads=1, kv_heads=1)

Changes: TypeAlias = "Mapping[str, WritableValue | None]"


def described(path: Path, changes: Changes | None = None, config: GemmaConfig = SMALL) -> GemmaConfig:
    """The config read from a file that was written for ``config``, with ``changes`` to its metadata."""
    return config_from_gguf(read_gguf(write_tiny_gguf(path / "tiny.gguf", config, metadata=changes)))


@pytest.mark.parametrize(
    "config",
    [
        tiny_config(),
        tiny_config_k(),
        tiny_config(window=None),
        tiny_config(pattern=1),
        tiny_config(tied_head=False, eos_ids=(1, 6)),
        tiny_config(attn_softcap=50.0, final_softcap=30.0, global_rope=Rope(1e5), local_rope=Rope(2e4)),
    ],
)
def test_reads_back_what_was_written(config: GemmaConfig, tmp_path: Path) -> None:
    assert described(tmp_path, config=config) == config


@pytest.mark.real_model
def test_gemma_3_270m(real_model_path: Path) -> None:
    local, wide = Rope(1e4), Rope(1e6)
    assert config_from_gguf(read_gguf(real_model_path)) == GemmaConfig(
        architecture="gemma3",
        layers=18,
        hidden=640,
        ffn=2048,
        heads=4,
        kv_heads=1,
        head_dim=256,
        vocab=262144,
        context_length=32768,
        rms_eps=float(np.float32(1e-6)),
        query_scale=1 / 16,
        embedding_scale=math.sqrt(640),
        layer_windows=(512, 512, 512, 512, 512, None) * 3,
        layer_ropes=(local, local, local, local, local, wide) * 3,
        qk_norm=True,
        post_norms=True,
        tied_head=True,
        bos_id=2,
        eos_ids=(1,),
    )


# Keys that files of other converters lack: the family's value, or an error naming the key.


@pytest.mark.parametrize(
    "key",
    [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.sliding_window",
        "rope.scaling.type",
        "rope.scaling.factor",
    ],
)
def test_missing_key_without_a_safe_value_is_named(key: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"metadata gemma3\.{re.escape(key)} is missing"):
        described(tmp_path, {f"gemma3.{key}": None})


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("attention.layer_norm_rms_epsilon", "rms_eps", 1e-6),
        ("attention.scale", "query_scale", 32**-0.5),
        ("attention.value_length", "head_dim", 32),
        ("rope.freq_base_swa", "layer_ropes", (Rope(1e4),) * 5 + (Rope(1e6, 8.0), Rope(1e4))),
        ("rope.freq_base", "layer_ropes", (Rope(1e4),) * 5 + (Rope(1e6, 8.0), Rope(1e4))),
        ("attention.sliding_window_pattern", "layer_windows", (20,) * 5 + (None, 20)),
    ],
)
def test_missing_key_with_the_familys_value(key: str, field: str, value: object, tmp_path: Path) -> None:
    config = tiny_config(hidden=32, ffn=32)
    assert getattr(described(tmp_path, {f"gemma3.{key}": None}, config), field) == value


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_missing_special_ids_are_gemmas(name: str, tmp_path: Path) -> None:
    changes: Changes = {f"tokenizer.ggml.{name}_token_id": None, "tokenizer.ggml.tokens": None}
    config = described(tmp_path, changes)
    assert (config.bos_id, config.eos_ids) == (2, (1,))


def test_long_context_without_scaling_is_not_guessed(tmp_path: Path) -> None:
    absent: dict[str, WritableValue | None] = {"gemma3.rope.scaling.type": None, "gemma3.rope.scaling.factor": None}
    assert described(tmp_path, absent).layer_ropes == (Rope(1e4), Rope(1e6))
    assert described(tmp_path, absent | {"gemma3.context_length": 32768}).context_length == 32768
    with pytest.raises(CheckpointError, match=r"rope\.scaling\.type is missing"):
        described(tmp_path, absent | {"gemma3.context_length": 131072})
    stated = described(tmp_path, {"gemma3.context_length": 131072, "gemma3.rope.scaling.type": "none"})
    assert stated.context_length == 131072


# What GGUF leaves to the family.


def test_scale_of_queries_in_the_27b_model(tmp_path: Path) -> None:
    """Known by its 62 layers: hidden / heads, not head_dim."""
    config = tiny_config(layers=62, hidden=96, ffn=32, heads=2, kv_heads=1)
    scales = [
        described(tmp_path, {"gemma3.attention.scale": None}, with_layers(config, layers)).query_scale
        for layers in (61, 62)
    ]
    assert scales == [32**-0.5, 48**-0.5]


def with_layers(config: GemmaConfig, layers: int) -> GemmaConfig:
    return replace(
        config, layers=layers, layer_windows=config.layer_windows[:layers], layer_ropes=config.layer_ropes[:layers]
    )


def test_layers_slide_but_for_every_sixth(tmp_path: Path) -> None:
    config = tiny_config(layers=13, hidden=32, ffn=32, kv_heads=1)
    read = described(tmp_path, {"gemma3.attention.sliding_window_pattern": None}, config)
    assert [layer for layer, window in enumerate(read.layer_windows) if window is None] == [5, 11]
    assert read.layer_ropes[5] == Rope(1e6, 8.0)
    assert read.layer_ropes[12] == Rope(1e4)


def test_pattern_as_a_period(tmp_path: Path) -> None:
    config = tiny_config(layers=5, hidden=32, ffn=32)
    read = described(tmp_path, {"gemma3.attention.sliding_window_pattern": 2}, config)
    assert read.layer_windows == (20, None, 20, None, 20)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (np.array([True]), "has 1 entries for 2 layers"),
        (0, "is 0"),
        ("all", "is all"),
        (True, "is True"),
        (np.empty(0, np.int32), r"is \[\]"),
    ],
)
def test_impossible_pattern(pattern: WritableValue, fault: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"sliding_window_pattern {fault}"):
        described(tmp_path, {"gemma3.attention.sliding_window_pattern": pattern})


# Ids that end a text.


@pytest.mark.parametrize(
    ("eos", "eot", "expected"),
    [(1, None, (1,)), (6, None, (1, 6)), (1, 6, (1, 6)), (None, 6, (1, 6)), (106, 6, (1, 6, 106)), (None, None, (1,))],
)
def test_ends_are_all_the_file_names_and_eos(
    eos: int | None, eot: int | None, expected: tuple[int, ...], tmp_path: Path
) -> None:
    ids = {"tokenizer.ggml.eos_token_id": eos, "tokenizer.ggml.eot_token_id": eot}
    assert described(tmp_path, ids).eos_ids == expected


def test_eos_is_found_by_its_string_where_it_is_a_control_token(tmp_path: Path) -> None:
    vocabulary = tiny_vocabulary(367)
    tokens = list(vocabulary.tokens)
    tokens[1], tokens[366] = "x", "<eos>"
    types = vocabulary.types.copy()
    for kind, expected in ((CONTROL, (6, 366)), (NORMAL, (6,))):
        types[366] = kind
        changes: Changes = {
            "tokenizer.ggml.eos_token_id": 6,
            "tokenizer.ggml.tokens": tuple(tokens),
            "tokenizer.ggml.token_type": types.copy(),
        }
        assert described(tmp_path, changes).eos_ids == expected


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "eot_token_id"])
@pytest.mark.parametrize("value", [-1, "2", True, 1.0, 367, 2**40])
def test_impossible_special_id(key: str, value: WritableValue, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"must be a token id|outside the vocabulary"):
        described(tmp_path, {f"tokenizer.ggml.{key}": value})


# Faults.


def test_another_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="architecture llama is not supported"):
        described(tmp_path, {"general.architecture": "llama"})
    with pytest.raises(CheckpointError, match=r"general\.architecture is missing"):
        described(tmp_path, {"general.architecture": None})
    with pytest.raises(CheckpointError, match=r"general\.architecture is missing"):
        described(tmp_path, {"general.architecture": 3})


def test_files_that_are_not_a_whole_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="holds a adapter, not a model"):
        described(tmp_path, {"general.type": "adapter"})
    with pytest.raises(UnsupportedError, match="one part of a split model"):
        described(tmp_path, {"split.count": np.uint16(3)})
    assert described(tmp_path, {"split.count": np.uint16(1)}) == SMALL


@pytest.mark.parametrize(
    "key",
    [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.sliding_window",
        "rope.dimension_count",
    ],
)
@pytest.mark.parametrize("value", [0, -1, "7", True, 1.5, np.array([1.0]), ("a",), np.empty(0, np.uint32)])
def test_sizes_are_positive_integers(key: str, value: WritableValue, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"gemma3\.{re.escape(key)} is .*must be a positive integer"):
        described(tmp_path, {f"gemma3.{key}": value})


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "feed_forward_length"])
@pytest.mark.parametrize("value", [2**31, 2**63])
def test_lying_sizes_cost_nothing(key: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"plausible|must be between"):
        described(tmp_path, {f"gemma3.{key}": value})


@pytest.mark.parametrize(
    "key",
    [
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scaling.factor",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    ],
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1", False])
def test_numbers_are_positive_and_finite(key: str, value: WritableValue, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"gemma3\.{re.escape(key)} is .*must be a positive number"):
        described(tmp_path, {f"gemma3.{key}": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "yarn"),
        ("rope.scaling.attn_factor", 0.5),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("rope.dimension_count", 16),
        ("attention.value_length", 64),
        ("attention.key_length_swa", 16),
        ("attention.causal", False),
        ("attention.shared_kv_layers", 2),
        ("attention.head_count_kv", np.array([1, 2], np.uint32)),
        ("feed_forward_length", np.array([32, 64], np.int32)),
    ],
)
def test_what_changes_the_arithmetic_is_refused(key: str, value: WritableValue, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"{re.escape(key)}|not causal"):
        described(tmp_path, {f"gemma3.{key}": value})


def test_a_size_for_each_layer_may_say_the_same(tmp_path: Path) -> None:
    config = tiny_config(layers=3, hidden=32, ffn=64, kv_heads=2)
    per_layer: Changes = {
        "gemma3.attention.head_count_kv": np.array([2, 2, 2], np.uint32),
        "gemma3.feed_forward_length": np.array([64, 64, 64], np.int32),
    }
    assert described(tmp_path, per_layer, config) == config


def test_keys_that_say_nothing_new_are_accepted(tmp_path: Path) -> None:
    same: Changes = {
        "gemma3.attention.causal": True,
        "gemma3.attention.key_length_swa": 32,
        "gemma3.rope.dimension_count": 32,
        "gemma3.rope.scaling.attn_factor": 1.0,
        "gemma3.rope.scaling.finetuned": False,
        "gemma3.some_new_note": "hello",
        "llama.attention.weird": 1,
    }
    assert described(tmp_path, same) == SMALL


def test_vocabulary_is_the_embeddings(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "padded.gguf", SMALL, vocabulary=tiny_vocabulary(350))
    assert config_from_gguf(read_gguf(path)).vocab == 367
    path = write_tiny_gguf(tmp_path / "short.gguf", SMALL, vocabulary=tiny_vocabulary(368))
    with pytest.raises(TensorError, match=r"token_embd\.weight has 367 rows for a vocabulary of 368 tokens"):
        config_from_gguf(read_gguf(path))


def test_types_do_not_matter_to_the_config(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "t.gguf", SMALL, types=WeightType.Q8_0)
    assert config_from_gguf(read_gguf(path)) == SMALL
