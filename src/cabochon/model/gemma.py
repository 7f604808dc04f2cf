"""Gemma, read from top to bottom: embed, then layers of attention and feed-forward, then the head.

What is particular to it:

- the embedding is scaled by sqrt(D), and the same table is the output head;
- every block is normalised before *and* after, and only then joins the residual stream (Gemma 2 and later);
- queries and keys are normalised per head before rotation (Gemma 3);
- most layers see only a window of recent positions; a few see everything, and rotate with a longer wavelength.

The arithmetic is that of ``docs/arithmetic.md``; facts about each generation are in ``docs/models.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from cabochon.kvcache.groups import KVLayout
from cabochon.model.config import GemmaConfig
from cabochon.ops.protocol import AttentionShape, Ops

X = TypeVar("X")
W = TypeVar("W")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[W]):
    """Weights of one layer. Gains are what the normalised value is multiplied by (1 + w where files store w)."""

    attention_norm: W  # [D]
    query: W  # [H*E, D]
    key: W  # [G*E, D]
    value: W  # [G*E, D]
    query_norm: W  # [E]
    key_norm: W  # [E]
    attention_output: W  # [D, H*E]
    attention_post_norm: W  # [D]
    ffn_norm: W  # [D]
    gate: W  # [F, D]
    up: W  # [F, D]
    down: W  # [D, F]
    ffn_post_norm: W  # [D]


@dataclass(frozen=True, slots=True)
class GemmaWeights(Generic[W]):
    """All weights of a model."""

    embedding: W  # [V, D]
    layers: tuple[LayerWeights[W], ...]
    final_norm: W  # [D]
    head: W  # [V, D]; the embedding, unless the file brings its own


def hidden_states(ops: Ops[X, W, S], config: GemmaConfig, layout: KVLayout, weights: GemmaWeights[W], step: S) -> X:
    """Normalised hidden states of the rows whose logits are wanted: [R, D]."""
    h = ops.embed(step, weights.embedding, config.embedding_scale)  # [T, D]
    for index, w in enumerate(weights.layers):
        last = index == config.layers - 1
        h = attention_block(ops, config, attention_shape(config, layout, index), w, step, h, last=last)
        h = feed_forward_block(ops, config, w, h)
    return ops.rms_norm(h, weights.final_norm, config.rms_eps)


def attention_block(
    ops: Ops[X, W, S], config: GemmaConfig, shape: AttentionShape, w: LayerWeights[W], step: S, h: X, *, last: bool
) -> X:
    """Residual stream after attention: [T, D]; [R, D] after the last layer, where other rows have done their work."""
    qkv = ops.linear(ops.rms_norm(h, w.attention_norm, config.rms_eps), w.query, w.key, w.value)  # [T, (H+2G)*E]
    gains = (w.query_norm, w.key_norm)
    rope = config.layer_ropes[shape.layer]
    q = ops.norm_rope_store(step, qkv, shape, rope, gains, config.rms_eps, config.query_scale)  # [T, H*E]
    if last:
        q, h = ops.keep_logit_rows(step, q), ops.keep_logit_rows(step, h)
    mixed = ops.attend(step, q, shape, config.attn_softcap)  # [T, H*E]
    return ops.add_norm(h, ops.linear(mixed, w.attention_output), w.attention_post_norm, config.rms_eps)


def feed_forward_block(ops: Ops[X, W, S], config: GemmaConfig, w: LayerWeights[W], h: X) -> X:
    """Residual stream after the gated feed-forward network: [T, D]."""
    gate_up = ops.linear(ops.rms_norm(h, w.ffn_norm, config.rms_eps), w.gate, w.up)  # [T, 2F]
    return ops.add_norm(h, ops.linear(ops.gated_gelu(gate_up), w.down), w.ffn_post_norm, config.rms_eps)


def logits(ops: Ops[X, W, S], config: GemmaConfig, weights: GemmaWeights[W], hidden: X) -> X:
    """Scores of every token id as the next one: [R, V] from normalised hidden states [R, D]."""
    scores = ops.linear(hidden, weights.head)
    return scores if config.final_softcap is None else ops.softcap(scores, config.final_softcap)


def attention_shape(config: GemmaConfig, layout: KVLayout, layer: int) -> AttentionShape:
    """Heads of one layer, and its page group."""
    return AttentionShape(layer, layout.group_of[layer], config.heads, config.kv_heads, config.head_dim)
