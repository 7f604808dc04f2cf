"""The independent implementation (``transformers``), and models of either backend built by the real loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.load import load_checkpoint
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.model import Model
from cabochon.model.native_model import build_native_model
from cabochon.model.tensors import tensor_specs
from cabochon.model.torch_model import build_torch_model
from cabochon.testing.steps import tiny_store
from cabochon.testing.tiny import tiny_weights, write_tiny_gguf
from cabochon.types import Float32, Int32, KVType

Load = Callable[..., Model]
"""``load(config, weights, tokens, kv_type="f32", metadata={})``: a model read from a GGUF file written for it."""

ROWS = 1100
"""The most rows of one step in these tests."""

Oracle = Callable[..., Float32]
"""``oracle(config, weights, ids)``: logits of every position, [len(ids), V]."""


@pytest.fixture(params=["torch", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def load(backend: str, tmp_path: Path) -> Load:
    def load(
        config: GemmaConfig,
        weights: Mapping[str, Float32],
        tokens: int,
        *,
        kv_type: KVType = "f32",
        store: Callable[[GemmaConfig], KVStore] | None = None,
        logit_rows: int = ROWS,
        metadata: Mapping[str, Any] | None = None,
    ) -> Model:
        path = write_tiny_gguf(tmp_path / "tiny.gguf", config, weights, metadata=metadata)
        checkpoint = load_checkpoint(path)
        if not metadata:
            assert checkpoint.config == config
        pages = store(checkpoint.config) if store else tiny_store(checkpoint.config, tokens, kv_type)
        if backend == "torch":
            return build_torch_model(
                checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), pages, threads=1
            )
        return build_native_model(
            checkpoint.config, checkpoint.tensors, pages, threads=1, max_rows=ROWS, max_logit_rows=logit_rows
        )

    return load


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return oracle_logits


def exact_weights(config: GemmaConfig, seed: int = 0, **scales: float) -> dict[str, Float32]:
    """``tiny_weights`` whose gains survive the oracle's habit of storing them less one."""
    weights = tiny_weights(config, seed, **scales)
    for spec in tensor_specs(config):
        if spec.kind == "norm":
            weights[spec.name] = (weights[spec.name] - np.float32(1)) + np.float32(1)
    return weights


@pytest.fixture(scope="session")
def random_weights() -> Callable[..., dict[str, Float32]]:
    return exact_weights


_TOP = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_ROLES = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "attention_output": "self_attn.o_proj",
    "attention_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "ffn_post_norm": "post_feedforward_layernorm",
}


def oracle_logits(config: GemmaConfig, weights: Mapping[str, Float32], ids: Int32, **settings: Any) -> Float32:
    """Logits of every position by ``Gemma3ForCausalLM`` in float32; ``settings`` replace those of its config."""
    # Seconds to import, and the tokenizer's tests do without.
    import torch
    import transformers

    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**(oracle_settings(config) | settings)))
    state = {}
    for spec in tensor_specs(config):
        values = weights[spec.name] - np.float32(1) if spec.kind == "norm" else weights[spec.name]
        layer = spec.name.split(".")[1:-1]
        prefix = f"model.layers.{layer[0]}.{_ROLES[spec.role]}" if layer else _TOP[spec.name]
        state[f"{prefix}.weight"] = torch.from_numpy(values)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tied_head else set())
    # Models this small are slower on several threads, by far if the cores are busy.
    torch.set_num_threads(1)
    with torch.inference_mode():
        logits: Float32 = model.eval()(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()
    return logits


def oracle_settings(config: GemmaConfig) -> dict[str, Any]:
    """``config`` in the words of ``Gemma3TextConfig``; settings it cannot express fail an assertion."""
    ropes: dict[bool, dict[str, Any]] = {True: {"rope_type": "default"}, False: {"rope_type": "default"}}
    for window, rope in zip(config.layer_windows, config.layer_ropes, strict=True):
        ropes[window is None] = {"rope_type": "linear", "rope_theta": rope.theta, "factor": rope.factor}
    scalar = round(config.query_scale**-2)
    assert np.isclose(scalar**-0.5, config.query_scale, rtol=1e-12)
    return {
        "attn_implementation": "eager",
        "dtype": "float32",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_eps,
        "query_pre_attn_scalar": scalar,
        "sliding_window": config.window or 1,
        "layer_types": ["full_attention" if window is None else "sliding_attention" for window in config.layer_windows],
        "rope_parameters": {"full_attention": ropes[True], "sliding_attention": ropes[False]},
        "final_logit_softcapping": config.final_softcap,
        "tie_word_embeddings": config.tied_head,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
