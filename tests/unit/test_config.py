"""The model's description: what cannot be right is refused, naming the field."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from cabochon.errors import CheckpointError
from cabochon.model.tensors import head_name, tensor_specs
from cabochon.ops.protocol import Rope
from cabochon.testing.tiny import tiny_config

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[
            (name, value)
            for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
            for value in (0, -4, 2**31)
        ],
        ("layers", 8),
        ("layers", 1025),
        ("head_dim", 0),
        ("head_dim", 33),
        ("context_length", 0),
        ("kv_heads", 3),
        ("kv_heads", 8),
        *[(name, value) for name in ("rms_eps", "query_scale", "embedding_scale") for value in (0.0, -1.0, NAN, INF)],
        *[(name, value) for name in ("attn_softcap", "final_softcap") for value in (0.0, -1.0, NAN, INF)],
        ("layer_windows", (20,) * 6),
        ("layer_ropes", (Rope(1e4),) * 8),
        ("bos_id", -1),
        ("bos_id", 367),
        ("eos_ids", (1, 367)),
    ],
)
def test_impossible_value(field: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=f"config: .*{field}"):
        replace(tiny_config(), **{field: value})


@pytest.mark.parametrize("window", [0, -1, 2**31])
def test_impossible_window(window: int) -> None:
    with pytest.raises(CheckpointError, match="config: window is"):
        tiny_config(window=window)


@pytest.mark.parametrize("rope", [Rope(0.0), Rope(NAN), Rope(1e4, 0.0), Rope(1e4, -8.0), Rope(INF)])
def test_impossible_rope(rope: Rope) -> None:
    with pytest.raises(CheckpointError, match="config: rope"):
        tiny_config(global_rope=rope)


def test_wide_heads_are_bounded() -> None:
    with pytest.raises(CheckpointError, match="heads x head_dim"):
        replace(tiny_config(), heads=2**14, kv_heads=2, head_dim=2**12)


def test_window_is_that_of_the_sliding_layers() -> None:
    assert tiny_config(window=20).window == 20
    assert tiny_config(window=None).window is None
    assert tiny_config(window=20, pattern=1).window is None


def test_shapes_follow_the_config() -> None:
    config = tiny_config()
    shapes = {spec.name: spec.shape for spec in tensor_specs(config)}
    assert shapes["embedding"] == (367, 96)
    assert shapes["layers.6.query"] == (128, 96)
    assert shapes["layers.0.key"] == shapes["layers.0.value"] == (64, 96)
    assert shapes["layers.0.attention_output"] == (96, 128)
    assert shapes["layers.0.gate"] == shapes["layers.0.up"] == (160, 96)
    assert shapes["layers.0.down"] == (96, 160)
    assert shapes["layers.0.query_norm"] == shapes["layers.0.key_norm"] == (32,)
    assert shapes["final_norm"] == shapes["layers.0.attention_norm"] == (96,)
    assert len(shapes) == 7 * 13 + 2
    assert head_name(config) == "embedding"


def test_table_without_what_other_generations_lack() -> None:
    config = tiny_config(layers=1, qk_norm=False, post_norms=False, tied_head=False)
    roles = [spec.role for spec in tensor_specs(config)]
    layer = ["attention_norm", "query", "key", "value", "attention_output", "ffn_norm", "gate", "up", "down"]
    assert roles == ["embedding", *layer, "final_norm", "head"]
    assert head_name(config) == "head"
