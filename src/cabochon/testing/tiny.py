"""TinyGemma: small random models of real shape, and GGUF files of them.

    config = tiny_config(window=12)                      # or tiny_config_k() where K-quants must fit
    weights = tiny_weights(config, seed=3)               # our names -> float32
    path = write_tiny_gguf(tmp_path / "tiny.gguf", config, weights, types=MIXED_TYPES)
    checkpoint = load_checkpoint(path)                   # the loader users get
    tensors = tiny_tensors(config, weights, types=...)   # the same RawTensors without a file

The weights are made so that mistakes show: all norm gains are random, attention scores and logits are large enough
for softmax and soft caps to bend (``score_scale`` and ``logit_scale`` are their root mean squares), sizes differ from
one another (D is not H*E, ``query_scale`` is not ``head_dim ** -0.5``), the layers end on sliding ones, and the
global rope is scaled. The window is short: a text of three windows is 60 tokens. Quantised types change the weights;
what the model then has is ``dequantize`` of the tensors, not ``weights``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.checkpoint.names import gguf_name
from cabochon.checkpoint.write import WritableValue, write_gguf
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import tensor_specs
from cabochon.ops.protocol import Rope
from cabochon.testing.quantize import quantize
from cabochon.testing.vocabulary import BOS, EOS, PAD, UNK, TinyVocabulary, tiny_vocabulary
from cabochon.types import Float32, RawTensor, WeightType

MIXED_TYPES: Mapping[str, WeightType] = {
    "embedding": WeightType.Q8_0,
    "query": WeightType.Q5_0,
    "key": WeightType.Q5_0,
    "value": WeightType.Q8_0,
    "attention_output": WeightType.Q4_K,
    "gate": WeightType.Q5_0,
    "up": WeightType.Q5_0,
    "down": WeightType.Q6_K,
}
"""The mixture of Gemma 3 270M's Q4_K_M file, by role; needs ``tiny_config_k``."""


def tiny_config(
    *,
    layers: int = 7,
    hidden: int = 96,
    head_dim: int = 32,
    window: int | None = 20,
    pattern: int = 6,
    local_rope: Rope = Rope(1e4),  # noqa: B008 (frozen)
    global_rope: Rope = Rope(1e6, 8.0),  # noqa: B008 (frozen)
    **overrides: Any,
) -> GemmaConfig:
    """A Gemma 3 whose rows are multiples of 32 (float types and formats with blocks of 32 fit).

    Every ``pattern``-th layer is global and the others slide over ``window`` keys (none slide if it is None); any
    field of ``GemmaConfig`` can be given by name.
    """
    is_global = [window is None or (layer + 1) % pattern == 0 for layer in range(layers)]
    fields: dict[str, Any] = {
        "architecture": "gemma3",
        "ffn": 160,
        "heads": 4,
        "kv_heads": 2,
        "vocab": 367,
        "context_length": 2048,
        "rms_eps": float(np.float32(1e-6)),
        "query_scale": 24**-0.5,
        "embedding_scale": math.sqrt(hidden),
        "layer_windows": tuple(None if wide else window for wide in is_global),
        "layer_ropes": tuple(global_rope if wide else local_rope for wide in is_global),
        "qk_norm": True,
        "post_norms": True,
        "tied_head": True,
        "bos_id": BOS,
        "eos_ids": (EOS,),
    }
    return GemmaConfig(**{**fields, "layers": layers, "hidden": hidden, "head_dim": head_dim, **overrides})


def tiny_config_k(**overrides: Any) -> GemmaConfig:
    """A Gemma 3 whose rows are multiples of 256, for K-quants; otherwise as ``tiny_config``, with 3 layers."""
    sizes = {"layers": 3, "pattern": 2, "hidden": 256, "ffn": 768, "head_dim": 128, "kv_heads": 1}
    return tiny_config(**{**sizes, **overrides})


def tiny_weights(
    config: GemmaConfig, seed: int = 0, *, score_scale: float = 6.0, logit_scale: float = 6.0
) -> dict[str, Float32]:
    """Random weights for every tensor of ``config``, by our names.

    ``score_scale`` and ``logit_scale`` are about the root mean square of attention scores and of logits; extremes are
    some four times larger. Soft caps need scores around 50 and logits around 25 to show.
    """
    rng = np.random.default_rng(seed)
    # A score is query_scale times a sum of E products; with rows of unit size times gain g it has this size at g**2.
    qk_gain = math.sqrt(score_scale / (math.sqrt(config.head_dim) * config.query_scale))
    gains = {"query_norm": qk_gain, "key_norm": qk_gain, "attention_post_norm": 0.5 * logit_scale}
    gains["ffn_post_norm"] = gains["attention_post_norm"]
    sizes = {"embedding": logit_scale, "head": logit_scale}
    if not config.qk_norm:
        sizes |= {"query": qk_gain, "key": qk_gain}
    if not config.post_norms:
        sizes |= {"attention_output": 0.5 * logit_scale, "down": 0.5 * logit_scale}
    weights = {}
    for spec in tensor_specs(config):
        if spec.kind == "norm":
            # One in eight is negative, as some of the real ones are.
            signs = np.where(rng.random(spec.shape) < 0.125, -1.0, 1.0)
            values = gains.get(spec.role, 1.0) * signs * rng.uniform(0.5, 1.5, spec.shape)
        else:
            values = sizes.get(spec.role, 1.0) / math.sqrt(spec.shape[-1]) * rng.standard_normal(spec.shape)
        weights[spec.name] = values.astype(np.float32)
    return weights


def tiny_tensors(
    config: GemmaConfig, weights: Mapping[str, Float32], types: WeightType | Mapping[str, WeightType] = WeightType.F32
) -> dict[str, RawTensor]:
    """``weights`` as stored tensors, by our names.

    ``types`` is one type for all matrices, or a type by role (``query``, ``embedding``), F32 where none is given; norms
    are F32 always.
    """
    tensors = {}
    for spec in tensor_specs(config):
        kind = types.get(spec.role, WeightType.F32) if isinstance(types, Mapping) else types
        kind = WeightType.F32 if spec.kind == "norm" else kind
        tensors[spec.name] = quantize(spec.name, weights[spec.name], kind)
    return tensors


def tiny_metadata(config: GemmaConfig, vocabulary: TinyVocabulary) -> dict[str, WritableValue]:
    """The GGUF metadata that describes ``config`` and ``vocabulary``."""
    arch = config.architecture
    wide = [rope for rope, window in zip(config.layer_ropes, config.layer_windows, strict=True) if window is None]
    narrow = [rope for rope, window in zip(config.layer_ropes, config.layer_windows, strict=True) if window is not None]
    globally = wide[0] if wide else Rope(1e6)
    metadata: dict[str, WritableValue] = {
        "general.architecture": arch,
        "general.name": "Tiny Gemma",
        f"{arch}.context_length": config.context_length,
        f"{arch}.embedding_length": config.hidden,
        f"{arch}.block_count": config.layers,
        f"{arch}.feed_forward_length": config.ffn,
        f"{arch}.attention.head_count": config.heads,
        f"{arch}.attention.head_count_kv": config.kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.value_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": config.rms_eps,
        f"{arch}.attention.scale": np.float64(config.query_scale),
        f"{arch}.attention.sliding_window_pattern": np.array([w is not None for w in config.layer_windows]),
        f"{arch}.rope.freq_base": globally.theta,
        f"{arch}.rope.freq_base_swa": narrow[0].theta if narrow else 1e4,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.scores": vocabulary.scores,
        "tokenizer.ggml.token_type": vocabulary.types,
        "tokenizer.ggml.unknown_token_id": UNK,
        "tokenizer.ggml.padding_token_id": PAD,
        "tokenizer.ggml.add_bos_token": config.bos_id is not None,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
    optional = {
        f"{arch}.attention.sliding_window": config.window,
        f"{arch}.attn_logit_softcapping": config.attn_softcap,
        f"{arch}.final_logit_softcapping": config.final_softcap,
        "tokenizer.ggml.bos_token_id": config.bos_id,
        "tokenizer.ggml.eos_token_id": config.eos_ids[0] if config.eos_ids else None,
        "tokenizer.ggml.eot_token_id": config.eos_ids[1] if len(config.eos_ids) > 1 else None,
    }
    metadata |= {key: value for key, value in optional.items() if value is not None}
    if globally.factor != 1.0:
        metadata |= {f"{arch}.rope.scaling.type": "linear", f"{arch}.rope.scaling.factor": globally.factor}
    return metadata


def write_tiny_gguf(
    path: str | Path,
    config: GemmaConfig | None = None,
    weights: Mapping[str, Float32] | None = None,
    *,
    types: WeightType | Mapping[str, WeightType] = WeightType.F32,
    vocabulary: TinyVocabulary | None = None,
    metadata: Mapping[str, WritableValue | None] | None = None,
) -> Path:
    """A GGUF file of a tiny model, ``tiny_config()`` with ``tiny_weights`` unless given; returns ``path``.

    ``metadata`` changes entries of the file's own, None removing one. The default vocabulary has ``config.vocab``
    tokens.
    """
    config = config or tiny_config()
    weights = weights if weights is not None else tiny_weights(config)
    entries: dict[str, WritableValue] = tiny_metadata(config, vocabulary or tiny_vocabulary(config.vocab))
    for key, value in (metadata or {}).items():
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
    tensors = [replace(tensor, name=gguf_name(name)) for name, tensor in tiny_tensors(config, weights, types).items()]
    write_gguf(path, entries, tensors)
    return Path(path)
