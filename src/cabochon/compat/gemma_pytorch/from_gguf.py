"""A GGUF file as gemma_pytorch's config and state dict.

That project publishes no weights of Gemma 3 270M, and nothing of any model in this format; with this its programs run
on both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cabochon.checkpoint.demo import DEMO
from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.gguf_format import MAGIC
from cabochon.checkpoint.load import Checkpoint, load_checkpoint
from cabochon.compat.gemma_pytorch.config import AttentionType, GemmaConfig
from cabochon.errors import UnsupportedError, UsageError
from cabochon.model.tensors import layer_tensor
from cabochon.types import Float32

_MATRICES = {
    "self_attn.o_proj": "attention_output",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
_NORMS = {
    "self_attn.query_norm": "query_norm",
    "self_attn.key_norm": "key_norm",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "attention_post_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_post_norm",
}
_FUSED = ("query", "key", "value")


def is_gguf(path: str | Path) -> bool:
    """Whether ``path`` is a GGUF file, by its first bytes, or the name of the packaged model."""
    if path == DEMO:
        return True
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def get_config_for_gguf(path: str | Path, dtype: str = "bfloat16") -> GemmaConfig:
    """The config of the model in a GGUF file (or ``demo``), which is its tokenizer too.

    Raises ``CheckpointError`` as ``load_checkpoint`` does, ``UnsupportedError`` for what this config cannot say.
    """
    checkpoint = _checkpoint(path)
    ours = checkpoint.config
    types = tuple(
        AttentionType.GLOBAL if window is None else AttentionType.LOCAL_SLIDING for window in ours.layer_windows
    )
    ropes = dict(zip(types, ours.layer_ropes, strict=True))
    scaled = ropes[AttentionType.GLOBAL].factor if AttentionType.GLOBAL in ropes else 1.0
    config = GemmaConfig(
        vocab_size=ours.vocab,
        max_position_embeddings=ours.context_length,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads,
        hidden_size=ours.hidden,
        intermediate_size=ours.ffn,
        head_dim=ours.head_dim,
        rms_norm_eps=ours.rms_eps,
        dtype=dtype,
        tokenizer=str(path),
        attn_types=types,
        sliding_window_size=ours.window,
        final_logit_softcapping=ours.final_softcap,
        attn_logit_softcapping=ours.attn_softcap,
        query_pre_attn_scalar=ours.query_scale**-2,
        rope_wave_length={kind: rope.theta for kind, rope in ropes.items()},
        rope_scaling_factor=None if scaled == 1.0 else scaled,
    )
    config.check()
    return config


def state_dict_from_gguf(path: str | Path, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The weights of a GGUF file (or ``demo``), dequantised, under gemma_pytorch's names.

    ``torch.save({"model_state_dict": state_dict_from_gguf(path)}, "model.ckpt")`` makes a checkpoint of that project.
    Norm weights are stored less one, as it does; in float32 adding the one again may change the last bit. Raises
    ``CheckpointError`` as ``load_checkpoint`` does, ``UnsupportedError`` for a model with a head of its own.
    """
    checkpoint = _checkpoint(path)

    def stored(values: Float32) -> Tensor:
        # PyTorch wants memory that it may write to, which a mapped file is not.
        return torch.from_numpy(np.require(values, requirements=["W", "C"])).to(dtype)

    def matrix(name: str) -> Tensor:
        return stored(dequantize(checkpoint.tensors[name]))

    def norm(name: str) -> Tensor:
        return stored(dequantize(checkpoint.tensors[name]) - np.float32(1))

    state = {"embedder.weight": matrix("embedding")}
    for layer in range(checkpoint.config.layers):
        prefix = f"model.layers.{layer}"
        fused = [matrix(layer_tensor(layer, role)) for role in _FUSED]
        state[f"{prefix}.self_attn.qkv_proj.weight"] = torch.cat(fused)
        for theirs, role in _MATRICES.items():
            state[f"{prefix}.{theirs}.weight"] = matrix(layer_tensor(layer, role))
        for theirs, role in _NORMS.items():
            state[f"{prefix}.{theirs}.weight"] = norm(layer_tensor(layer, role))
    state["model.norm.weight"] = norm("final_norm")
    return state


def _checkpoint(path: str | Path) -> Checkpoint:
    if not is_gguf(path):
        raise UsageError(f"{path}: not a GGUF file")
    checkpoint = load_checkpoint(path)
    if not checkpoint.config.tied_head:
        raise UnsupportedError(f"{path}: the model has a head of its own, for which gemma_pytorch has no name")
    return checkpoint
