"""The models that are known, the names they are known by, and configs that cannot be."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from cabochon.compat import gemma_pytorch
from cabochon.compat.gemma_pytorch.config import Architecture, AttentionType, GemmaConfig, get_model_config
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM
from cabochon.errors import MissingDependencyError, UsageError

G, L = AttentionType.GLOBAL, AttentionType.LOCAL_SLIDING

PARAMETERS = {"270m": 268_098_176, "1b": 999_885_952}
"""Of the published models."""


@pytest.mark.parametrize(
    ("variant", "layers", "of_them_global"),
    [("270m", 18, 3), ("1b", 26, 4), ("4b", 34, 5), ("12b", 48, 8), ("27b_v3", 62, 10)],
)
def test_layers(variant: str, layers: int, of_them_global: int) -> None:
    types = get_model_config(variant).layer_types()
    assert len(types) == layers
    assert types.count(G) == of_them_global
    assert types[:7] == (L, L, L, L, L, G, L)


def test_names_and_shapes_of_weights() -> None:
    """1b, without its two tables of rotations; every shape as that project has it."""
    with torch.device("meta"):
        model = GemmaForCausalLM(without_tokenizer("1b"))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert len(shapes) == 288
    of_layer = {name.split("layers.7.")[1]: shape for name, shape in shapes.items() if "layers.7." in name}
    assert of_layer == {
        "self_attn.qkv_proj.weight": (1536, 1152),
        "self_attn.o_proj.weight": (1152, 1024),
        "self_attn.query_norm.weight": (256,),
        "self_attn.key_norm.weight": (256,),
        "mlp.gate_proj.weight": (6912, 1152),
        "mlp.up_proj.weight": (6912, 1152),
        "mlp.down_proj.weight": (1152, 6912),
        "input_layernorm.weight": (1152,),
        "post_attention_layernorm.weight": (1152,),
        "pre_feedforward_layernorm.weight": (1152,),
        "post_feedforward_layernorm.weight": (1152,),
    }
    assert {name: shape for name, shape in shapes.items() if "layers" not in name} == {
        "embedder.weight": (262144, 1152),
        "model.norm.weight": (1152,),
    }


@pytest.mark.parametrize("variant", PARAMETERS)
def test_number_of_parameters(variant: str) -> None:
    with torch.device("meta"):
        model = GemmaForCausalLM(without_tokenizer(variant))
    assert sum(weight.numel() for weight in model.parameters()) == PARAMETERS[variant]
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("variant", "rows"), [("270m", 1536), ("1b", 1536), ("4b", 4096), ("12b", 8192), ("27b_v3", 8192)]
)
def test_rows_of_queries_keys_and_values(variant: str, rows: int) -> None:
    config = get_model_config(variant)
    assert (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim == rows


def without_tokenizer(variant: str) -> GemmaConfig:
    config = get_model_config(variant)
    config.tokenizer = None
    return config


@pytest.mark.parametrize("name", ["4b-it", "4b-pt", "4b"])
def test_a_tuned_model_has_the_config_of_its_base(name: str) -> None:
    config = get_model_config(name)
    assert config == get_model_config("4b")
    assert (config.max_position_embeddings, config.rope_scaling_factor) == (131_072, 8)


def test_queries_of_the_largest_are_scaled_by_hidden_per_head() -> None:
    assert get_model_config("27b_v3").query_pre_attn_scalar == 5376 / 32


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("2b", "variant 2b is a Gemma 1: it comes when that family does"),
        ("9b-it", "variant 9b-it is a Gemma 2: it comes when that family does"),
        ("27b", "variant 27b is a Gemma 2"),
        ("3n", "variant must be one of 270m, 1b, 4b, 12b, 27b_v3, not '3n'"),
        (7, "variant must be one of .*, not 7"),
    ],
)
def test_other_variants_are_refused(variant: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        get_model_config(variant)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float32", torch.float32),
        ("float", torch.float32),
    ],
)
def test_dtypes(dtype: str, expected: torch.dtype) -> None:
    assert get_model_config("1b", dtype).get_dtype() == expected


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dtype", "int8", "dtype must be one of float16, bfloat16, float32, float, not 'int8'"),
        ("architecture", Architecture.GEMMA_2, "architecture: only GEMMA_3 runs here yet"),
        ("num_hidden_layers", 0, "num_hidden_layers must be a whole number, 1 or more, not 0"),
        ("num_key_value_heads", 3, "num_attention_heads is not a multiple of config.num_key_value_heads"),
        ("head_dim", 255, "head_dim is 255; rotary positions need an even number"),
        ("attn_types", [], "attn_types must be a list of AttentionType"),
        ("attn_types", [1], "attn_types must be a list of AttentionType"),
        ("rope_wave_length", {G: 1e6}, "rope_wave_length has no AttentionType.LOCAL_SLIDING"),
        ("sliding_window_size", None, "sliding_window_size must be a whole number, 1 or more, not None"),
        ("use_qk_norm", False, "use_qk_norm must be True"),
        ("use_pre_ffw_norm", False, "use_pre_ffw_norm must be True"),
        ("use_post_ffw_norm", False, "use_post_ffw_norm must be True"),
        ("vision_config", object(), "vision_config: images are not supported here"),
    ],
)
def test_a_changed_config_is_checked_when_a_model_is_made(field: str, value: object, message: str) -> None:
    config = without_tokenizer("270m")
    setattr(config, field, value)
    with pytest.raises(UsageError, match=rf"^config\.{message}"):
        GemmaForCausalLM(config)


@pytest.mark.parametrize("name", gemma_pytorch.__all__)
def test_public_names(name: str) -> None:
    assert getattr(gemma_pytorch, name).__name__ == name
    assert name in dir(gemma_pytorch)


def test_without_pytorch_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cabochon.compat.gemma_pytorch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "cabochon\[torch\]"'):
        gemma_pytorch.get_model_config  # noqa: B018 (looking it up is the test)


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'precompute_freqs_cis'"):
        gemma_pytorch.precompute_freqs_cis  # noqa: B018 (looking it up is the test)
